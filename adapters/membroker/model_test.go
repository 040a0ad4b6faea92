package membroker_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker"
)

// TestModel runs random calls on a queue and on a naive model of it, and wants the same
// answers, in virtual time.
func TestModel(t *testing.T) {
	const runs, steps = 60, 300
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	for run := range runs {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, uint64(run)))
			p := presets[run%len(presets)]
			dead := open(t, membroker.Options{Preset: p})
			o := membroker.Options{Preset: p}
			m := &model{
				r: r, groups: p != membroker.SQSStandard, lenient: p == membroker.SQSStandard || p == membroker.PubSub,
				holdsNack: p != membroker.Memory, queued: map[string]int{}, begun: time.Now(),
			}
			if r.IntN(2) == 0 {
				m.maxReceives = 5
				o.Redrive = &membroker.Redrive{MaxReceives: 5, To: dead.Broker}
			}
			m.q = open(t, o)
			for step := range steps {
				m.step(t)
				if t.Failed() {
					t.Fatalf("seed %d, run %d (%v), step %d", seed, run, p, step)
				}
			}
			dead.depth(int64(m.moved), 0, 0)
		})
	}
}

// model is the queue as a slice in the order of sending.
type model struct {
	q                          queue
	r                          *rand.Rand
	groups, lenient, holdsNack bool
	maxReceives                int
	begun                      time.Time

	messages []*modelMessage
	receipts []*modelReceipt
	// queued says when a group became deliverable, as a number on the same scale as
	// modelMessage.queued.
	queued     map[string]int
	clock      int
	sent       int
	moved      int
	deliveries int
}

type modelMessage struct {
	body, group string
	hidden      bool
	inFlight    bool // else delayed, where hidden
	due         time.Time
	queued      int // when it became visible
	receives    int
	delivery    int
	gone        bool
}

type modelReceipt struct {
	m        *modelMessage
	delivery int
	receipt  broker.Receipt
}

func (m *model) tick() int {
	m.clock++
	return m.clock
}

// settle brings the model up to now: what is due appears in the order of its due time.
func (m *model) settle() {
	now := time.Now()
	var due []*modelMessage
	for _, e := range m.messages {
		if e.hidden && !e.due.After(now) {
			due = append(due, e)
		}
	}
	slices.SortStableFunc(due, func(a, b *modelMessage) int {
		return cmp.Or(a.due.Compare(b.due), cmp.Compare(a.delivery, b.delivery))
	})
	for _, e := range due {
		m.appear(e)
	}
}

func (m *model) appear(e *modelMessage) {
	e.hidden, e.inFlight, e.queued = false, false, m.tick()
	if m.maxReceives > 0 && e.receives >= m.maxReceives {
		m.moved++
		m.remove(e)
		return
	}
	m.regroup()
}

func (m *model) remove(e *modelMessage) {
	e.gone = true
	m.messages = slices.DeleteFunc(m.messages, func(o *modelMessage) bool { return o == e })
	m.regroup()
}

// regroup notes which groups have a visible head, and since when.
func (m *model) regroup() {
	heads := map[string]bool{}
	for _, e := range m.messages {
		if _, seen := heads[e.group]; m.grouped(e) && !seen {
			heads[e.group] = !e.hidden
		}
	}
	for g := range m.queued {
		if !heads[g] {
			delete(m.queued, g)
		}
	}
	// At most one group changes at a time, so the order of this loop is no matter.
	for g, due := range heads {
		if _, ok := m.queued[g]; due && !ok {
			m.queued[g] = m.tick()
		}
	}
}

func (m *model) grouped(e *modelMessage) bool { return m.groups && e.group != "" }

// receive is what a receive of n brings.
func (m *model) receive(n int, d time.Duration) []*modelMessage {
	var out []*modelMessage
	for len(out) < n {
		var next *modelMessage
		at := 0
		held := map[string]bool{}
		for _, e := range m.messages {
			switch {
			case m.grouped(e) && (held[e.group] || e.hidden):
				held[e.group] = true
			case m.grouped(e):
				held[e.group] = true
				if q := m.queued[e.group]; next == nil || q < at {
					next, at = e, q
				}
			case !e.hidden && (next == nil || e.queued < at):
				next, at = e, e.queued
			}
		}
		if next == nil {
			break
		}
		run := []*modelMessage{next}
		if m.grouped(next) {
			run = run[:0]
			for _, e := range m.messages {
				if e.group == next.group {
					if e.hidden {
						break
					}
					run = append(run, e)
				}
			}
		}
		for _, e := range run[:min(len(run), n-len(out))] {
			m.deliveries++
			e.hidden, e.inFlight, e.due, e.delivery = true, true, time.Now().Add(d), m.deliveries
			e.receives++
			out = append(out, e)
		}
		m.regroup()
	}
	return out
}

