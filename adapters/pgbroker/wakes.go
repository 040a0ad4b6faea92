package pgbroker

import (
	"context"
	"sync"
	"time"

	"github.com/onceq/onceq/broker"
)

// This file owns when receives look: at their turn, or when they are woken. The receives of a Queue
// share the looks at an empty queue: one each Poll, however many wait. mu guards the time of the
// last look; the channels are made by New.

type wakes struct {
	woken  chan struct{} // holds one wake, for one receive
	closed chan struct{}
	end    sync.Once
	mu     sync.Mutex
	last   time.Time
}

func (w *wakes) init() { w.woken, w.closed = make(chan struct{}, 1), make(chan struct{}) }

func (w *wakes) close() { w.end.Do(func() { close(w.closed) }) }

func (w *wakes) isClosed() bool {
	select {
	case <-w.closed:
		return true
	default:
		return false
	}
}

// wake lets one receive look at once, also the next one that comes.
func (w *wakes) wake() {
	w.mu.Lock()
	w.last = time.Time{}
	w.mu.Unlock()
	select {
	case w.woken <- struct{}{}:
	default: // one is on its way
	}
}

// turn reports whether it is time for a look, and takes it.
func (w *wakes) turn(poll time.Duration) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	if now.Sub(w.last) < poll {
		return false
	}
	w.last = now
	return true
}

// untilTurn is how long it is to the next look.
func (w *wakes) untilTurn(poll time.Duration) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return max(0, poll-time.Since(w.last))
}

// wait returns when a receive is woken, or d has passed.
func (w *wakes) wait(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return w.err(ctx)
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-w.woken:
	case <-t.C:
	case <-ctx.Done():
	case <-w.closed:
	}
	return w.err(ctx)
}

func (w *wakes) err(ctx context.Context) error {
	if w.isClosed() {
		return broker.ErrClosed
	}
	return ctx.Err()
}

// Wake lets a waiting receive of this Queue look at once. Call it after the COMMIT of a transaction
// in which messages were sent by [Queue.Tx] or [Queue.TxSQL], where producer and worker share the
// Queue: the message is then received in a millisecond instead of half a Poll. With
// [Options].Notify it also wakes the receives of other processes. It does no I/O that the caller
// waits for, and may be called at any time.
func (q *Queue) Wake() {
	q.groups.hint.Store(true)
	q.wakes.wake()
	q.notify()
}
