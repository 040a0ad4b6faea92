package watermillonceq

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/durations"
	"github.com/onceq/onceq/internal/retry"
	"github.com/onceq/onceq/visibility"
)

// This file owns what a subscription tells its broker of messages: extensions, acks and nacks. The
// manager's goroutines call extend and lost, the carriers of acks and nacks call the others. No
// lock is held: a delivery belongs to the carrier that has it.

// errTotal says that a delivery cannot be held any longer.
var errTotal = errors.New("watermillonceq: the broker holds a delivery no longer than this")

// isLost reports whether an extension's answer is for good.
func isLost(err error) bool {
	return errors.Is(err, broker.ErrReceiptExpired) || errors.Is(err, broker.ErrUnsupported) || errors.Is(err, errTotal)
}

// extend is the Extender of the leases.
func (u *subscription) extend(ctx context.Context, ds []*delivery) error {
	now := time.Now()
	errs := make([]error, len(ds))
	holds := make([]broker.Hold, 0, len(ds))
	at := make([]int, 0, len(ds))
	for i, d := range ds {
		length := u.o.Visibility
		if u.l.MaxTotal > 0 {
			// A second less than what is left, because the broker counts from a moment that nobody
			// here knows.
			length = min(length, u.l.MaxTotal-now.Sub(d.received)-time.Second)
		}
		if length < max(u.l.MinHold, 1) || length < u.o.Visibility && length <= u.leases.Left(&d.Held) {
			errs[i] = errTotal
			continue
		}
		holds, at = append(holds, broker.Hold{Receipt: d.from.Receipt, For: length}), append(at, i)
	}
	if len(holds) == 0 {
		return broker.JoinEntries(errs)
	}
	err := u.b.Extend(ctx, holds)
	for n, i := range at {
		if errs[i] = broker.ErrAt(err, n); errs[i] == nil && holds[n].For < u.o.Visibility {
			errs[i] = errTotal // no further extension follows
		}
	}
	return broker.JoinEntries(errs)
}

// lost is told of a lease that is over, or may be. The handler works on: a claim on the key, where
// there is one, keeps the next delivery from running beside it.
func (u *subscription) lost(d *delivery, err error) {
	text := "onceq: the message's delivery is over, and it will come again"
	if errors.Is(err, visibility.ErrUnanswered) {
		text = "onceq: the message's delivery could not be extended in time, and it may come again"
	}
	go u.o.Logger.Error(text, err, u.fields(d)) // a logger may block
}

// patience is how long an ack or a nack is repeated.
const patience = time.Minute

// ack tells the broker of messages that are done. Their deliveries are held until it has answered,
// because an ack that comes late does nothing.
func (u *subscription) ack(ds []*delivery) {
	u.settle("ack", ds, func(ctx context.Context, ds []*delivery) error {
		rs := make([]broker.Receipt, len(ds))
		for i, d := range ds {
			rs[i] = d.from.Receipt
		}
		return u.b.Ack(ctx, rs)
	})
}

// giveBack lets the broker deliver the messages again, after a delay, and makes room for others.
func (u *subscription) giveBack(delay time.Duration, ds ...*delivery) {
	for _, d := range ds {
		d.delay = min(max(0, delay), u.l.MaxNack)
		<-u.room
	}
	u.nacks.Add(ds...)
}

// nack gives messages back. An extension that landed after a nack would undo it, so none is in
// flight any more.
func (u *subscription) nack(ds []*delivery) {
	leases := make([]*visibility.Held[*delivery], len(ds))
	for i, d := range ds {
		leases[i] = &d.Held
	}
	ctx, end := context.WithTimeout(u.settling, durations.Sum(u.o.CallTimeout, u.o.CallTimeout))
	_ = u.leases.Quiesce(ctx, leases...) // no extension is longer than CallTimeout
	end()
	u.settle("nack", ds, func(ctx context.Context, ds []*delivery) error {
		holds := make([]broker.Hold, len(ds))
		for i, d := range ds {
			holds[i] = broker.Hold{Receipt: d.from.Receipt, For: d.delay}
		}
		return u.b.Nack(ctx, holds)
	})
}

// settle makes the call until each message is settled, or cannot be. One that is given up comes
// again by itself, which is what a nack wants, and what an ack has to bear.
func (u *subscription) settle(what string, ds []*delivery, call func(context.Context, []*delivery) error) {
	left, begin := slices.Clone(ds), time.Now()
	for n := 1; len(left) > 0; n++ {
		ctx, end := context.WithTimeout(u.settling, u.o.CallTimeout)
		err := call(ctx, left)
		end()
		again := left[:0]
		for i, d := range left {
			switch e := broker.ErrAt(err, i); {
			case e == nil:
				u.settled(d)
			case errors.Is(e, broker.ErrReceiptExpired), errors.Is(e, broker.ErrUnsupported), errors.Is(e, broker.ErrClosed), time.Since(begin) > patience, u.isAbandoned():
				u.o.Logger.Error("onceq: the "+what+" did not arrive, and the message may come again", e, u.fields(d))
				u.settled(d)
			default:
				again = append(again, d)
			}
		}
		left = again
		if len(left) > 0 {
			u.rest(retry.Pause(n))
		}
	}
}

func (u *subscription) settled(d *delivery) {
	u.leases.Release(&d.Held)
	u.deliveries.Done()
}

func (u *subscription) isAbandoned() bool {
	select {
	case <-u.abandon:
		return true
	default:
		return false
	}
}

// rest waits, or until nobody waits any more.
func (u *subscription) rest(d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-u.abandon:
	}
}
