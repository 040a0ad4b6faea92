package schedule

import (
	"container/heap"
	"context"
	"log/slog"
	"time"

	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/engine"
)

// This file owns what the loop of a scheduler knows: the runner, and the queue of when to look at
// each entry. Goroutines touch none of it: what they have found goes back to the loop by hand. So
// no lock is held.

const (
	// askEach is how often the list is asked for, and how long the loop sleeps at most: a clock
	// that is put forward is noticed then.
	askEach = time.Minute
	// tryFor bounds one call of the list, or what one instant takes with the store and the queue.
	tryFor = 30 * time.Second
	// endFor is what remains of that when Run shall end.
	endFor = 10 * time.Second
)

// runner is one call of Run. Fields without a comment on goroutines are the loop's alone.
type runner struct {
	s     dedupe.Store
	es    func(context.Context) ([]Entry, error)
	log   *slog.Logger
	every time.Duration // askEach
	ahead time.Duration // of this process's clock; of tests

	ctx    context.Context // Run's own
	work   context.Context // of all calls; it outlasts ctx for a while
	back   chan func()     // what goroutines hand back to the loop
	over   chan struct{}   // the loop has ended
	flying int             // goroutines

	on      map[string]*entry
	first   bool // a list was taken
	queue   byTime
	failing map[string]bool // entries whose last send failed
	down    int             // how often the store has failed since it answered
	missed  map[string]int  // instants, by entry, of which no line has told

	passes   time.Time // no pass before, because the store is away
	passing  bool
	adopting bool
	adopts   time.Time // when entries are told to the store again
	fatal    error

	listOut, storeOut, sendOut, fullOut engine.Outage
	lanes                               map[any]chan struct{} // rooms for sends, by queue
}

// now is the time by the wall clock: instants are compared with it.
func (r *runner) now() time.Time { return time.Now().Round(0).Add(r.ahead) }

// fly runs f in a goroutine, and what it answers in the loop.
func (r *runner) fly(f func() func()) {
	r.flying++
	go func() {
		then := f()
		r.hand(func() {
			r.flying--
			then()
		})
	}()
}

// hand has the loop run f, unless it has ended.
func (r *runner) hand(f func()) {
	select {
	case r.back <- f:
	case <-r.over:
	}
}

// later puts an entry into the queue. Nothing else does.
func (r *runner) later(e *entry, wake time.Time) {
	if e.wake = wake; !e.gone {
		heap.Push(&r.queue, e)
	}
}

// byTime is a heap of entries by when to look at them.
type byTime []*entry

func (q byTime) Len() int           { return len(q) }
func (q byTime) Less(i, j int) bool { return q[i].wake.Before(q[j].wake) }
func (q byTime) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].at, q[j].at = i, j
}

// Push is of [heap.Interface].
func (q *byTime) Push(x any) {
	e := x.(*entry)
	e.at = len(*q)
	*q = append(*q, e)
}

// Pop is of [heap.Interface].
func (q *byTime) Pop() any {
	old := *q
	e := old[len(old)-1]
	old[len(old)-1], *q = nil, old[:len(old)-1]
	e.at = -1
	return e
}
