package worlds

import (
	"context"
	"errors"
	"iter"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/coretest/rig"
	"github.com/onceq/onceq/internal/faulty"
	"github.com/onceq/onceq/internal/instant"
	"github.com/onceq/onceq/onceqtest"
)

// This file owns a machine: how what runs on it reaches the queue, the store and other queues. A
// worker calls it from many goroutines.

// Machine is what a worker runs on: its receiver, and its way to the store. When it crashes,
// nothing that it asks for is done any more. While the weather lets it stand still, nothing that it
// asks for goes out or comes back.
type Machine struct {
	// Store is the store as the machine reaches it.
	Store dedupe.Store
	// QueueFault says what goes wrong with a call of a queue; nil = nothing does.
	QueueFault faulty.Func
	// MaxNack shortens the queue's own; 0 = it does not.
	MaxNack time.Duration

	name    string
	q       broker.Receiver
	running int // handlers; under the world's lock
	// direct: its store never waits, and its workers have one handler.
	direct bool
	// function: it takes batches.
	function bool
	book     *book         // what is noted of its calls; may be nil
	ahead    time.Duration // by how much its clock is ahead of all others
	weather  *Weather
	dead     atomic.Bool
	stood    atomic.Bool        // it has stood still
	drain    context.CancelFunc // ends the worker that runs on it

	mu    sync.Mutex
	rules []seenRules
}

// seenRules is when a machine has read a version of the operators' rules.
type seenRules struct {
	version int
	at      time.Time
}

var errCrashed = errors.New("this machine is dead")

// NewMachine makes one, on a queue and a store. fault is what goes wrong with calls of the store.
func NewMachine(t testing.TB, q broker.Receiver, st dedupe.Store, w *Weather, fault func(onceqtest.Call) faulty.Faults) *Machine {
	m := &Machine{q: q, weather: w}
	m.Store = &face{m: m, Store: &rig.Store{Store: &view{st, m}, T: t, Fault: func(c onceqtest.Call) faulty.Faults {
		m.Stands()
		fs := faulty.Hang()
		if !m.dead.Load() {
			fs = fault(c)
		}
		if m.direct && rig.Waits(fs) {
			fs = faulty.Err(rig.ErrBoom, len(fs) > 1) // one that is slow, and whose reply is lost
		}
		return fs
	}}}
	return m
}

// Direct makes the machine's store one that never waits. So a worker of one handler has no carriers
// on it: who has a run makes the store's calls. What would be slow, or hang, fails at once.
func (m *Machine) Direct() {
	f := m.Store.(*face)
	f.mark, m.direct = instant.Of(f), true
}

// slots is how many handlers run at once where n may.
func (m *Machine) slots(n int) int {
	if m.direct {
		return 1
	}
	return n
}

// Stands returns when the machine does not stand still.
func (m *Machine) Stands() { m.weather.standStill(m) }

// reach lets a call out, if the machine lives.
func (m *Machine) reach(ctx context.Context, call func() error) error {
	if m.dead.Load() {
		<-ctx.Done()
		return errCrashed
	}
	m.Stands()
	defer m.Stands() // what is answered meanwhile is seen only then
	return call()
}

func (m *Machine) fault(ctx context.Context, op onceqtest.Op, entries int) faulty.Faults {
	if m.QueueFault == nil || ctx.Err() != nil {
		return nil
	}
	return m.QueueFault(ctx, onceqtest.Call{Op: op, Entries: entries})
}

func (m *Machine) Limits() broker.Limits {
	l := m.q.Limits()
	if m.MaxNack > 0 {
		l.MaxNack = min(l.MaxNack, m.MaxNack)
	}
	return l
}

func (m *Machine) Receive(ctx context.Context, o broker.ReceiveOptions) (ms []*broker.Message, err error) {
	err = m.reach(ctx, func() error {
		ms, err = m.fault(ctx, onceqtest.Receive, o.Max).Receiver(m.q).Receive(ctx, o)
		return err
	})
	if m.dead.Load() {
		return nil, errCrashed // what came is in flight, and nobody has it
	}
	for _, x := range ms {
		m.book.received(m, x)
		m.shift(x)
	}
	return ms, err
}

func (m *Machine) Ack(ctx context.Context, rs []broker.Receipt) error {
	return m.reach(ctx, func() error {
		err := m.fault(ctx, onceqtest.Ack, len(rs)).Receiver(m.q).Ack(ctx, rs)
		for _, r := range rs {
			m.book.settled(m, r, "acks it", err)
		}
		return err
	})
}

func (m *Machine) Nack(ctx context.Context, hs []broker.Hold) error {
	return m.reach(ctx, func() error {
		err := m.fault(ctx, onceqtest.Nack, len(hs)).Receiver(m.q).Nack(ctx, hs)
		for _, h := range hs {
			m.book.settled(m, h.Receipt, "gives it back for "+h.For.String(), err)
		}
		return err
	})
}

