package visibility

import (
	"math"
	"time"
)

// Held is a lease under a Manager's care. It is the holder's to allocate, inside its own job, so that holding
// costs no allocation. It belongs to one Manager and must not be copied while it is held.
type Held[L any] struct {
	// Lease is what the Extender gets.
	Lease L
	// Deadline is when the lease ends unless it is prolonged. The holder sets it before Hold; later ones are
	// read through Manager.Deadline.
	Deadline time.Time

	due      int64  // when the heap must look at it: the earliest of the following
	next     int64  // beat
	timeout  int64  // the holder's own time; never = none
	deadline moment // of the lease
	place    int32  // in the heap, from 1; 0 = not held
	tries    uint16 // beats that failed since the last answer
	beating  bool   // a beat is queued or in flight
	told     bool   // the holder knows that the answers have stopped
	done     chan struct{}
}

const never = math.MaxInt64

// moment is a time by both clocks. A machine that was suspended finds its monotonic clock behind, and the
// lease as dead as the wall clock says.
type moment struct{ mono, wall int64 }

func (m moment) plus(d time.Duration) moment { return moment{m.mono + int64(d), m.wall + int64(d)} }

// reached tells whether now is at m, or within d before it, by either clock.
func (m moment) reached(now moment, d time.Duration) bool {
	return now.mono >= m.mono-int64(d) || now.wall >= m.wall-int64(d)
}

// schedule sets when the heap must look at h again.
func (h *Held[L]) schedule(margin time.Duration) {
	h.due = h.timeout
	if !h.beating {
		h.due = min(h.due, h.next)
	}
	if !h.told {
		h.due = min(h.due, h.deadline.mono-int64(margin))
	}
}

// heap is a binary heap of leases by due. Leases that are held for the same time are appended in order, which
// costs one comparison.
type heap[L any] []*Held[L]

func (q *heap[L]) push(h *Held[L]) {
	*q = append(*q, h)
	h.place = int32(len(*q))
	q.up(len(*q) - 1)
}

func (q *heap[L]) remove(h *Held[L]) {
	i, last := int(h.place)-1, len(*q)-1
	h.place = 0
	moved := (*q)[last]
	(*q)[last] = nil
	*q = (*q)[:last]
	if i == last {
		return
	}
	(*q)[i] = moved
	moved.place = int32(i + 1)
	q.fix(moved)
}

func (q *heap[L]) fix(h *Held[L]) {
	if i := int(h.place) - 1; !q.down(i) {
		q.up(i)
	}
}

func (q *heap[L]) up(i int) {
	s := *q
	for i > 0 {
		parent := (i - 1) / 2
		if s[parent].due <= s[i].due {
			return
		}
		q.swap(i, parent)
		i = parent
	}
}

func (q *heap[L]) down(i int) (moved bool) {
	s := *q
	for {
		least := 2*i + 1
		if least >= len(s) {
			return moved
		}
		if right := least + 1; right < len(s) && s[right].due < s[least].due {
			least = right
		}
		if s[i].due <= s[least].due {
			return moved
		}
		q.swap(i, least)
		i, moved = least, true
	}
}

func (q *heap[L]) swap(i, j int) {
	s := *q
	s[i], s[j] = s[j], s[i]
	s[i].place, s[j].place = int32(i+1), int32(j+1)
}
