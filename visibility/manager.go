package visibility

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"
)

// Manager keeps leases alive. Its methods may be called from many goroutines. It needs no shutdown: when
// nothing is held, it has neither goroutine nor timer.
type Manager[L any] struct {
	o Options[L]
	x Extender[L]

	base    time.Time // the origin of moments
	mu      sync.Mutex
	leases  heap[L]
	timer   *time.Timer
	wakes   int64        // when the timer fires; never = it is not set
	calls   int          // of the Extender, under way
	waiting [][]*Held[L] // batches for which there is no call yet
}

// New validates the options, whose errors name the field and its limit.
func New[L any](x Extender[L], o Options[L]) (*Manager[L], error) {
	o = o.withDefaults()
	if err := o.check(); err != nil {
		return nil, err
	}
	return &Manager[L]{o: o, x: x, base: time.Now(), wakes: never}, nil
}

func (m *Manager[L]) now() moment { return m.at(time.Now()) }

func (m *Manager[L]) at(t time.Time) moment {
	return moment{int64(t.Sub(m.base)), t.UnixNano()}
}

// Hold begins to keep the leases, each from its Deadline. One that is held already is left as it is.
func (m *Manager[L]) Hold(hs ...*Held[L]) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.now()
	beat := m.jittered()
	for _, h := range hs {
		if h.place != 0 {
			continue
		}
		h.deadline = m.at(h.Deadline)
		h.timeout, h.tries, h.told = never, 0, false
		h.next = now.mono + m.soon(beat, h.deadline.mono-now.mono)
		h.schedule(m.o.Margin)
		m.leases.push(h)
	}
	m.arm()
}

// soon is the time to a beat: a lease that came with less than the whole timeout left is prolonged sooner.
func (m *Manager[L]) soon(beat, left int64) int64 { return max(0, min(beat, left/3)) }

// jittered is a beat's interval; leases that are held together beat together.
func (m *Manager[L]) jittered() int64 {
	i := int64(m.o.Interval)
	return i - rand.Int64N(i/8+1)
}

// Update gives a held lease another deadline: its claim was won, or renewed, by other means.
func (m *Manager[L]) Update(h *Held[L], deadline time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if h.place == 0 {
		return
	}
	h.deadline = m.at(deadline)
	h.told = false
	if now := m.now(); !h.beating {
		h.next = min(h.next, now.mono+m.soon(int64(m.o.Interval), h.deadline.mono-now.mono))
	}
	m.changed(h)
}

// SetTimeout sets when OnTimeout is called for a held lease; the zero time = never.
func (m *Manager[L]) SetTimeout(h *Held[L], at time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if h.place == 0 {
		return
	}
	h.timeout = never
	if !at.IsZero() {
		h.timeout = m.at(at).mono
	}
	m.changed(h)
}

// changed puts h, whose times have changed, in its place; called with the lock held.
func (m *Manager[L]) changed(h *Held[L]) {
	h.schedule(m.o.Margin)
	m.leases.fix(h)
	m.arm()
}

// Deadline is when the lease ends, as far as the answers tell.
func (m *Manager[L]) Deadline(h *Held[L]) time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	if h.place == 0 {
		return h.Deadline
	}
	return m.base.Add(time.Duration(h.deadline.mono))
}

// Len is how many leases are held.
func (m *Manager[L]) Len() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.leases)
}

// Release ends the care for the leases. A beat that is in flight may still arrive.
func (m *Manager[L]) Release(hs ...*Held[L]) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, h := range hs {
		if h.place != 0 {
			m.leases.remove(h)
		}
	}
}

// Quiesce is Release, and then waits until no beat of the leases is in flight: a beat that arrived after a
// nack would undo it. It waits until ctx ends at the longest, and answers its error then.
func (m *Manager[L]) Quiesce(ctx context.Context, hs ...*Held[L]) error {
	var pending []chan struct{}
	m.mu.Lock()
	for _, h := range hs {
		if h.place != 0 {
			m.leases.remove(h)
		}
		if h.beating {
			if h.done == nil {
				h.done = make(chan struct{})
			}
			pending = append(pending, h.done)
		}
	}
	m.mu.Unlock()
	for _, done := range pending {
		select {
		case <-done:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// arm sets the timer for the first lease that is due, if it is not set for an earlier time; called with the
// lock held.
func (m *Manager[L]) arm() {
	if len(m.leases) == 0 || m.leases[0].due >= m.wakes {
		return
	}
	m.wakes = m.leases[0].due
	d := max(0, time.Duration(m.wakes-m.now().mono))
	if m.timer == nil {
		m.timer = time.AfterFunc(d, m.tick)
	} else {
		m.timer.Reset(d)
	}
}
