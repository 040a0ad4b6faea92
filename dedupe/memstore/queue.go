package memstore

import (
	"math"

	"github.com/onceq/onceq/internal/heap"
)

// never is a time that does not come.
const never = math.MaxInt64

// The lists that an entry may be in, and its node there.
const (
	inQueue = iota
	inDone
)

// node is an entry's place in a list.
type node struct{ prev, next *entry }

// list is a list of entries through one of their nodes.
type list struct {
	first, last *entry
	which       uint8
}

func (l *list) push(e *entry) {
	e.nodes[l.which] = node{prev: l.last}
	if l.last != nil {
		l.last.nodes[l.which].next = e
	} else {
		l.first = e
	}
	l.last = e
}

// remove takes e out, if it is in.
func (l *list) remove(e *entry) {
	n := &e.nodes[l.which]
	if n.prev == nil && l.first != e {
		return
	}
	if n.prev != nil {
		n.prev.nodes[l.which].next = n.next
	} else {
		l.first = n.next
	}
	if n.next != nil {
		n.next.nodes[l.which].prev = n.prev
	} else {
		l.last = n.prev
	}
	*n = node{}
}

// queue holds entries by expiry. Retention is nearly always the same, so nearly every entry expires
// after all the others and goes to the end of a list. Only the rest need a heap.
type queue struct {
	inOrder list
	heap    heap.Heap[*entry]
}

func (q *queue) first() *entry {
	e := q.inOrder.first
	if q.heap.Len() > 0 && (e == nil || q.heap.First().Key < e.expiry) {
		return q.heap.First().Item
	}
	return e
}

func (q *queue) push(e *entry) {
	if q.inOrder.last == nil || q.inOrder.last.expiry <= e.expiry {
		q.inOrder.push(e)
		return
	}
	q.heap.Push(e.expiry, 0, e, &e.slot)
}

func (q *queue) remove(e *entry) {
	if e.slot == 0 {
		q.inOrder.remove(e)
		return
	}
	q.heap.Remove(&e.slot)
}
