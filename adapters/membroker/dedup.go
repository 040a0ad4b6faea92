package membroker

// dedup remembers the deduplication ids of the last five minutes.
type dedup struct {
	ids   map[string]string // deduplication id to message id
	order []dedupEntry      // oldest first, from head on
	head  int
}

type dedupEntry struct {
	id    string
	until int64
}

func (d *dedup) add(id, message string, now int64) {
	if d.ids == nil {
		d.ids = make(map[string]string)
	}
	d.ids[id] = message
	d.order = append(d.order, dedupEntry{id, now + int64(dedupWindow)})
}

// expire forgets what is older than the window.
func (d *dedup) expire(now int64) {
	for d.head < len(d.order) && d.order[d.head].until <= now {
		delete(d.ids, d.order[d.head].id)
		d.order[d.head] = dedupEntry{}
		d.head++
	}
	if d.head > len(d.order)/2 {
		n := copy(d.order, d.order[d.head:])
		clear(d.order[n:])
		d.order, d.head = d.order[:n], 0
	}
}
