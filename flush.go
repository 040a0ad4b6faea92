package onceq

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/retry"
)

// ack removes finished messages from the queue. It proves nothing and need not succeed: a message that
// comes again finds its key done.
func (w *Worker) ack(rs []*run) {
	w.flush(rs, func(ctx context.Context, rs []*run) error {
		receipts := make([]broker.Receipt, len(rs))
		for i, r := range rs {
			receipts[i] = r.currentReceipt()
		}
		return w.c.Broker.Ack(ctx, receipts)
	}, w.acks.Add)
}

// nack gives messages back.
func (w *Worker) nack(rs []*run) {
	w.flush(rs, func(ctx context.Context, rs []*run) error {
		holds, now := make([]broker.Hold, len(rs)), time.Now()
		for i, r := range rs {
			holds[i] = broker.Hold{Receipt: r.currentReceipt(), For: max(0, min(r.verdict.Delay, w.l.MaxNack, w.p.totalLeft(r, now)))}
		}
		return w.c.Broker.Nack(ctx, holds)
	}, w.nacks.Add)
}

// flush sends a batch when no beat of its messages is in flight any more: a beat that came after a nack
// would undo it. What fails in passing is held on and sent again; what fails for good is left to its
// timeout.
func (w *Worker) flush(rs []*run, send func(context.Context, []*run) error, again func(...*run)) {
	ctx := callContext(context.Background(), w.c.CallTimeout)
	if err := w.p.quiesce(ctx, rs); err != nil {
		ctx.close()
		ctx = callContext(context.Background(), w.c.CallTimeout)
	}
	_, err := guard2(func() (struct{}, error) { return struct{}{}, send(ctx, rs) })
	ctx.close()
	if err == nil {
		for len(rs) > 0 { // those of an earlier, abandoned Run may be among them
			n := 1
			for n < len(rs) && rs[n].f == rs[0].f {
				n++
			}
			rs[0].f.gone(rs[:n]...)
			rs = rs[n:]
		}
		return
	}
	for i, r := range rs {
		e := broker.ErrAt(err, i)
		if e != nil && w.retries(r, e) {
			time.AfterFunc(retry.Pause(int(r.tries)), func() { again(r) })
			continue
		}
		r.f.gone(r)
	}
}

// retries tells whether a failed ack or nack is worth another try, and holds the message for it.
func (w *Worker) retries(r *run, err error) bool {
	if errors.Is(err, broker.ErrReceiptExpired) || errors.Is(err, broker.ErrClosed) || errors.Is(err, broker.ErrNotFound) {
		return false
	}
	if errors.Is(err, broker.ErrUnsupported) || !r.repeats(w.c.SettleTimeout) {
		w.c.Logger.LogAttrs(r.f.t.base, slog.LevelWarn, fmt.Sprintf("onceq: %v failed; the message will be delivered again", r.action),
			slog.String("job", r.name()), slog.Any("error", err))
		return false
	}
	w.p.hold(r)
	return true
}
