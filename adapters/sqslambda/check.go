package sqslambda

import (
	"context"
	"log/slog"
	"time"
)

// timeoutsHidden is for how many timeouts of a function AWS wants a message to be hidden.
const timeoutsHidden = 6

// check compares the queue's visibility timeout with the function's timeout, beside the invocation
// and once: only an invocation knows the latter. What was cut off by the invocation's end is asked
// again by the next one.
func (v *invocation) check() {
	q, ok := v.h.o.Queue.(interface {
		VisibilityTimeout(ctx context.Context) (time.Duration, error)
	})
	if !ok || !v.h.asked.CompareAndSwap(false, true) {
		return
	}
	// Lambda's timeouts are whole seconds, of which the first moments are gone.
	timeout := (v.t.end.Sub(v.t.begin) + time.Second - 1).Truncate(time.Second)
	v.calls.Go(func() {
		var hidden time.Duration
		err := v.call(v.holding, func(ctx context.Context) (err error) {
			hidden, err = q.VisibilityTimeout(ctx)
			return err
		})
		switch {
		case err != nil && v.holding.Err() != nil:
			v.h.asked.Store(false)
		case err == nil && hidden/timeoutsHidden < timeout:
			v.warn("the queue's visibility timeout is less than six times the function's timeout; messages may be delivered again while they are worked on",
				slog.Duration("visibility", hidden), slog.Duration("timeout", timeout))
		}
	})
}