func (m *Machine) Extend(ctx context.Context, hs []broker.Hold) error {
	return m.reach(ctx, func() error {
		return m.fault(ctx, onceqtest.Extend, len(hs)).Receiver(m.q).Extend(ctx, hs)
	})
}

// Sender is another queue as the machine reaches it.
func (m *Machine) Sender(to broker.Sender, name string) broker.Sender { return &sender{to, m, name} }

type sender struct {
	broker.Sender
	m    *Machine
	name string
}

func (s *sender) Send(ctx context.Context, ms []broker.Outgoing) (ids []string, err error) {
	err = s.m.reach(ctx, func() error {
		ms = s.m.shifted(ms)
		ids, err = s.m.fault(ctx, onceqtest.Send, len(ms)).Sender(s.Sender).Send(ctx, ms)
		for i := range ms {
			s.m.book.sent(s.m, &ms[i], s.name, broker.ErrAt(err, i))
		}
		return err
	})
	return ids, err
}

// face is the store as the machine sees its answers: none while it stands still.
type face struct {
	dedupe.Store
	mark
	m *Machine
}

type mark = instant.Mark

func (f *face) Claim(ctx context.Context, rs []dedupe.ClaimRequest) ([]dedupe.Claim, error) {
	defer f.m.Stands()
	return f.Store.Claim(ctx, rs)
}

func (f *face) Renew(ctx context.Context, rs []dedupe.Renewal) ([]dedupe.Renewed, error) {
	defer f.m.Stands()
	return f.Store.Renew(ctx, rs)
}

func (f *face) Settle(ctx context.Context, ss []dedupe.Settlement) ([]dedupe.Settled, error) {
	defer f.m.Stands()
	return f.Store.Settle(ctx, ss)
}

func (f *face) Get(ctx context.Context, ks []dedupe.Key) ([]*dedupe.Record, error) {
	rs, err := f.Store.Get(ctx, ks)
	f.m.Stands()
	for i, k := range ks {
		if err == nil && k == rulesKey && rs[i] != nil {
			f.m.sawRules(rs[i].StateNo)
		}
	}
	return rs, err
}

func (m *Machine) sawRules(version int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if n := len(m.rules); n == 0 || m.rules[n-1].version < version {
		m.rules = append(m.rules, seenRules{version, time.Now()})
	}
}

// known is since when the machine has known a version of the rules; 0 = it does not.
func (m *Machine) known(version int) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range m.rules {
		if s.version >= version {
			return time.Since(s.at)
		}
	}
	return 0
}

// view is the store with its times by the machine's clock, and with a note of what it answers.
type view struct {
	dedupe.Store
	m *Machine
}

func (v *view) Claim(ctx context.Context, rs []dedupe.ClaimRequest) ([]dedupe.Claim, error) {
	if v.m.ahead != 0 {
		own := rs
		rs = make([]dedupe.ClaimRequest, len(own))
		for i := range own {
			rs[i] = own[i]
			rs[i].Sent = v.m.outside(own[i].Sent)
		}
	}
	cs, err := v.Store.Claim(ctx, rs)
	for i := range cs {
		c := &cs[i]
		v.m.book.claimed(v.m, &rs[i], c)
		c.Created, c.LastEnd, c.Record = v.m.inside(c.Created), v.m.inside(c.LastEnd), v.m.shiftRecord(c.Record)
	}
	return cs, err
}

func (v *view) Renew(ctx context.Context, rs []dedupe.Renewal) ([]dedupe.Renewed, error) {
	as, err := v.Store.Renew(ctx, rs)
	for i := range as {
		v.m.book.renewed(v.m, &rs[i], as[i].Err)
	}
	return as, err
}

func (v *view) Settle(ctx context.Context, ss []dedupe.Settlement) ([]dedupe.Settled, error) {
	as, err := v.Store.Settle(ctx, ss)
	for i := range as {
		v.m.book.ended(v.m, &ss[i], &as[i])
	}
	return as, err
}

func (v *view) Get(ctx context.Context, ks []dedupe.Key) ([]*dedupe.Record, error) {
	rs, err := v.Store.Get(ctx, ks)
	for i := range rs {
		rs[i] = v.m.shiftRecord(rs[i])
	}
	return rs, err
}

func (v *view) List(ctx context.Context, q dedupe.Query) iter.Seq2[*dedupe.Record, error] {
	q.Before, q.LeaseBefore = v.m.outside(q.Before), v.m.outside(q.LeaseBefore)
	return func(yield func(*dedupe.Record, error) bool) {
		for r, err := range v.Store.List(ctx, q) {
			if !yield(v.m.shiftRecord(r), err) {
				return
			}
		}
	}
}
