package onceq

import (
	"context"

	"github.com/onceq/onceq/broker"
)

// KeepInQueue takes the place of a DeadLetter, and leaves dead letters to the queue's own redrive.
// A job that would become one is released and logged, and its message given back: for an hour, or
// for the broker's longest delay where that is shorter. It is never acked, so the redrive takes it
// in the end. The queue must keep messages for longer than an hour for each receive, or the message
// is gone before.
var KeepInQueue broker.Sender = keepInQueue{}

type keepInQueue struct{}

func (keepInQueue) Send(context.Context, []broker.Outgoing) ([]string, error) {
	return nil, broker.ErrUnsupported
}
func (keepInQueue) Limits() broker.Limits { return broker.Limits{SendBatch: 1} }
