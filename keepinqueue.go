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
//
// Until then the handler starts each time that the message comes, once an hour, also when
// MaxAttempts are used up or the error is permanent: the cause may be mended. So does a message
// that an operator redrives from the queue's own dead-letter queue, whatever the job's record says
// of its attempts. A job whose last attempt died, as by a process that was killed, waits for an
// hour first. A parked job does not start: its key is to be resolved.
var KeepInQueue broker.Sender = keepInQueue{}

type keepInQueue struct{}

func (keepInQueue) Send(context.Context, []broker.Outgoing) ([]string, error) {
	return nil, broker.ErrUnsupported
}
func (keepInQueue) Limits() broker.Limits { return broker.Limits{SendBatch: 1} }
