package onceq_test

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker"
)

// machine is what a worker runs on. When it crashes, nothing that it asks for is done any more.
type machine struct {
	q     *membroker.Broker
	store *store
	dead  atomic.Bool
}

var errCrashed = errors.New("this machine is dead")

// reach lets a call out, if the machine lives.
func (m *machine) reach(ctx context.Context, call func() error) error {
	if m.dead.Load() {
		<-ctx.Done()
		return errCrashed
	}
	return call()
}

func (m *machine) Limits() broker.Limits { return m.q.Limits() }

func (m *machine) Receive(ctx context.Context, o broker.ReceiveOptions) (ms []*broker.Message, err error) {
	err = m.reach(ctx, func() error { ms, err = m.q.Receive(ctx, o); return err })
	if m.dead.Load() {
		return nil, errCrashed // what came is in flight, and nobody has it
	}
	return ms, err
}

func (m *machine) Ack(ctx context.Context, rs []broker.Receipt) error {
	return m.reach(ctx, func() error { return m.q.Ack(ctx, rs) })
}

func (m *machine) Nack(ctx context.Context, hs []broker.Hold) error {
	return m.reach(ctx, func() error { return m.q.Nack(ctx, hs) })
}

func (m *machine) Extend(ctx context.Context, hs []broker.Hold) error {
	return m.reach(ctx, func() error { return m.q.Extend(ctx, hs) })
}

// machine makes one, whose store is the one that all share.
func (s *soak) machine() *machine {
	m := &machine{q: s.q, store: &store{Store: s.st.Store, t: s.t}}
	m.store.fault = func(c storeCall) storeFault {
		if m.dead.Load() {
			return storeFault{hang: true}
		}
		return s.storeFault(c)
	}
	return m
}
