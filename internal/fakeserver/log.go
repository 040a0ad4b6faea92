package fakeserver

import (
	"maps"
	"sync"
)

// DefaultLogSize is how many calls a server remembers unless it is told otherwise.
const DefaultLogSize = 10_000

// Log counts all calls of a server by their names, and keeps the last ones, of type R. Set Size
// before its first use. It has a lock of its own.
type Log[R any] struct {
	// Size is how many calls are kept; none if it is negative.
	Size int

	mu     sync.Mutex
	kept   []R // a ring once it is full
	next   int
	counts map[string]int
}

// Begin counts a call.
func (l *Log[R]) Begin(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.counts == nil {
		l.counts = map[string]int{}
	}
	l.counts[name]++
}

// End keeps a call that was answered.
func (l *Log[R]) End(r R) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.Size <= 0:
	case len(l.kept) < l.Size:
		l.kept = append(l.kept, r)
	default:
		l.kept[l.next] = r
		l.next = (l.next + 1) % l.Size
	}
}

// Counts tells how many calls came, by name, also those that were not answered yet.
func (l *Log[R]) Counts() map[string]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	counts := map[string]int{} // never nil: the control writes it as an object
	maps.Copy(counts, l.counts)
	return counts
}

// Kept are the last calls that were answered, in the order of the answers.
func (l *Log[R]) Kept() []R {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append(append([]R(nil), l.kept[l.next:]...), l.kept[:l.next]...)
}

// Reset forgets the calls and sets the counts to zero.
func (l *Log[R]) Reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.kept, l.next, l.counts = nil, 0, nil
}
