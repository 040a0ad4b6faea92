package visibility

// The heaps of a Manager, by what they are ordered by. A lease knows its place in each, from 1; 0 =
// it is not there.
const (
	byDue     = iota // every lease, by the time at which something is due
	byUrgency        // those whose beat waits for a call
	heaps
)

// heap is a binary heap. Leases that are held for the same time are pushed in order, which costs
// one comparison. The keys stand in the heap, so that comparing reads no lease.
type heap[L any] struct {
	kind uint8
	s    []entry[L]
}

type entry[L any] struct {
	key int64
	h   *Held[L]
}

func (q *heap[L]) len() int { return len(q.s) }

func (q *heap[L]) push(h *Held[L], key int64) {
	q.s = append(q.s, entry[L]{})
	q.up(len(q.s)-1, entry[L]{key, h})
}

// remove takes h out, if it is there.
func (q *heap[L]) remove(h *Held[L]) {
	i, last := int(h.place[q.kind])-1, len(q.s)-1
	if i < 0 {
		return
	}
	h.place[q.kind] = 0
	moved := q.s[last]
	q.s[last] = entry[L]{}
	q.s = q.s[:last]
	if i < last {
		q.settle(i, moved)
	}
}

// fix gives h, if it is there, another key.
func (q *heap[L]) fix(h *Held[L], key int64) {
	if i := int(h.place[q.kind]) - 1; i >= 0 && q.s[i].key != key {
		q.settle(i, entry[L]{key, h})
	}
}

// settle puts e where it belongs, from the free place i.
func (q *heap[L]) settle(i int, e entry[L]) {
	if i > 0 && e.key < q.s[(i-1)/2].key {
		q.up(i, e)
	} else {
		q.down(i, e)
	}
}

func (q *heap[L]) put(i int, e entry[L]) {
	q.s[i] = e
	e.h.place[q.kind] = int32(i + 1)
}

func (q *heap[L]) up(i int, e entry[L]) {
	for i > 0 {
		parent := (i - 1) / 2
		if q.s[parent].key <= e.key {
			break
		}
		q.put(i, q.s[parent])
		i = parent
	}
	q.put(i, e)
}

func (q *heap[L]) down(i int, e entry[L]) {
	for {
		least := 2*i + 1
		if least >= len(q.s) {
			break
		}
		if right := least + 1; right < len(q.s) && q.s[right].key < q.s[least].key {
			least = right
		}
		if e.key <= q.s[least].key {
			break
		}
		q.put(i, q.s[least])
		i = least
	}
	q.put(i, e)
}

// until appends to hs, in no order, every lease whose key is at most key.
func (q *heap[L]) until(key int64, hs []*Held[L]) []*Held[L] { return q.below(0, key, hs) }

func (q *heap[L]) below(i int, key int64, hs []*Held[L]) []*Held[L] {
	if i >= len(q.s) || q.s[i].key > key {
		return hs
	}
	hs = q.below(2*i+1, key, append(hs, q.s[i].h))
	return q.below(2*i+2, key, hs)
}
