package memstore

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/onceq/onceq/dedupe"
)

// The queue gives entries by expiry, however they come and go.
func TestQueue(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		q := queue{inOrder: list{which: inQueue}}
		var in []*entry
		for range 200 {
			if len(in) > 0 && r.IntN(3) == 0 {
				i := r.IntN(len(in))
				q.remove(in[i])
				q.remove(in[i]) // not in any more
				in = slices.Delete(in, i, i+1)
			} else {
				e := &entry{expiry: r.Int64N(50)}
				q.push(e)
				in = append(in, e)
			}
			first := q.first()
			switch {
			case len(in) == 0 && first != nil:
				t.Fatal("an empty queue has a first entry")
			case len(in) > 0:
				least := slices.MinFunc(in, func(a, b *entry) int { return int(a.expiry - b.expiry) })
				if first == nil || first.expiry != least.expiry {
					t.Fatalf("the first is %+v, want expiry %d", first, least.expiry)
				}
			}
		}
		last := int64(0)
		for range in {
			e := q.first()
			if e.expiry < last {
				t.Fatalf("expiry %d comes after %d", e.expiry, last)
			}
			last = e.expiry
			q.remove(e)
		}
		if q.first() != nil {
			t.Fatal("an emptied queue has a first entry")
		}
	}
}

func TestTable(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	var sh shard
	in := make(map[dedupe.Key]*entry)
	for i := range 5000 {
		k := dedupe.Key{Scope: "s", Key: string(rune('a' + r.IntN(400)))}
		h := uint64(k.Key[0] % 7) // most share a hash
		e := sh.find(h, k)
		if e != in[k] {
			t.Fatalf("step %d: %v is found: %v, want %v", i, k, e != nil, in[k] != nil)
		}
		if e == nil {
			e = sh.add(h, k)
			in[k] = e
		} else {
			sh.table.remove(e)
			delete(in, k)
		}
	}
	n := 0
	for e := range sh.table.all() {
		n++
		if in[e.key()] != e {
			t.Errorf("%v should not be there", e.key())
		}
	}
	if n != len(in) || n != sh.table.n {
		t.Errorf("%d entries are there and %d counted, want %d", n, sh.table.n, len(in))
	}
}
