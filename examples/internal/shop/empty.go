package shop

import (
	"context"
	"errors"
	"time"

	"github.com/onceq/onceq/broker"
)

// ErrEmpty is the cause with which UntilEmpty ends the work.
var ErrEmpty = errors.New("the queue is empty")

// UntilEmpty looks at the queue every so often, shows how many messages it has, and stops the work
// when it has none: no message waits, is held, or will come back. It returns when the work has
// ended, for that or for another reason.
func UntilEmpty(working context.Context, stop context.CancelCauseFunc, queue broker.Depther, every time.Duration, show func(broker.Depth)) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for working.Err() == nil {
		select {
		case <-working.Done():
		case <-tick.C:
		}
		depth, err := queue.Depth(context.WithoutCancel(working))
		if err != nil {
			stop(err)
			break
		}
		show(depth)
		if depth == (broker.Depth{}) {
			stop(ErrEmpty)
		}
	}
}
