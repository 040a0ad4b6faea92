//go:build nopubsub

package places

import (
	"context"
	"errors"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/cmd/onceq/internal/settings"
	"github.com/onceq/onceq/ops"
)

// IsDenied reports whether Google has refused a call because of a missing role.
func IsDenied(error) bool { return false }

func (p *Places) pubsubQueue(context.Context, settings.QueueURL) (broker.Broker, error) {
	return nil, errors.New("this onceq was built without Pub/Sub (tag nopubsub)")
}

func pubsubChecks(broker.Broker) []ops.ServiceCheck { return nil }
