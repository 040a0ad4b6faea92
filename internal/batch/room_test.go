package batch

import (
	"slices"
	"testing"
	"time"
)

// A queue that never runs empty needs no more room than what waits, and keeps nothing alive that
// has left it.
func TestRoom(t *testing.T) {
	q := New(Options{Max: 3, Linger: time.Hour}, func([]*int) {})
	defer q.SetLinger(0)
	q.active = 1 // no goroutine begins: the test takes the batches
	var batch []*int
	next, taken := 0, 0
	for range 10_000 {
		for range 3 {
			n := next
			q.Add(&n)
			next++
		}
		if q.len() < 100 {
			continue
		}
		batch = q.take(batch[:0], 3)
		for _, n := range batch {
			if *n != taken {
				t.Fatalf("entry %d where %d should be", *n, taken)
			}
			taken++
		}
		if cap(q.waiting) > 1000 {
			t.Fatalf("room for %d, and %d wait", cap(q.waiting), q.len())
		}
		rest := append(q.waiting[:q.head:q.head], q.waiting[len(q.waiting):cap(q.waiting)]...)
		if slices.ContainsFunc(rest, func(n *int) bool { return n != nil }) {
			t.Fatal("an entry that has left is kept alive")
		}
	}
	q.take(nil, q.len())
	if q.head != 0 || len(q.waiting) != 0 {
		t.Errorf("empty, and the next entry goes to place %d", len(q.waiting))
	}
	q.active = 0
}

// A timer that fires as it is stopped sends nothing early.
func TestStaleTimer(t *testing.T) {
	q := New(Options{Max: 3, Linger: time.Hour}, func([]int) { t.Error("sent") })
	q.Add(1)
	q.mu.Lock()
	q.stopTimer()
	q.mu.Unlock()
	q.lingered()
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.due != 0 || q.active != 0 {
		t.Errorf("%d due, %d goroutines", q.due, q.active)
	}
}
