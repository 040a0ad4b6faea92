package onceq

import (
	"context"

	"github.com/onceq/onceq/broker"
)

// KeepInQueue stands for a DeadLetter: what would be a dead letter is released, given
// back for an hour, or the broker's longest delay if that is shorter, and logged, so that the
// queue's own redrive takes it in the end: before the end of its retention, if that is longer than
// an hour for each receive. It is never acked.
var KeepInQueue broker.Sender = keepInQueue{}

type keepInQueue struct{}

func (keepInQueue) Send(context.Context, []broker.Outgoing) ([]string, error) {
	return nil, broker.ErrUnsupported
}
func (keepInQueue) Limits() broker.Limits { return broker.Limits{SendBatch: 1} }
