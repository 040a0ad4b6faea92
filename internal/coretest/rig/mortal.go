package rig

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
)

// Mortal cuts a worker off from its store and its queue, as a crash does.
type Mortal struct {
	dedupe.Store
	Dead *atomic.Bool
}

func (m Mortal) call() error {
	if m.Dead.Load() {
		return ErrBoom
	}
	return nil
}

func (m Mortal) Claim(ctx context.Context, rs []dedupe.ClaimRequest) ([]dedupe.Claim, error) {
	if err := m.call(); err != nil {
		return nil, err
	}
	Takes(5 * time.Millisecond) // as a real store, so that the lease ends after the delivery
	return m.Store.Claim(ctx, rs)
}

func (m Mortal) Renew(ctx context.Context, rs []dedupe.Renewal) ([]dedupe.Renewed, error) {
	if err := m.call(); err != nil {
		return nil, err
	}
	return m.Store.Renew(ctx, rs)
}

func (m Mortal) Settle(ctx context.Context, ss []dedupe.Settlement) ([]dedupe.Settled, error) {
	if err := m.call(); err != nil {
		return nil, err
	}
	return m.Store.Settle(ctx, ss)
}

// MortalQueue is the queue's part of it.
type MortalQueue struct {
	broker.Receiver
	Mortal Mortal
}

func (q MortalQueue) Receive(ctx context.Context, o broker.ReceiveOptions) ([]*broker.Message, error) {
	if q.Mortal.Dead.Load() {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	o.Wait = -1 // a poll that waits would outlive the crash
	ms, err := q.Receiver.Receive(ctx, o)
	if len(ms) == 0 && err == nil {
		Takes(100 * time.Millisecond)
	}
	return ms, err
}

func (q MortalQueue) Extend(ctx context.Context, hs []broker.Hold) error {
	if err := q.Mortal.call(); err != nil {
		return err
	}
	return q.Receiver.Extend(ctx, hs)
}

func (q MortalQueue) Ack(ctx context.Context, rs []broker.Receipt) error {
	if err := q.Mortal.call(); err != nil {
		return err
	}
	return q.Receiver.Ack(ctx, rs)
}

func (q MortalQueue) Nack(ctx context.Context, hs []broker.Hold) error {
	if err := q.Mortal.call(); err != nil {
		return err
	}
	return q.Receiver.Nack(ctx, hs)
}

// Beside runs another worker until the end of the bubble.
func (r *Rig) Beside(set func(c *Setup)) (stop func()) {
	w, done := r.Worker(set), make(chan error, 1)
	ctx, cancel := context.WithCancel(r.Context())
	go func() { done <- w.Run(ctx) }()
	return func() {
		cancel()
		<-done
	}
}
