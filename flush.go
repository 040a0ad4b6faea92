package onceq

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/engine"
	"github.com/onceq/onceq/internal/retry"
)

// ack removes finished messages from the queue. Here alone are messages of a Worker acked. An ack
// proves nothing, and need not succeed, because a message that comes again finds its key done.
func (w *Worker) ack(rs []*run) {
	w.flush(rs, func(ctx context.Context, rs []*run) error {
		receipts := make([]broker.Receipt, len(rs))
		for i, r := range rs {
			receipts[i] = r.Receipt()
		}
		return w.queue.Ack(ctx, receipts)
	}, w.acks.Add)
}

// nack gives messages back.
func (w *Worker) nack(rs []*run) {
	w.flush(rs, func(ctx context.Context, rs []*run) error {
		holds, now := make([]broker.Hold, len(rs)), time.Now()
		for i, r := range rs {
			holds[i] = broker.Hold{Receipt: r.Receipt(), For: max(0, min(r.Verdict.Delay, w.l.MaxNack, w.p.e.TotalLeft(r, now)))}
		}
		return w.queue.Nack(ctx, holds)
	}, w.nacks.Add)
}

// flush sends a batch when no beat of its messages is in flight any more, because a beat that came
// after a nack would undo it. What fails for now is held, and sent again. What fails for good is
// left to its timeout.
func (w *Worker) flush(rs []*run, send func(context.Context, []*run) error, again func(...*run)) {
	ctx := engine.CallContext(context.Background(), w.p.c.CallTimeout)
	if err := w.p.e.Quiesce(ctx, rs); err != nil {
		ctx.Close()
		ctx = engine.CallContext(context.Background(), w.p.c.CallTimeout)
	}
	_, err := engine.Guard(func() (struct{}, error) { return struct{}{}, send(ctx, rs) })
	ctx.Close()
	if err == nil {
		for len(rs) > 0 { // by flow, because runs of an earlier, abandoned Run may be among them
			n := 1
			for n < len(rs) && rs[n].Flow() == rs[0].Flow() {
				n++
			}
			rs[0].Flow().Gone(rs[:n]...)
			rs = rs[n:]
		}
		return
	}
	for i, r := range rs {
		e := broker.ErrAt(err, i)
		if e != nil && w.retries(r, e) {
			time.AfterFunc(retry.Pause(r.Tries()), func() { again(r) })
			continue
		}
		r.Flow().Gone(r)
	}
}

// retries reports whether a failed ack or nack is worth another try, and holds the message for it.
func (w *Worker) retries(r *run, err error) bool {
	if errors.Is(err, broker.ErrReceiptExpired) || errors.Is(err, broker.ErrClosed) || errors.Is(err, broker.ErrNotFound) {
		return false
	}
	if errors.Is(err, broker.ErrUnsupported) || !r.Repeats(w.p.c.SettleTimeout) {
		w.p.log.LogAttrs(r.Flow().Terms.Base, slog.LevelWarn, fmt.Sprintf("onceq: %v failed; the message will be delivered again", Action(r.Action)),
			slog.String("job", r.Name()), slog.Any("error", err))
		return false
	}
	w.p.e.HoldAgain(r)
	return true
}
