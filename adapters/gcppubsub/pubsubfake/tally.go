package pubsubfake

// tally counts the deliveries of the last messages of a subscription.
type tally struct {
	counts map[string]int
	ids    []string // a ring once it is full, in the order of first deliveries
	next   int
}

func (t *tally) add(id string, size int) {
	if size <= 0 {
		return
	}
	if t.counts == nil {
		t.counts = map[string]int{}
	}
	t.counts[id]++
	switch {
	case t.counts[id] > 1:
	case len(t.ids) < size:
		t.ids = append(t.ids, id)
	default:
		delete(t.counts, t.ids[t.next])
		t.ids[t.next] = id
		t.next = (t.next + 1) % size
	}
}