func (m *model) step(t *testing.T) {
	q := m.q
	m.settle()
	switch k := m.r.IntN(100); {
	case k < 25:
		m.send(t)
	case k < 50:
		o := broker.ReceiveOptions{Max: 1 + m.r.IntN(6), Visibility: time.Duration(10+m.r.IntN(50)) * time.Second}
		want := m.receive(o.Max, o.Visibility)
		got := q.receive(o)
		wanted := make([]string, len(want))
		for i, e := range want {
			wanted[i] = fmt.Sprint(e.body, " ", e.receives)
		}
		for i, g := range got {
			if i >= len(want) {
				break
			}
			receives := g.Attempt
			if receives == 0 {
				receives = want[i].receives
			}
			if s := fmt.Sprint(string(g.Body), " ", receives); s != wanted[i] || !g.Deadline.Equal(want[i].due) {
				t.Errorf("message %d is %s until %v, want %s until %v", i, s, g.Deadline, wanted[i], want[i].due)
			}
			m.receipts = append(m.receipts, &modelReceipt{want[i], want[i].delivery, g.Receipt})
		}
		if len(got) != len(want) {
			t.Errorf("received %q, want %q", bodies(got), wanted)
		}
	case k < 60:
		pass(time.Duration(m.r.IntN(20)) * time.Second)
	default:
		m.settleOne(t, k)
	}
	m.settle()
	var d broker.Depth
	for _, e := range m.messages {
		switch {
		case !e.hidden:
			d.Visible++
		case e.inFlight:
			d.InFlight++
		default:
			d.Delayed++
		}
	}
	if got, err := q.Depth(t.Context()); got != d || err != nil {
		t.Errorf("depth %+v, %v; want %+v", got, err, d)
	}
}

func (m *model) send(t *testing.T) {
	out := make([]broker.Outgoing, 1+m.r.IntN(5))
	for i := range out {
		m.sent++
		o := &out[i]
		o.Body = fmt.Append(nil, m.sent)
		if g := m.r.IntN(6); g > 2 || m.q.Limits().RequireGroup {
			o.Group = fmt.Sprint("g", g)
		}
		if m.r.IntN(4) == 0 && m.q.Limits().MaxDelay > 0 {
			o.Delay = time.Duration(m.r.IntN(60)) * time.Second
		}
		e := &modelMessage{body: string(o.Body), group: o.Group, hidden: o.Delay > 0, due: time.Now().Add(o.Delay), queued: m.tick(), delivery: m.deliveries}
		if e.hidden {
			// Births and deliveries count on one scale where due times are equal.
			m.deliveries++
			e.delivery = m.deliveries
		}
		m.messages = append(m.messages, e)
		m.regroup()
	}
	if _, err := m.q.Send(t.Context(), out); err != nil {
		t.Error(err)
	}
}

// settleOne uses one of the latest receipts, which may be good, late, old or used up.
func (m *model) settleOne(t *testing.T, k int) {
	if len(m.receipts) == 0 {
		return
	}
	r := m.receipts[len(m.receipts)-1-m.r.IntN(min(len(m.receipts), 12))]
	e := r.m
	current := !e.gone && e.inFlight && e.delivery == r.delivery
	lapsed := !e.gone && !e.inFlight && e.delivery == r.delivery
	d := time.Duration(10+m.r.IntN(50)) * time.Second
	var err error
	ok := current || m.lenient && !e.gone
	switch {
	case k < 75:
		err = m.q.Ack(t.Context(), []broker.Receipt{r.receipt})
		ok = ok || e.gone
		if current || lapsed && m.lenient {
			m.remove(e)
		}
	case k < 90:
		if m.r.IntN(2) == 0 {
			d = 0
		}
		err = m.q.Nack(t.Context(), []broker.Hold{{Receipt: r.receipt, For: d}})
		if current && d == 0 {
			m.appear(e)
		} else if current {
			e.due, e.inFlight = time.Now().Add(d), m.holdsNack
		}
		ok = ok || e.gone && !current && m.q.preset == membroker.PubSub
	default:
		err = m.q.Extend(t.Context(), []broker.Hold{{Receipt: r.receipt, For: d}})
		if current {
			e.due = time.Now().Add(d)
		}
		ok = ok || e.gone && m.q.preset == membroker.PubSub
	}
	if (err == nil) != ok {
		t.Errorf("answer %v; want success: %t (current %t, lapsed %t, gone %t)", err, ok, current, lapsed, e.gone)
	}
}
