package onceq

import (
	"context"
	"errors"
	"log/slog"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/retry"
)

// poll receives as long as ctx lasts: when enough slots are free, for as many messages as may be held. It
// ends with an error where receiving can never succeed.
func (w *Worker) poll(ctx context.Context, f *flow, once *atomic.Bool) error {
	few := max(1, min(w.l.ReceiveBatch, w.c.Concurrency/2))
	failed, hasty := 0, 0
	for ctx.Err() == nil {
		n := f.reserve(few, w.l.ReceiveBatch)
		if n == 0 {
			return nil
		}
		asked := time.Now()
		ms, err := w.receive(ctx, n)
		rs := w.taken(f, ms)
		f.offer(n, rs)
		switch {
		case err == nil:
			once.Store(true)
			failed = 0
			pause := w.c.PollPause
			if len(rs) == 0 && time.Since(asked) < noWait {
				hasty++
				pause = max(pause, min(time.Second, retry.Pause(hasty)))
			} else {
				hasty = 0
			}
			if len(rs) < n && pause > 0 {
				retry.Rest(ctx, pause)
			}
			continue
		case ctx.Err() != nil:
			return nil //nolint:nilerr // a poll that the drain cut short is no failure
		case errors.Is(err, broker.ErrClosed), errors.Is(err, broker.ErrNotFound) && !once.Load():
			return err
		}
		if failed++; failed == 3 {
			w.c.Logger.LogAttrs(ctx, slog.LevelError, "onceq: receiving fails; it is tried again", slog.Any("error", err))
		}
		retry.Rest(ctx, retry.Pause(failed))
	}
	return nil
}

// noWait is what an empty receive takes at least if it has waited for a message at all. Some brokers do not, and must not
// be asked without a pause.
const noWait = 10 * time.Millisecond

func (w *Worker) receive(ctx context.Context, n int) (ms []*broker.Message, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = classed(ClassPanic, "onceq: the broker panicked: %v\n%s", v, debug.Stack())
		}
	}()
	return w.c.Broker.Receive(ctx, broker.ReceiveOptions{Max: n, Wait: -1, Visibility: w.c.Visibility})
}

// taken makes the runs of what was received; offer holds them, until their ack or nack is through.
func (w *Worker) taken(f *flow, ms []*broker.Message) []*run {
	if len(ms) == 0 {
		return nil
	}
	rs, now := make([]*run, 0, len(ms)), time.Now()
	for _, m := range ms {
		if m == nil {
			continue
		}
		r := w.p.newRun(f, m, now)
		r.held.Deadline = m.Deadline
		if m.Deadline.IsZero() {
			r.held.Deadline = now.Add(w.c.Visibility)
			r.deliveryEnds = r.held.Deadline
		}
		rs = append(rs, r)
	}
	return rs
}
