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

// Queue gathers entries and hands them to its call in batches, in the order they came; calls that
// are in flight at once may overtake each other. Unless it is kept, it has no goroutine while it is
// empty, and needs no shutdown.
type Queue[T any] struct {
	o    Options
	call func([]T)

	mu      sync.Mutex
	waiting []T // from head on
	head    int
	due     int // how many of what waits, from the head, need not be a full batch
	timer   *time.Timer
	ticking bool // the timer is set

	kept    bool // goroutines without work park instead of ending
	active  int  // goroutines at work
	calling int  // those of them that are in a call, and have taken their batch
	parked  int  // goroutines without work
	wake    chan struct{}
}

// New returns a queue that hands batches to call. The slice belongs to the queue again when
// call returns. A panic of call is not caught: guarding is for who knows what the entries are
// owed. A call that ends its goroutine has had its batch.
func New[T any](o Options, call func([]T)) *Queue[T] {
	o.Max, o.Flight = max(1, o.Max), max(1, o.Flight)
	return &Queue[T]{o: o, call: call, wake: make(chan struct{}, o.Flight)}
}

// Keep lets the goroutines that make the calls outlast a lack of entries, until Keep(false): a new
// goroutine for each burst costs more than the rest of the queue.
func (q *Queue[T]) Keep(on bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.kept = on
	for !on && q.parked > 0 {
		q.unpark()
	}
}

// Add puts entries into the queue. It never blocks on a call, and may be used from within one.
func (q *Queue[T]) Add(entries ...T) {
	if len(entries) == 0 {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.makeRoom()
	q.waiting = append(q.waiting, entries...)
	if q.lingers() {
		q.tick()
		return
	}
	q.start()
}

// Flush sends what waits, full or not.
func (q *Queue[T]) Flush() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.flush()
}

// SetLinger changes Options.Linger, also of what waits, counted from now; with 0 it goes at once.
func (q *Queue[T]) SetLinger(d time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.o.Linger = d
	switch {
	case d <= 0:
		q.flush()
	case q.ticking:
		q.stopTimer()
		q.tick()
	}
}

func (q *Queue[T]) len() int { return len(q.waiting) - q.head }

// makeRoom moves what waits to the front when at least as much before it is free, so that each
// entry is moved once on average.
func (q *Queue[T]) makeRoom() {
	if q.head == 0 || q.head < q.len() {
		return
	}
	n := copy(q.waiting, q.waiting[q.head:])
	clear(q.waiting[n:])
	q.waiting, q.head = q.waiting[:n], 0
}

// lingers tells whether what waits is held back.
func (q *Queue[T]) lingers() bool {
	return q.o.Linger > 0 && q.due == 0 && q.len() < q.o.Max
}

// tick starts the timer, unless it runs for an entry that came before.
func (q *Queue[T]) tick() {
	switch {
	case q.ticking:
		return
	case q.timer == nil:
		q.timer = time.AfterFunc(q.o.Linger, q.lingered)
	default:
		q.timer.Reset(q.o.Linger)
	}
	q.ticking = true
}

func (q *Queue[T]) lingered() {
	q.mu.Lock()
	defer q.mu.Unlock()
	// A timer that was stopped as it fired says nothing.
	if q.ticking {
		q.flush()
	}
}

func (q *Queue[T]) stopTimer() {
	if q.ticking {
		q.timer.Stop()
		q.ticking = false
	}
}

func (q *Queue[T]) flush() {
	q.stopTimer()
	if q.due = q.len(); q.due > 0 {
		q.start()
	}
}

// start is called with the lock held. The goroutines that are not in a call will each take a batch.
func (q *Queue[T]) start() {
	for q.active < q.o.Flight && (q.active == 0 || q.len() >= (q.active-q.calling+1)*q.o.Max) {
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
	inCall := false
	defer func() {
		if inCall {
			q.replace()
		}
	}()
	q.mu.Lock()
	for {
		n := q.next()
		if 0 < n && n < q.o.Max {
			// Who is ready to add an entry does so first: on a busy machine that fills the batch,
			// and on an idle one it takes no time.
			q.mu.Unlock()
			runtime.Gosched()
			q.mu.Lock()
			n = q.next()
		}
		if n == 0 {
			q.active--
			if !q.park() {
				break
			}
			continue
		}
		batch = q.take(batch[:0], n)
		q.calling++
		q.mu.Unlock()
		inCall = true
		q.call(batch)
		inCall = false
		clear(batch)
		q.mu.Lock()
		q.calling--
	}
	q.mu.Unlock()
}

// replace is for a goroutine that was ended from within its call.
func (q *Queue[T]) replace() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.calling--
	q.active--
	if q.len() > 0 {
		q.start()
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

// next says how many entries the next call of this goroutine takes; 0 = none.
func (q *Queue[T]) next() int {
	n := q.len()
	switch {
	case n == 0:
		return 0
	case n >= q.o.Max:
		return q.o.Max
	case q.lingers():
		q.tick()
		return 0
	case q.active > 1:
		// Another call is in flight: what is left waits for it to return.
		return 0
	}
	return n
}

// take moves n entries to batch. What is left lingers anew.
func (q *Queue[T]) take(batch []T, n int) []T {
	end := q.head + n
	batch = append(batch, q.waiting[q.head:end]...)
	clear(q.waiting[q.head:end])
	q.due = max(0, q.due-n)
	q.stopTimer()
	if q.head = end; q.len() == 0 {
		q.waiting, q.head = q.waiting[:0], 0
	} else if q.lingers() {
		q.tick()
	}
	return batch
}
