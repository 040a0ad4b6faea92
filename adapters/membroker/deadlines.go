package membroker

// deadlines is a heap of the hidden messages. The earliest due comes first, and among equals the
// one that was hidden first. A node has four children, so the heap is shallower than with two, and
// the children lie in one or two cache lines.
type deadlines []deadline

type deadline struct {
	due   int64
	order uint64 // the order of deliveries, and of sends for what was not delivered yet
	e     *entry
}

func (d deadline) before(o deadline) bool {
	return d.due < o.due || (d.due == o.due && d.order < o.order)
}

const children = 4

func (h *deadlines) push(due int64, e *entry) {
	*h = append(*h, deadline{})
	h.up(len(*h)-1, deadline{due, max(e.serial, e.born), e})
}

// remove takes out the node at i.
func (h *deadlines) remove(i int) {
	s := *h
	last := len(s) - 1
	moved := s[last]
	s[last] = deadline{}
	*h = s[:last]
	if i != last {
		h.place(i, moved)
	}
}

// reset changes when the node at i is due.
func (h *deadlines) reset(i int, due int64) {
	d := (*h)[i]
	d.due = due
	h.place(i, d)
}

// place puts d at i or where the order wants it; i is a hole.
func (h deadlines) place(i int, d deadline) {
	if i > 0 && d.before(h[(i-1)/children]) {
		h.up(i, d)
		return
	}
	h.down(i, d)
}

func (h deadlines) up(i int, d deadline) {
	for i > 0 {
		parent := (i - 1) / children
		if !d.before(h[parent]) {
			break
		}
		h.set(i, h[parent])
		i = parent
	}
	h.set(i, d)
}

func (h deadlines) down(i int, d deadline) {
	for {
		first := i*children + 1
		if first >= len(h) {
			break
		}
		least := first
		for c := first + 1; c < min(first+children, len(h)); c++ {
			if h[c].before(h[least]) {
				least = c
			}
		}
		if !h[least].before(d) {
			break
		}
		h.set(i, h[least])
		i = least
	}
	h.set(i, d)
}

func (h deadlines) set(i int, d deadline) {
	h[i] = d
	d.e.at = i
}
