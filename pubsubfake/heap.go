package pubsubfake

// A timeHeap orders messages by a time, the earliest first, and among equals by their
// number. Each message knows its place in it, so that any can leave in O(log n). It has
// four children a node: shallower than two, and the children lie close together.
type timeHeap struct {
	items []timed
}

type timed struct {
	at  int64
	num uint64
	m   *message
}

const children = 4

func (t timed) before(o timed) bool { return t.at < o.at || t.at == o.at && t.num < o.num }

func (h *timeHeap) push(at int64, m *message) {
	h.items = append(h.items, timed{})
	h.up(len(h.items)-1, timed{at, m.num, m})
}

// has reports whether m is in the heap.
func (h *timeHeap) has(m *message) bool {
	i := m.place
	return i < len(h.items) && h.items[i].m == m
}

func (h *timeHeap) remove(m *message) {
	if !h.has(m) {
		return
	}
	i, last := m.place, len(h.items)-1
	moved := h.items[last]
	h.items[last] = timed{}
	h.items = h.items[:last]
	if i != last {
		h.place(i, moved)
	}
}

// place puts t at i or where the order wants it; i is a hole.
func (h *timeHeap) place(i int, t timed) {
	if i > 0 && t.before(h.items[(i-1)/children]) {
		h.up(i, t)
		return
	}
	h.down(i, t)
}

func (h *timeHeap) up(i int, t timed) {
	for i > 0 {
		parent := (i - 1) / children
		if !t.before(h.items[parent]) {
			break
		}
		h.set(i, h.items[parent])
		i = parent
	}
	h.set(i, t)
}

func (h *timeHeap) down(i int, t timed) {
	for {
		first := i*children + 1
		if first >= len(h.items) {
			break
		}
		least := first
		for c := first + 1; c < min(first+children, len(h.items)); c++ {
			if h.items[c].before(h.items[least]) {
				least = c
			}
		}
		if !h.items[least].before(t) {
			break
		}
		h.set(i, h.items[least])
		i = least
	}
	h.set(i, t)
}

func (h *timeHeap) set(i int, t timed) {
	h.items[i] = t
	t.m.place = i
}
