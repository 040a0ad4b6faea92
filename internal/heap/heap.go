// Package heap orders items by a time, the earliest first, and among equals by a number. Each item
// knows its place, so that any of them can leave or move in O(log n). The keys stand in the heap,
// so that comparing reads no item. A node has four children: the heap is shallower than with two,
// and the children lie close together. What uses a heap guards it by its own lock.
package heap

// Heap is ready to use. It belongs to its owner alone.
type Heap[E any] struct{ s []Node[E] }

// Node is an item with what it is ordered by.
type Node[E any] struct {
	Key   int64
	Order uint64 // among equal keys
	Item  E
	place *int32
}

const children = 4

func (n *Node[E]) before(o *Node[E]) bool {
	return n.Key < o.Key || n.Key == o.Key && n.Order < o.Order
}

// Len is how many items there are.
func (h *Heap[E]) Len() int { return len(h.s) }

// First is the earliest node. There must be one, and it must not be changed.
func (h *Heap[E]) First() *Node[E] { return &h.s[0] }

// All are the nodes, in no order. They are the heap's own until it changes, and must not be
// changed.
func (h *Heap[E]) All() []Node[E] { return h.s }

// Push puts an item in. The heap keeps its place, from 1, in *place; 0 = it is not there. place
// stays the heap's until the item is removed.
func (h *Heap[E]) Push(key int64, order uint64, item E, place *int32) {
	h.s = append(h.s, Node[E]{})
	h.up(len(h.s)-1, Node[E]{key, order, item, place})
}

// Remove takes out the item whose place it is, if it is there.
func (h *Heap[E]) Remove(place *int32) {
	i, last := int(*place)-1, len(h.s)-1
	if i < 0 {
		return
	}
	*place = 0
	moved := h.s[last]
	h.s[last] = Node[E]{}
	h.s = h.s[:last]
	if i < last {
		h.settle(i, moved)
	}
}

// Fix gives the item whose place it is another key, if it is there.
func (h *Heap[E]) Fix(place *int32, key int64) {
	i := int(*place) - 1
	if i < 0 || h.s[i].Key == key {
		return
	}
	n := h.s[i]
	n.Key = key
	h.settle(i, n)
}

// Until appends to items, in no order, every item whose key is at most key.
func (h *Heap[E]) Until(key int64, items []E) []E { return h.below(0, key, items) }

func (h *Heap[E]) below(i int, key int64, items []E) []E {
	if i >= len(h.s) || h.s[i].Key > key {
		return items
	}
	items = append(items, h.s[i].Item)
	for c := i*children + 1; c <= i*children+children; c++ {
		items = h.below(c, key, items)
	}
	return items
}

// settle puts n where it belongs, from the free place i.
func (h *Heap[E]) settle(i int, n Node[E]) {
	if i > 0 && n.before(&h.s[(i-1)/children]) {
		h.up(i, n)
	} else {
		h.down(i, n)
	}
}

func (h *Heap[E]) up(i int, n Node[E]) {
	s := h.s
	for i > 0 {
		parent := (i - 1) / children
		if !n.before(&s[parent]) {
			break
		}
		s[i] = s[parent]
		*s[i].place = int32(i + 1)
		i = parent
	}
	s[i] = n
	*n.place = int32(i + 1)
}

func (h *Heap[E]) down(i int, n Node[E]) {
	s := h.s
	for {
		first := i*children + 1
		if first >= len(s) {
			break
		}
		least := first
		for c := first + 1; c < min(first+children, len(s)); c++ {
			if s[c].before(&s[least]) {
				least = c
			}
		}
		if !s[least].before(&n) {
			break
		}
		s[i] = s[least]
		*s[i].place = int32(i + 1)
		i = least
	}
	s[i] = n
	*n.place = int32(i + 1)
}
