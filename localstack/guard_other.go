//go:build !unix

package localstack

import (
	"context"
	"errors"
	"os"

	"github.com/onceq/onceq/localstack/internal/rundir"
)

type order struct{ Backend, Variant, Dir string }

func startGuard(order, *os.File) (rundir.Endpoint, error) {
	return rundir.Endpoint{Err: "starting one needs Unix; name one in the environment"}, nil
}

func startPostgres(context.Context, *site) (string, error) {
	return "", errors.ErrUnsupported
}
