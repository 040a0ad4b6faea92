//go:build !unix

package localstack

import (
	"context"
	"errors"
	"os"
	"slices"

	"github.com/onceq/onceq/internal/rundir"
	"github.com/onceq/onceq/internal/testserver"
)

// startGuard starts what needs no process of its own, in this one, which it ends with.
func startGuard(o testserver.Order, _ *os.File) (rundir.Endpoint, error) {
	b := backends[o.Backend]
	inside := slices.DeleteFunc(slices.Clone(b.ways), func(w way) bool { return !w.inside })
	if len(inside) == 0 {
		return rundir.Endpoint{Err: onlyUnix}, nil
	}
	e := b.start(context.Background(), &site{variant: o.Variant}, inside)
	if e.StandIn != "" {
		e.StandIn = onlyUnix
	}
	return e, nil
}

const onlyUnix = "starting one needs Unix; name one in the environment"

func startPostgres(context.Context, *site) (string, error) {
	return "", errors.ErrUnsupported
}

func startLocalStack(context.Context, *site) (string, error) {
	return "", errors.ErrUnsupported
}

func startPubSub(context.Context, *site) (string, error) {
	return "", errors.ErrUnsupported
}

func startFirestore(context.Context, *site) (string, error) {
	return "", errors.ErrUnsupported
}

func startDynamoDB(context.Context, *site) (string, error) {
	return "", errors.ErrUnsupported
}
