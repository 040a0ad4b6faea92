package visibility

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/onceq/onceq/internal/heap"
)

// This file owns a Manager: its leases in two heaps, its timer, and what holders do with leases.
// They call it from any goroutine. m.mu guards everything below it, and all fields of a Held but
// Lease and Deadline. No callback is called under it.

// Manager keeps leases alive. Its methods may be called from many goroutines, and from the
// callbacks. It needs no shutdown: when nothing is held it has no goroutine, and its timer fires
// once more at most.
type Manager[L any] struct {
	o Options[L]
	x Extender[L]

	base time.Time // the origin of moments
	wall time.Time // the same without its monotonic clock

	mu      sync.Mutex
	leases  heap.Heap[*Held[L]] // by due
	waiting heap.Heap[*Held[L]] // by urgency
	timer   *time.Timer
	wakes   int64         // when the timer fires; never = it is not set
	skew    int64         // how far the wall clock was ahead of the monotonic one at the last tick
	calls   int           // of the Extender, under way
	landed  chan struct{} // closed when the next call ends; nil = nobody waits
}

// New makes a Manager. Its errors name the option and its limit.
func New[L any](x Extender[L], o Options[L]) (*Manager[L], error) {
	if x == nil {
		return nil, errors.New("visibility: the Extender is nil")
	}
	o = o.withDefaults()
	if err := o.check(); err != nil {
		return nil, err
	}
	now := time.Now()
	return &Manager[L]{
		o: o, x: x, base: now, wall: now.Round(0), wakes: never,
	}, nil
}

func (m *Manager[L]) now() moment { return m.at(time.Now()) }

func (m *Manager[L]) at(t time.Time) moment {
	return moment{within(t.Sub(m.base)), within(t.Sub(m.wall))}
}

func within(d time.Duration) int64 { return max(-far, min(int64(d), far)) }

// Hold begins to keep the leases, each from its Deadline. A lease that is held already stays as it
// is.
func (m *Manager[L]) Hold(hs ...*Held[L]) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.now()
	beat := m.jittered()
	for _, h := range hs {
		if h.held() {
			continue
		}
		h.until(m.at(h.Deadline), now, m.o.Margin)
		h.timeout, h.tries = never, 0
		// The answer to a beat that an earlier hold has left in flight says nothing of this one.
		h.stale = h.flying
		h.next = now.mono + m.soon(beat, h.deadline.left(now))
		m.leases.Push(m.due(h), 0, h, &h.place[byDue])
	}
	m.arm()
}

// soon is the time until a beat. A lease that came with less than the whole timeout left is
// prolonged sooner, and one that is within the margin at once.
func (m *Manager[L]) soon(beat, left int64) int64 {
	if left <= int64(m.o.Margin) {
		return 0
	}
	return min(beat, left/3)
}

// jittered is a beat's interval. Leases that are held together beat together.
func (m *Manager[L]) jittered() int64 {
	i := int64(m.o.Interval)
	return i - rand.Int64N(i/8+1)
}

// due is when the heap must look at h.
func (m *Manager[L]) due(h *Held[L]) int64 {
	due := min(h.timeout, h.warn)
	if !h.beating() {
		due = min(due, h.next)
	}
	if h.told() && !m.o.Revives {
		due = min(due, h.deadline.mono)
	}
	return due
}

// Update gives a held lease another deadline, earlier or later, because its claim was won, or
// renewed, by other means.
func (m *Manager[L]) Update(h *Held[L], deadline time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if h.held() {
		m.update(h, m.at(deadline))
	}
}

func (m *Manager[L]) update(h *Held[L], deadline moment) {
	now, warn, doubt := m.now(), h.warn, h.doubt
	h.until(deadline, now, m.o.Margin)
	if h.deadline.wall <= now.wall { // it may have been reckoned before the wall clock jumped
		m.allowMargin(h, now)
		if doubt {
			h.warn = min(h.warn, warn)
		}
	}
	h.next = min(h.next, now.mono+m.soon(int64(m.o.Interval), h.deadline.left(now)))
	m.waiting.Fix(&h.place[byUrgency], m.urgency(h, now))
	m.changed(h)
}

