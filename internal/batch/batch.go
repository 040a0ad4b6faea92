// Package batch gathers single entries into batches without a timer: a batch forms while
// the one before it is in flight, and a full batch goes at once. Under load the batches are
// full, and at low load an entry waits for nothing.
package batch

import (
	"runtime"
	"sync"
	"time"
)

// Options bound a Queue.
type Options struct {
	// Max is the most entries of one call, at least 1.
	Max int
	// Flight is the most calls at once, at least 1. A second call starts only for a full
	// batch.
	Flight int
	// Linger holds a batch that is not full back for so long, where a call costs money. 0 = none.
	Linger time.Duration
}

// Queue gathers entries and hands them to its call in batches, in the order they came. Unless it is kept, it has no
// goroutine while it is empty, and needs no shutdown.
type Queue[T any] struct {
	o    Options
	call func([]T)

	mu      sync.Mutex
	waiting []T
	kept    bool // goroutines without work park instead of ending
	active  int  // goroutines at work
	parked  int  // goroutines without work
	wake    chan struct{}
	due     bool        // what waits need not be a full batch
	timer   *time.Timer // set while a linger is under way
}

// New returns a queue that hands batches to call. The slice belongs to the queue again when
// call returns.
func New[T any](o Options, call func([]T)) *Queue[T] {
	o.Max, o.Flight = max(1, o.Max), max(1, o.Flight)
	return &Queue[T]{o: o, call: call, wake: make(chan struct{}, o.Flight)}
}

// Keep lets the goroutines that make the calls outlast a lack of entries, until Keep(false): a new goroutine for
// each burst costs more than the rest of the queue.
func (q *Queue[T]) Keep(on bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.kept = on
	for !on && q.parked > 0 {
		q.unpark()
	}
}

// Add puts entries into the queue. It never blocks on a call.
func (q *Queue[T]) Add(entries ...T) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting = append(q.waiting, entries...)
	if q.o.Linger > 0 && !q.due && len(q.waiting) < q.o.Max {
		if q.timer == nil {
			q.timer = time.AfterFunc(q.o.Linger, q.Flush)
		}
		return
	}
	q.start()
}

// Flush sends what waits, full or not.
func (q *Queue[T]) Flush() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.waiting) > 0 {
		q.due = true
		q.start()
	}
	q.stopTimer()
}

// SetLinger changes Options.Linger; with 0 what waits goes at once.
func (q *Queue[T]) SetLinger(d time.Duration) {
	q.mu.Lock()
	q.o.Linger = d
	q.mu.Unlock()
	if d == 0 {
		q.Flush()
	}
}

func (q *Queue[T]) stopTimer() {
	if q.timer != nil {
		q.timer.Stop()
		q.timer = nil
	}
}

// start is called with the lock held.
func (q *Queue[T]) start() {
	for q.active < q.o.Flight && (q.active == 0 || len(q.waiting) >= (q.active+1)*q.o.Max) {
		if q.parked > 0 {
			q.unpark()
			continue
		}
		q.active++
		go q.run()
	}
}

func (q *Queue[T]) run() {
	var batch []T
	q.mu.Lock()
	defer q.mu.Unlock()
	for {
		n := q.take()
		if 0 < n && n < q.o.Max {
			// Who is ready to add an entry does so first: on a busy machine that fills the batch, and
			// on an idle one it takes no time.
			q.mu.Unlock()
			runtime.Gosched()
			q.mu.Lock()
			n = q.take()
		}
		if n == 0 {
			q.active--
			if !q.park() {
				return
			}
			continue
		}
		batch = append(batch[:0], q.waiting[:n]...)
		rest := copy(q.waiting, q.waiting[n:])
		clear(q.waiting[rest:])
		q.waiting = q.waiting[:rest]
		q.mu.Unlock()
		q.call(batch)
		clear(batch)
		q.mu.Lock()
	}
}

// park waits for unpark, if the queue is kept; called with the lock held.
func (q *Queue[T]) park() bool {
	if !q.kept {
		return false
	}
	q.parked++
	q.mu.Unlock()
	<-q.wake
	q.mu.Lock()
	return true
}

// unpark wakes a parked goroutine; called with the lock held.
func (q *Queue[T]) unpark() {
	q.parked--
	q.active++
	q.wake <- struct{}{}
}

// take says how many entries the next call of this goroutine takes; 0 = it ends.
func (q *Queue[T]) take() int {
	n := len(q.waiting)
	switch {
	case n == 0:
		q.due = false
		return 0
	case n >= q.o.Max:
		return q.o.Max
	case q.o.Linger > 0 && !q.due:
		if q.timer == nil {
			q.timer = time.AfterFunc(q.o.Linger, q.Flush)
		}
		return 0
	case q.active > 1:
		// Another call is in flight: what is left waits for it to return.
		return 0
	}
	return n
}
