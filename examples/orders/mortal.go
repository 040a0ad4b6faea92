package main

import (
	"context"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
)

// mortalQueue is a queue as one process sees it.
type mortalQueue struct {
	broker.Broker
	p *process
	n *counts
}

func (q mortalQueue) Receive(ctx context.Context, o broker.ReceiveOptions) ([]*broker.Message, error) {
	ctx, cancel := q.p.alive(ctx)
	defer cancel()
	after := nowhere
	ms, err := through(q.p, nowhere, nowhere, func() ([]*broker.Message, error) {
		ms, err := q.Broker.Receive(ctx, o)
		q.n.receives.Add(int64(len(ms)))
		if len(ms) > 0 {
			after = afterReceive
		}
		return ms, err
	})
	if !q.p.survives(after) {
		return nil, errKilled
	}
	return ms, err
}

func (q mortalQueue) Ack(ctx context.Context, rs []broker.Receipt) error {
	return q.settle(beforeAck, afterAck, len(rs), func() error { return q.Broker.Ack(ctx, rs) }, func(n int) {
		q.p.plan.progress(n)
	})
}

func (q mortalQueue) Nack(ctx context.Context, hs []broker.Hold) error {
	return q.settle(nowhere, nowhere, len(hs), func() error { return q.Broker.Nack(ctx, hs) }, func(int) {})
}

func (q mortalQueue) Extend(ctx context.Context, hs []broker.Hold) error {
	return q.settle(nowhere, nowhere, len(hs), func() error { return q.Broker.Extend(ctx, hs) }, func(n int) {
		q.n.beats.Add(int64(n))
	})
}

func (q mortalQueue) Send(ctx context.Context, ms []broker.Outgoing) ([]string, error) {
	return through(q.p, beforeLetter, afterLetter, func() ([]string, error) { return q.Broker.Send(ctx, ms) })
}

// settle makes a call for n entries and tells how many of them were applied.
func (q mortalQueue) settle(before, after point, n int, call func() error, applied func(int)) error {
	_, err := through(q.p, before, after, func() (struct{}, error) {
		err := call()
		ok := 0
		for i := range n {
			if broker.ErrAt(err, i) == nil {
				ok++
			}
		}
		applied(ok)
		return struct{}{}, err
	})
	return err
}

// mortalStore is the store as one process sees it.
type mortalStore struct {
	dedupe.Store
	p *process
}

func (s mortalStore) Claim(ctx context.Context, rs []dedupe.ClaimRequest) ([]dedupe.Claim, error) {
	return through(s.p, beforeClaim, afterClaim, func() ([]dedupe.Claim, error) { return s.Store.Claim(ctx, rs) })
}

func (s mortalStore) Renew(ctx context.Context, rs []dedupe.Renewal) ([]dedupe.Renewed, error) {
	return through(s.p, nowhere, nowhere, func() ([]dedupe.Renewed, error) { return s.Store.Renew(ctx, rs) })
}

func (s mortalStore) Settle(ctx context.Context, ss []dedupe.Settlement) ([]dedupe.Settled, error) {
	return through(s.p, beforeSettle, afterSettle, func() ([]dedupe.Settled, error) { return s.Store.Settle(ctx, ss) })
}
