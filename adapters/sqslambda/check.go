package sqslambda

import (
	"context"
	"log/slog"
	"time"

	"github.com/onceq/onceq/broker"
)

// timeoutsHidden is for how many timeouts of a function AWS wants a message to be hidden.
const timeoutsHidden = 6

// check compares the queue's visibility timeout with the function's timeout, once, because only an
// invocation knows the latter. The question runs beside the invocation. When the invocation's end
// cuts it off, the next invocation asks again.
func (v *invocation) check() {
	q, ok := broker.As[interface {
		VisibilityTimeout(ctx context.Context) (time.Duration, error)
	}](v.h.o.Queue)
	if !ok || !v.h.asked.CompareAndSwap(false, true) {
		return
	}
	// Lambda's timeouts are whole seconds, and the first moments of this one are gone.
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
