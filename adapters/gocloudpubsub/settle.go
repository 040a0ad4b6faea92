package gocloudpubsub

import (
	"context"
	"errors"
	"time"

	"github.com/onceq/onceq/broker"
)

// This file owns acks, nacks and extensions: which go past gocloud and which through it. A worker's
// carriers and dlq call them, from many goroutines. b.mu guards the ledger; a settling belongs to
// one call.

// Ack ends the messages. Without [Options].Queue success says that gocloud has taken the acks and
// sends them in the background; after the Deadline it is ErrReceiptExpired. One that fails ends
// gocloud's subscription, which Receive then opens again; its message comes again.
func (b *Broker) Ack(ctx context.Context, rs []broker.Receipt) error {
	if len(rs) == 0 {
		return nil
	}
	if err := b.check(callAck, len(rs), b.Limits().SettleBatch); err != nil {
		return err
	}
	hs := make([]broker.Hold, len(rs))
	for i, r := range rs {
		hs[i].Receipt = r
	}
	if b.service == nil || b.service.ack == nil {
		return b.byGocloud(ctx, callAck, hs)
	}
	return b.byService(ctx, callAck, hs, 0, 0, func(ctx context.Context, ds []*delivery, _ []time.Duration) error {
		return b.service.ack(ctx, ds)
	})
}

// Nack gives the messages back after their delay, 0 to Limits.MaxNack. Without [Options].Queue that
// is 0, and gocloud nacks them in the background: SQS's driver then shows them after a second.
func (b *Broker) Nack(ctx context.Context, hs []broker.Hold) error {
	if len(hs) == 0 {
		return nil
	}
	if err := b.check(callNack, len(hs), b.Limits().SettleBatch); err != nil {
		return err
	}
	return b.nack(ctx, hs)
}

func (b *Broker) nack(ctx context.Context, hs []broker.Hold) error {
	if !b.nacks() {
		return b.byGocloud(ctx, callNack, hs)
	}
	return b.byService(ctx, callNack, hs, 0, b.limits.MaxNack, b.service.hold)
}

// Extend hides the messages for their time from now, Limits.MinHold to MaxHold. It is answered
// ErrUnsupported where neither [Options].Queue nor Extender is set.
func (b *Broker) Extend(ctx context.Context, hs []broker.Hold) error {
	if err := b.check(callExtend, len(hs), b.Limits().SettleBatch); err != nil {
		return err
	}
	if b.service == nil {
		return b.wrap(callExtend, unsupported("gocloud has no extensions; see Options.Queue and Options.Extender"))
	}
	if len(hs) == 0 {
		return nil
	}
	return b.byService(ctx, callExtend, hs, b.limits.MinHold, b.limits.MaxHold, b.service.hold)
}

// nacks reports whether the service itself gives messages back.
func (b *Broker) nacks() bool { return b.service != nil && b.service.nacks }

// byGocloud hands acks or nacks to gocloud.
func (b *Broker) byGocloud(ctx context.Context, call string, hs []broker.Hold) error {
	if err := ctx.Err(); err != nil {
		return b.wrap(call, err)
	}
	errs := make([]error, len(hs))
	now := time.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, h := range hs {
		d := b.ledger.of[h.Receipt]
		switch {
		case call == callNack && h.For != 0:
			errs[i] = b.wrap(call, unsupported("a delay of %v; gocloud's nacks have none", h.For))
			continue
		case d == nil:
			errs[i] = b.wrap(call, expired("it is settled, or was never given out"))
			continue
		case !now.Before(d.until):
			// gocloud would say yes, and the message may come again before its ack is sent.
			silence(d.m)
			errs[i] = b.wrap(call, expired("its deadline has passed"))
		case call == callAck:
			d.m.Ack() // neither waits: they go into a list
			b.stats.Acked++
		default:
			d.m.Nack()
		}
		b.ledger.leave(h.Receipt)
		b.endIfIdle(d.from)
	}
	return broker.JoinEntries(errs)
}

// byService settles or extends past gocloud those entries whose time is within the bounds.
func (b *Broker) byService(ctx context.Context, call string, hs []broker.Hold, least, most time.Duration, do func(context.Context, []*delivery, []time.Duration) error) error {
	caller := ctx
	ctx, end, err := b.begin(ctx, call)
	if err != nil {
		return err
	}
	defer end()
	errs := make([]error, len(hs))
	at := make([]int, 0, len(hs))
	ds := make([]*delivery, 0, len(hs))
	times := make([]time.Duration, 0, len(hs))
	twin := make(map[*delivery]bool, len(hs))
	now := time.Now()
	b.mu.Lock()
	for i, h := range hs {
		d := b.ledger.of[h.Receipt]
		switch {
		case h.For < least || most > 0 && h.For > most:
			errs[i] = b.wrap(call, unsupported("%v; it is within %v and %v", h.For, least, most))
		case d == nil:
			errs[i] = b.wrap(call, expired("it is settled, or was never given out"))
		case twin[d]:
			errs[i] = b.wrap(call, expired("it comes twice"))
		case call == callExtend && !now.Before(d.until):
			errs[i] = b.wrap(call, expired("its deadline has passed"))
		default:
			twin[d] = true
			at, ds, times = append(at, i), append(ds, d), append(times, h.For)
		}
	}
	b.mu.Unlock()
	if len(ds) == 0 {
		return broker.JoinEntries(errs)
	}
	answer := do(ctx, ds, times)
	b.mu.Lock()
	defer b.mu.Unlock()
	for n, i := range at {
		err, d := broker.ErrAt(answer, n), ds[n]
		switch {
		case err != nil:
			errs[i] = b.failed(caller, call, err)
			if call != callExtend && errors.Is(err, broker.ErrReceiptExpired) {
				b.settled(hs[i].Receipt, d)
			}
		case call == callExtend:
			d.until = now.Add(times[n])
		default:
			if call == callAck {
				b.stats.Acked++
			}
			b.settled(hs[i].Receipt, d)
		}
	}
	return broker.JoinEntries(errs)
}

// settled forgets what was settled past gocloud. b.mu is held.
func (b *Broker) settled(r broker.Receipt, d *delivery) {
	if b.ledger.of[r] == nil {
		return // a call at the same time was faster
	}
	silence(d.m)
	b.ledger.leave(r)
	b.endIfIdle(d.from)
}