// SetTimeout sets when OnTimeout is called for a held lease; the zero time = never.
func (m *Manager[L]) SetTimeout(h *Held[L], at time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !h.held() {
		return
	}
	h.timeout = never
	if !at.IsZero() {
		h.timeout = m.at(at).mono
	}
	m.changed(h)
}

// changed puts h in its place after its times have changed. It is called with the lock held.
func (m *Manager[L]) changed(h *Held[L]) {
	m.leases.Fix(&h.place[byDue], m.due(h))
	m.arm()
}

// Deadline is when a held lease ends, as far as the answers tell. For a lease that is not held it
// is Held.Deadline.
func (m *Manager[L]) Deadline(h *Held[L]) time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !h.held() {
		return h.Deadline
	}
	return m.base.Add(time.Duration(h.deadline.mono))
}

// Left is the time until a lease ends, as far as the answers tell. There are two clocks: the wall
// clock, and the monotonic one, which stands still while the machine is suspended. Left goes by the
// one that says less.
//
// It is 0 at most where the answers have stopped. Then the holder has been told, or the lease is
// over by the wall clock alone and a beat has yet to decide. For a lease that is not held, Left
// goes by Held.Deadline.
func (m *Manager[L]) Left(h *Held[L]) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.now()
	if !h.held() {
		return time.Duration(m.at(h.Deadline).left(now))
	}
	left := h.deadline.left(now)
	if h.told() || h.doubt {
		left = min(left, 0)
	}
	return time.Duration(left)
}

// Len is how many leases are held.
func (m *Manager[L]) Len() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.leases.Len()
}

// Late is how long before now something was due, for some lease, that the manager has not begun: a
// beat, or the news that a lease is over. It is 0 as long as the manager's goroutines get their
// turn in the process. A beat that waits for its answer, or for a call, is not late.
func (m *Manager[L]) Late(now time.Time) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.leases.Len() == 0 {
		return 0
	}
	return time.Duration(max(0, m.at(now).mono-m.leases.First().Key))
}

// Release ends the care for the leases. A beat that is in flight may still arrive, and a callback
// that is under way may still come.
func (m *Manager[L]) Release(hs ...*Held[L]) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.release(hs)
}

func (m *Manager[L]) release(hs []*Held[L]) {
	for _, h := range hs {
		m.leases.Remove(&h.place[byDue])
		m.waiting.Remove(&h.place[byUrgency])
	}
}

// Quiesce is Release, and then waits until no beat of the leases is in flight, because a beat that
// arrived after a nack would undo it. When ctx ends first, the error is its cause.
func (m *Manager[L]) Quiesce(ctx context.Context, hs ...*Held[L]) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.release(hs)
	for _, h := range hs {
		for h.flying {
			if err := m.wait(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// wait gives the lock up until a call, or ctx, has ended.
func (m *Manager[L]) wait(ctx context.Context) error {
	if m.landed == nil {
		m.landed = make(chan struct{})
	}
	landed := m.landed
	m.mu.Unlock()
	defer m.mu.Lock()
	select {
	case <-landed:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// arm sets the timer for the first lease that is due, unless it is set for an earlier time. It is
// called with the lock held. A timer may have fired while its tick still waits for the lock. arm
// then sets it once more, and one of the two ticks finds nothing due.
//
// The timer is never set for now. In a test with testing/synctest such a timer fires on the
// goroutine that sets it, and two at once crash the race detector (golang/go#78156).
func (m *Manager[L]) arm() {
	if m.leases.Len() == 0 || m.leases.First().Key >= m.wakes {
		return
	}
	m.wakes = m.leases.First().Key
	switch d := time.Duration(m.wakes - m.now().mono); {
	case d <= 0:
		go m.tick()
	case m.timer == nil:
		m.timer = time.AfterFunc(d, m.tick)
	default:
		m.timer.Reset(d)
	}
}
