package memstore

import "iter"

// table finds entries by hash. The entries themselves are its chains. A Go map would compute a
// second hash, and keep each key a second time.
type table struct {
	buckets []*entry // a power of two
	n       int
}

const firstBuckets = 8

func (t *table) chain(h uint64) *entry {
	if len(t.buckets) == 0 {
		return nil
	}
	return t.buckets[h&uint64(len(t.buckets)-1)]
}

func (t *table) add(e *entry) {
	if t.n >= len(t.buckets) {
		t.grow()
	}
	t.put(e)
	t.n++
}

func (t *table) put(e *entry) {
	b := &t.buckets[e.hash&uint64(len(t.buckets)-1)]
	e.chain, *b = *b, e
}

func (t *table) grow() {
	old := t.buckets
	t.buckets = make([]*entry, max(firstBuckets, 2*len(old)))
	for _, e := range old {
		for e != nil {
			next := e.chain
			t.put(e)
			e = next
		}
	}
}

func (t *table) remove(e *entry) {
	p := &t.buckets[e.hash&uint64(len(t.buckets)-1)]
	for *p != e {
		p = &(*p).chain
	}
	*p, e.chain = e.chain, nil
	t.n--
}

func (t *table) all() iter.Seq[*entry] {
	return func(yield func(*entry) bool) {
		for _, e := range t.buckets {
			for ; e != nil; e = e.chain {
				if !yield(e) {
					return
				}
			}
		}
	}
}
