package visibility

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"

	"github.com/onceq/onceq/broker"
)

// tick looks at every lease that is due, and starts the beats.
func (m *Manager[L]) tick() {
	var timeouts, unanswered []L
	var batch []*Held[L]
	m.mu.Lock()
	m.wakes = never
	now := m.now()
	slack := int64(m.o.Interval / 8)
	for len(m.leases) > 0 && m.leases[0].due <= now.mono {
		m.look(m.leases[0], now, now.mono, &timeouts, &unanswered, &batch)
	}
	if len(batch) > 0 {
		// What is due soon goes along, so that the calls are full.
		for len(m.leases) > 0 && m.leases[0].due <= now.mono+slack && m.leases[0].due == m.leases[0].next {
			m.look(m.leases[0], now, now.mono+slack, &timeouts, &unanswered, &batch)
		}
	}
	m.arm()
	m.mu.Unlock()

	for _, l := range timeouts {
		m.o.OnTimeout(l)
	}
	for _, l := range unanswered {
		m.o.OnLost(l, ErrUnanswered)
	}
	m.send(batch)
}

// look does what is due for h, by until for its beat; called with the lock held.
func (m *Manager[L]) look(h *Held[L], now moment, until int64, timeouts, unanswered *[]L, batch *[]*Held[L]) {
	if h.timeout <= now.mono {
		h.timeout = never
		*timeouts = append(*timeouts, h.Lease)
	}
	if !h.told && h.deadline.reached(now, m.o.Margin) {
		h.told = true
		*unanswered = append(*unanswered, h.Lease)
	}
	if !h.beating && h.next <= until {
		h.beating = true
		*batch = append(*batch, h)
	}
	h.schedule(m.o.Margin)
	m.leases.fix(h)
}

// send hands leases to calls, in batches; what finds no call free waits for one.
func (m *Manager[L]) send(hs []*Held[L]) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for len(hs) > 0 {
		n := min(len(hs), m.o.MaxBatch)
		m.waiting = append(m.waiting, hs[:n:n])
		hs = hs[n:]
	}
	for n := len(m.waiting); n > 0 && m.calls < m.o.MaxCalls; n-- {
		m.calls++
		go m.caller()
	}
}

// caller makes one call after another, as long as batches wait.
func (m *Manager[L]) caller() {
	for {
		m.mu.Lock()
		if len(m.waiting) == 0 {
			m.calls--
			m.mu.Unlock()
			return
		}
		hs := m.waiting[0]
		m.waiting[0] = nil
		m.waiting = m.waiting[1:]
		hs = m.drop(hs)
		m.mu.Unlock()
		if len(hs) > 0 {
			m.call(hs)
		}
	}
}

// drop leaves out what was released while it waited; called with the lock held.
func (m *Manager[L]) drop(hs []*Held[L]) []*Held[L] {
	kept := hs[:0]
	for _, h := range hs {
		if h.place != 0 {
			kept = append(kept, h)
			continue
		}
		h.beaten()
	}
	return kept
}

// beaten is told that no beat of h is queued or in flight any more.
func (h *Held[L]) beaten() {
	h.beating = false
	if h.done != nil {
		close(h.done)
		h.done = nil
	}
}

func (m *Manager[L]) call(hs []*Held[L]) {
	leases := make([]L, len(hs))
	for i, h := range hs {
		leases[i] = h.Lease
	}
	ctx, cancel := context.WithTimeout(context.Background(), m.o.CallTimeout)
	sent := m.now()
	err := m.extend(ctx, leases)
	cancel()

	type loss struct {
		l   L
		err error
	}
	var losses []loss
	m.mu.Lock()
	now, beat := m.now(), m.jittered()
	for i, h := range hs {
		h.beaten()
		if h.place == 0 {
			continue
		}
		if lost := m.answer(h, broker.ErrAt(err, i), sent, now, beat); lost != nil {
			m.leases.remove(h)
			losses = append(losses, loss{h.Lease, lost})
			continue
		}
		h.schedule(m.o.Margin)
		m.leases.fix(h)
	}
	m.arm()
	m.mu.Unlock()
	for _, l := range losses {
		m.o.OnLost(l.l, l.err)
	}
}

// answer applies the answer to one lease's beat. It returns why the lease is lost, if it is.
func (m *Manager[L]) answer(h *Held[L], err error, sent, now moment, beat int64) error {
	again := errors.Is(err, ErrAgain)
	if err != nil && !again {
		if m.o.IsLost(err) {
			return err
		}
		h.tries++
		h.next = now.mono + m.backoff(h.tries)
		return nil
	}
	if !m.o.Revives && h.deadline.reached(now, 0) {
		return fmt.Errorf("%w: the answer came after it", ErrUnanswered)
	}
	if until := sent.plus(m.o.Timeout); until.mono > h.deadline.mono {
		h.deadline = until
	}
	h.told = false
	if again {
		h.tries++
		h.next = now.mono + m.backoff(h.tries)
		return nil
	}
	h.tries = 0
	h.next = sent.mono + beat
	return nil
}

// backoff is the pause after a beat that failed: an eighth of the interval, doubled up to a half of it.
func (m *Manager[L]) backoff(tries uint16) int64 {
	i := int64(m.o.Interval)
	return min(i/2, i/8<<min(tries-1, 2))
}

// extend calls the Extender. Its panic is an error: the leases of other jobs are in the same batch.
func (m *Manager[L]) extend(ctx context.Context, ls []L) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("visibility: the Extender panicked: %v\n%s", v, debug.Stack())
		}
	}()
	return m.x(ctx, ls)
}
