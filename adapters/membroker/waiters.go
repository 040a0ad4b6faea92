package membroker

import (
	"time"

	"github.com/onceq/onceq/broker"
)

// waiter is a receive that waits.
type waiter struct {
	max        int
	visibility time.Duration
	done       chan struct{}
	ms         []broker.Message // set before done is closed
	prev, next *waiter
	queued     bool
}

// waiters are served in the order in which they came.
type waiters struct{ first, last *waiter }

func (l *waiters) push(w *waiter) {
	w.queued, w.prev = true, l.last
	if l.last == nil {
		l.first = w
	} else {
		l.last.next = w
	}
	l.last = w
}

// pop takes the first one; nil when there is none.
func (l *waiters) pop() *waiter {
	w := l.first
	if w != nil {
		l.remove(w)
	}
	return w
}

func (l *waiters) remove(w *waiter) {
	if !w.queued {
		return
	}
	if w.prev == nil {
		l.first = w.next
	} else {
		w.prev.next = w.next
	}
	if w.next == nil {
		l.last = w.prev
	} else {
		w.next.prev = w.prev
	}
	w.prev, w.next, w.queued = nil, nil, false
}
