package memstore

import "math"

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
// after all the others and goes to the end of a list; only the rest need a heap.
type queue struct {
	inOrder list
	heap    []*entry
}

func (q *queue) first() *entry {
	e := q.inOrder.first
	if len(q.heap) > 0 && (e == nil || q.heap[0].expiry < e.expiry) {
		return q.heap[0]
	}
	return e
}

func (q *queue) push(e *entry) {
	if q.inOrder.last == nil || q.inOrder.last.expiry <= e.expiry {
		q.inOrder.push(e)
		return
	}
	q.heap = append(q.heap, e)
	q.up(len(q.heap) - 1)
}

func (q *queue) remove(e *entry) {
	if e.slot == 0 {
		q.inOrder.remove(e)
		return
	}
	i, last := e.slot-1, len(q.heap)-1
	moved := q.heap[last]
	q.heap[last] = nil
	q.heap = q.heap[:last]
	e.slot = 0
	if i == last {
		return
	}
	q.heap[i] = moved
	moved.slot = i + 1
	q.down(i)
	q.up(moved.slot - 1)
}

func (q *queue) up(i int) {
	e := q.heap[i]
	for i > 0 {
		parent := (i - 1) / 2
		if q.heap[parent].expiry <= e.expiry {
			break
		}
		q.set(i, q.heap[parent])
		i = parent
	}
	q.set(i, e)
}

func (q *queue) down(i int) {
	e := q.heap[i]
	for {
		child := 2*i + 1
		if child >= len(q.heap) {
			break
		}
		if child+1 < len(q.heap) && q.heap[child+1].expiry < q.heap[child].expiry {
			child++
		}
		if e.expiry <= q.heap[child].expiry {
			break
		}
		q.set(i, q.heap[child])
		i = child
	}
	q.set(i, e)
}

func (q *queue) set(i int, e *entry) {
	q.heap[i] = e
	e.slot = i + 1
}
