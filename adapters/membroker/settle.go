package membroker

import (
	"context"
	"time"

	"github.com/onceq/onceq/broker"
)

// Ack removes the messages. An ack that comes late or is repeated is answered as the
// package's table says.
func (b *Broker) Ack(ctx context.Context, rs []broker.Receipt) error {
	return b.settle(ctx, "ack", len(rs), func(i int, _ int64) error { return b.ack(rs[i]) })
}

// Nack gives the messages back after their delay, 0..Limits.MaxNack. On the SQS presets the
// delay also ends within MaxTotal of the receive.
func (b *Broker) Nack(ctx context.Context, hs []broker.Hold) error {
	most := b.rules.limits.MaxNack
	return b.settle(ctx, "nack", len(hs), func(i int, now int64) error {
		if d := hs[i].For; d < 0 || d > most {
			return unsupported("a delay of %v; it is within 0 and %v", d, most)
		}
		return b.nack(hs[i], now)
	})
}

// Extend hides the messages for their time from now, which may be shorter than what was left. A
// time beyond what is left of Limits.MaxTotal is answered ErrUnsupported, not clamped.
func (b *Broker) Extend(ctx context.Context, hs []broker.Hold) error {
	l := &b.rules.limits
	return b.settle(ctx, "extend", len(hs), func(i int, now int64) error {
		if d := hs[i].For; d < l.MinHold || d > l.MaxHold {
			return unsupported("%v; an extension is within %v and %v", d, l.MinHold, l.MaxHold)
		}
		return b.extend(hs[i], now)
	})
}

// settle runs a batch: apply is called for each entry, under the lock.
func (b *Broker) settle(ctx context.Context, op string, n int, apply func(i int, now int64) error) error {
	if n == 0 {
		return nil
	}
	if err := b.checkBatch(op, n, b.rules.limits.SettleBatch); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return b.wrap(op, err)
	}
	var errs []error
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return b.wrap(op, broker.ErrClosed)
	}
	now := b.begin()
	for i := range n {
		if err := apply(i, now); err != nil {
			errs = b.failEntry(errs, n, i, op, err)
		}
	}
	b.end(now)
	b.mu.Unlock()
	return broker.JoinEntries(errs)
}

// failEntry notes the error of entry i of n.
func (b *Broker) failEntry(errs []error, n, i int, op string, err error) []error {
	if errs == nil {
		errs = make([]error, n)
	}
	errs[i] = b.wrap(op, err)
	return errs
}

func (b *Broker) ack(r broker.Receipt) error {
	e, s := b.find(r)
	switch {
	case s == gone:
		// Repeating an ack whose reply was lost must succeed.
		return nil
	case s == current, s == lapsed && b.rules.lenient:
		b.queue.remove(e)
		return nil
	case s == old && b.rules.lenient:
		return nil
	}
	return broker.ErrReceiptExpired
}

func (b *Broker) nack(h broker.Hold, now int64) error {
	e, s := b.find(h.Receipt)
	if s != current {
		return b.late(s)
	}
	if err := b.withinTotal(e, now, h.For); err != nil {
		return err
	}
	if b.rules.holdsNack && h.For > 0 {
		b.queue.hidden.reset(e.at, now+int64(h.For))
		return nil
	}
	b.queue.unhide(e)
	if h.For == 0 {
		b.reappear(e, now)
		return nil
	}
	b.queue.hide(e, delayed, now+int64(h.For))
	return nil
}

func (b *Broker) extend(h broker.Hold, now int64) error {
	e, s := b.find(h.Receipt)
	if s != current {
		return b.late(s)
	}
	if err := b.withinTotal(e, now, h.For); err != nil {
		return err
	}
	b.queue.hidden.reset(e.at, now+int64(h.For))
	return nil
}

// late answers a nack or an extension whose delivery has ended.
func (b *Broker) late(s standing) error {
	if b.rules.lenient && (s == lapsed || s == old || s == gone && b.preset == PubSub) {
		return nil
	}
	return broker.ErrReceiptExpired
}

func (b *Broker) withinTotal(e *entry, now int64, d time.Duration) error {
	most := b.rules.limits.MaxTotal
	if held := time.Duration(now - e.received); most > 0 && held+d > most {
		return unsupported("%v more; of the %v that a delivery can be held, %v are left", d, most, most-held)
	}
	return nil
}
