package heap

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"
)

type item struct {
	key   int64
	order uint64
	place int32
}

// The heap against a slice, however the items come, move and go.
func TestHeap(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var h Heap[*item]
	var in []*item
	for step := range 20_000 {
		switch {
		case len(in) == 0 || rng.IntN(3) == 0:
			x := &item{key: rng.Int64N(50), order: rng.Uint64N(3)}
			h.Push(x.key, x.order, x, &x.place)
			in = append(in, x)
		case rng.IntN(2) == 0:
			i := rng.IntN(len(in))
			h.Remove(&in[i].place)
			h.Remove(&in[i].place) // which is not there any more
			h.Fix(&in[i].place, 7)
			in = slices.Delete(in, i, i+1)
		default:
			x := in[rng.IntN(len(in))]
			x.key = rng.Int64N(50)
			h.Fix(&x.place, x.key)
		}
		if h.Len() != len(in) || len(h.All()) != len(in) {
			t.Fatalf("step %d: %d items of %d", step, h.Len(), len(in))
		}
		for i := range h.s {
			n := &h.s[i]
			if n.Item.place != int32(i+1) || n.Item.key != n.Key || n.Item.order != n.Order {
				t.Fatalf("step %d: node %d does not match its item", step, i)
			}
			if i > 0 && n.before(&h.s[(i-1)/children]) {
				t.Fatalf("step %d: node %d is before its parent", step, i)
			}
		}
		if step%100 == 0 {
			limit, want := rng.Int64N(60), 0
			seen := map[*item]bool{}
			for _, x := range h.Until(limit, nil) {
				if seen[x] || x.key > limit {
					t.Fatalf("step %d: Until(%d) brings %d", step, limit, x.key)
				}
				seen[x] = true
			}
			for _, x := range in {
				if x.key <= limit {
					want++
				}
			}
			if len(seen) != want {
				t.Fatalf("step %d: Until(%d) brings %d of %d", step, limit, len(seen), want)
			}
		}
	}
	if tail := h.s[len(h.s):cap(h.s)]; slices.ContainsFunc(tail, func(n Node[*item]) bool { return n.Item != nil || n.place != nil }) {
		t.Error("removed items are kept alive")
	}
	slices.SortFunc(in, func(a, b *item) int { return cmp.Or(cmp.Compare(a.key, b.key), cmp.Compare(a.order, b.order)) })
	for i, x := range in {
		if got := h.First().Item; got.key != x.key || got.order != x.order {
			t.Fatalf("item %d is %+v, want %+v", i, got, x)
		}
		h.Remove(&h.First().Item.place)
	}
}
