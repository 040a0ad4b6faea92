package visibility

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"

	"github.com/onceq/onceq/broker"
)

// This file owns the calls of the Extender: which beats go out together, and what an answer does to
// a lease. launch starts the callers, at most Options.MaxCalls goroutines at once. Each makes calls
// until no beat waits. m.mu guards the leases; Extender and OnLost are called without it.

// errNoAnswer is the answer for a lease where the Extender's own says nothing of it.
var errNoAnswer = errors.New("visibility: the Extender did not answer")

// flight is the beats of one call.
type flight[L any] struct {
	hs   []*Held[L]
	ls   []L
	sent moment
}

// loss is the news that a lease is lost.
type loss[L any] struct {
	l   L
	err error
}

// take takes the most urgent beats that wait, for one call. It is called with the lock held.
func (m *Manager[L]) take() flight[L] {
	n := min(m.waiting.Len(), m.o.MaxBatch)
	if n == 0 {
		return flight[L]{}
	}
	f := flight[L]{hs: make([]*Held[L], n), ls: make([]L, n), sent: m.now()}
	for i := range n {
		h := m.waiting.First().Item
		m.waiting.Remove(&h.place[byUrgency])
		h.flying = true
		f.hs[i], f.ls[i] = h, h.Lease
	}
	return f
}

// caller makes one call after another, as long as beats wait.
func (m *Manager[L]) caller(f flight[L]) {
	defer func() {
		// An Extender that ends its goroutine leaves a flight behind.
		if len(f.hs) == 0 {
			return
		}
		if f, _ = m.land(f, errNoAnswer); len(f.hs) > 0 {
			go m.caller(f)
		}
	}()
	for len(f.hs) > 0 {
		err := m.extend(f.ls)
		var losses []loss[L]
		f, losses = m.land(f, err)
		for _, l := range losses {
			m.o.OnLost(l.l, l.err)
		}
	}
}

// extend calls the Extender. A panic becomes an error, because the leases of other jobs are in the
// same batch.
func (m *Manager[L]) extend(ls []L) (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), m.o.CallTimeout)
	defer cancel()
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("visibility: the Extender panicked: %v\n%s", v, debug.Stack())
		}
	}()
	return m.x(ctx, ls)
}

// land applies the answers to a flight. It returns the caller's next one, which is empty when
// nothing waits, and the leases that are lost.
func (m *Manager[L]) land(f flight[L], err error) (next flight[L], losses []loss[L]) {
	answers := m.answers(err, len(f.hs))
	m.mu.Lock()
	defer m.mu.Unlock()
	now, beat := m.now(), m.jittered()
	for i, h := range f.hs {
		stale := h.stale
		h.flying, h.stale = false, false
		if !h.held() {
			continue
		}
		if !stale {
			if lost, why := m.answer(h, answers[i], f.sent, now, beat); lost {
				m.release(f.hs[i : i+1])
				if why != nil {
					losses = append(losses, loss[L]{h.Lease, why})
				}
				continue
			}
		}
		m.leases.Fix(&h.place[byDue], m.due(h))
	}
	if m.landed != nil {
		close(m.landed)
		m.landed = nil
	}
	m.arm()
	if next = m.take(); len(next.hs) == 0 {
		m.calls--
	}
	return next, losses
}

// answer is what an Extender said of one lease.
type answer struct {
	err   error
	later bool
	lost  bool
}

// answers takes an Extender's answer apart. Where it is too short for an entry, or an entry's is a
// batch's, it says nothing of that entry, whatever it says of the others.
func (m *Manager[L]) answers(err error, n int) []answer {
	as := make([]answer, n)
	if err == nil {
		return as
	}
	for i := range as {
		a := broker.ErrAt(err, i)
		if _, nested := errors.AsType[*broker.BatchError](a); nested {
			a = errNoAnswer
		}
		as[i] = answer{err: a, later: errors.Is(a, ErrLater)}
		as[i].lost = a != nil && !as[i].later && m.o.IsLost(a)
	}
	return as
}

// answer applies the answer to one lease's beat. It reports whether the lease is lost, and what its
// holder is to be told then. That is nil where the holder has been told already.
func (m *Manager[L]) answer(h *Held[L], a answer, sent, now moment, beat int64) (lost bool, why error) {
	switch {
	case a.lost:
		return true, a.err
	case !m.o.Revives && h.deadline.reached(now, 0):
		if h.told() {
			return true, nil
		}
		return true, fmt.Errorf("%w: the answer came after it", ErrUnanswered)
	case a.err == nil && !m.prolong(h, sent.plus(m.o.Timeout), now):
		h.next = now.mono
		return false, nil
	}
	if a.err != nil && !a.later {
		h.tries = min(h.tries+1, 3)
		h.next = now.mono + m.backoff(h.tries)
		return false, nil // it is tried again; only the deadline ends a hold
	}
	h.tries = 0
	h.next = sent.mono + beat
	return false, nil
}

// prolong moves the deadline, never back. It reports false where the answer took so long that the
// new deadline is over as well. Such an answer ends no outage.
func (m *Manager[L]) prolong(h *Held[L], to, now moment) bool {
	to = moment{max(to.mono, h.deadline.mono), max(to.wall, h.deadline.wall)}
	if to.reached(now, 0) {
		return false
	}
	h.until(to, now, m.o.Margin)
	return true
}

// backoff is the pause after a beat that failed: an eighth of the interval, doubled up to a half of
// it.
func (m *Manager[L]) backoff(tries uint8) int64 {
	return int64(m.o.Interval/8) << (tries - 1)
}
