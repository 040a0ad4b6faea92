//go:build !nopubsub

package places

import (
	"context"
	"path"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/onceq/onceq/adapters/gcppubsub"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/cmd/onceq/internal/settings"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/ops"
)

// IsDenied reports whether Google has refused a call because of a missing role. The error names the
// role.
func IsDenied(err error) bool {
	s, ok := status.FromError(err)
	return ok && err != nil && s.Code() == codes.PermissionDenied
}

func (p *Places) pubsubQueue(ctx context.Context, q settings.QueueURL) (broker.Broker, error) {
	clients, ok := p.pubsub.(*gcppubsub.Clients)
	if !ok {
		var err error
		if clients, err = gcppubsub.Dial(ctx); err != nil {
			return nil, err
		}
		p.pubsub = clients
		p.closing(clients.Close)
	}
	full := func(kind, name string) string {
		if name == "" || strings.HasPrefix(name, "projects/") {
			return name
		}
		return path.Join("projects", q.Project, kind, name)
	}
	b, err := gcppubsub.New(clients, full("topics", q.Topic), full("subscriptions", q.Subscription),
		&gcppubsub.Options{Ordered: q.Ordered, Attempts: q.Attempts})
	if err != nil {
		return nil, err
	}
	p.closing(b.Close)
	return b, nil
}

// pubsubChecks are those of a subscription.
func pubsubChecks(b broker.Broker) []ops.ServiceCheck {
	q, ok := broker.As[*gcppubsub.Broker](b)
	if !ok {
		return nil
	}
	return []ops.ServiceCheck{{Check: "pubsub", Ask: func(ctx context.Context) (fs []dedupe.Fault, err error) {
		_, texts, err := q.Check(ctx, gcppubsub.CheckOptions{})
		for _, text := range texts {
			fs = append(fs, dedupe.Fault{Text: text, Mend: "gcloud pubsub subscriptions update " + q.Describe().Name + " …: docs/backend-pubsub.md has each flag"})
		}
		return fs, err
	}}}
}
