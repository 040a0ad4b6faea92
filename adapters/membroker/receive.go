package membroker

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/onceq/onceq/broker"
)

// Receive brings up to o.Max messages that are visible, or waits for the first. When as many
// messages are in flight as the preset allows, it brings nothing. On SQSStandard a receive with
// Wait 0 is then answered ErrThrottled.
func (b *Broker) Receive(ctx context.Context, o broker.ReceiveOptions) ([]*broker.Message, error) {
	if err := b.complete(&o); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, b.wrap("receive", err)
	}
	ms, err := b.receive(ctx, &o)
	if err != nil {
		return nil, err
	}
	return handOut(ms), nil
}

// complete checks o and puts the defaults in.
func (b *Broker) complete(o *broker.ReceiveOptions) error {
	l := &b.rules.limits
	if o.Max < 1 || o.Max > l.ReceiveBatch {
		return b.wrap("receive", unsupported("a Max of %d; it is within 1 and %d", o.Max, l.ReceiveBatch))
	}
	switch {
	case o.Wait < 0:
		o.Wait = l.MaxWait
	case o.Wait > l.MaxWait:
		return b.wrap("receive", unsupported("a Wait of %v; it is at most %v", o.Wait, l.MaxWait))
	}
	switch {
	case o.Visibility == 0:
		o.Visibility = b.visibility
	case o.Visibility < l.MinHold || o.Visibility > l.MaxHold:
		return b.wrap("receive", unsupported("a Visibility of %v; it is within %v and %v", o.Visibility, l.MinHold, l.MaxHold))
	}
	return nil
}

// receive gives messages that still share their memory with the queue.
func (b *Broker) receive(ctx context.Context, o *broker.ReceiveOptions) ([]broker.Message, error) {
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return nil, b.wrap("receive", broker.ErrClosed)
	}
	now := b.begin()
	if b.rules.throttles && o.Wait == 0 && b.queue.inFlightN >= b.rules.maxInFlight {
		b.end(now)
		b.mu.Unlock()
		return nil, b.wrap("receive", fmt.Errorf("%w: OverLimit: %d messages are in flight", broker.ErrThrottled, b.rules.maxInFlight))
	}
	// Whatever became visible in begin belongs to those who wait already.
	b.serve(now)
	if ms := b.deliver(o.Max, o.Visibility, now); ms != nil || o.Wait == 0 {
		b.end(now)
		b.mu.Unlock()
		return ms, nil
	}
	w := &waiter{max: o.Max, visibility: o.Visibility, done: make(chan struct{})}
	b.waiters.push(w)
	b.end(now)
	b.mu.Unlock()
	return b.await(ctx, w, o.Wait)
}

// await waits until w was served, its time is up or ctx ends. It returns what was handed to w in
// each case, so that nothing is stranded.
func (b *Broker) await(ctx context.Context, w *waiter, d time.Duration) ([]broker.Message, error) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-w.done:
	case <-timer.C:
	case <-ctx.Done():
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.waiters.remove(w)
	switch {
	case w.ms != nil:
		return w.ms, nil
	case b.closed:
		return nil, b.wrap("receive", broker.ErrClosed)
	case ctx.Err() != nil:
		return nil, b.wrap("receive", ctx.Err())
	}
	return nil, nil
}

// serve hands the visible messages to the receives that wait, and wakes no others.
func (b *Broker) serve(now int64) {
	for w := b.waiters.first; w != nil; w = b.waiters.first {
		ms := b.deliver(w.max, w.visibility, now)
		if ms == nil {
			return
		}
		b.waiters.remove(w)
		w.ms = ms
		close(w.done)
	}
}

// deliver begins up to n deliveries; nil when there is nothing to deliver.
func (b *Broker) deliver(n int, visibility time.Duration, now int64) []broker.Message {
	q := &b.queue
	es := q.next(b.taken[:0], min(n, b.rules.maxInFlight-q.inFlightN))
	if len(es) == 0 {
		return nil
	}
	due := now + int64(visibility)
	ms := make([]broker.Message, len(es))
	var receipts strings.Builder
	receipts.Grow(len(es) * receiptLen)
	var buf [receiptLen]byte
	for i, e := range es {
		e.receives++
		e.serial = q.nextSerial()
		e.received = now
		q.hide(e, inFlight, due)
		receipts.Write(b.appendReceipt(buf[:0], e))
		m := &ms[i]
		m.ID, m.Body, m.Attributes, m.Meta, m.Group = e.id, e.body, e.attributes, e.meta, e.groupName
		m.Published, m.Deadline = b.time(e.published), b.time(due)
		if b.rules.limits.Attempts {
			m.Attempt = e.receives
		}
	}
	for i := range ms {
		ms[i].Receipt = broker.Receipt(receipts.String()[i*receiptLen : (i+1)*receiptLen])
	}
	clear(es)
	b.taken = es
	return ms
}

func (b *Broker) time(t int64) time.Time { return b.base.Add(time.Duration(t)) }
