package outages

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/coretest/rig"
	"github.com/onceq/onceq/internal/faulty"
	"github.com/onceq/onceq/onceqtest"
)

// machine is what a worker runs on. When it crashes, nothing that it asks for is done any more.
type machine struct {
	q      *faulty.Broker
	store  *rig.Store
	dead   atomic.Bool
	stands func()             // returns when the machine does not stand still
	drain  context.CancelFunc // ends the worker that runs on it
}

var errCrashed = errors.New("this machine is dead")

// reach lets a call out, if the machine lives.
func (m *machine) reach(ctx context.Context, call func() error) error {
	if m.dead.Load() {
		<-ctx.Done()
		return errCrashed
	}
	m.stands()
	defer m.stands() // what is answered meanwhile is seen only then
	return call()
}

// newMachine makes one. While the weather lets it stand still, nothing that it asks for goes out or
// comes back.
func newMachine(q *faulty.Broker, st *rig.Store, w *weather, fault func(onceqtest.Call) faulty.Faults) *machine {
	m := &machine{q: q, store: &rig.Store{Store: st.Store, T: st.T}}
	m.stands = func() { w.standStill(m) }
	m.store.Fault = func(c onceqtest.Call) faulty.Faults {
		m.stands()
		if m.dead.Load() {
			return faulty.Hang()
		}
		return fault(c)
	}
	return m
}

type machineKey struct{}

// context is that of a worker on this machine, whose handlers find it there.
func (m *machine) context(ctx context.Context) context.Context {
	return context.WithValue(ctx, machineKey{}, m)
}

// hostOf is the machine that a handler runs on.
func hostOf(ctx context.Context) *machine { return ctx.Value(machineKey{}).(*machine) }

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
func (s *soak) machine() *machine { return newMachine(s.q, s.st, &s.weather, s.storeFault) }
