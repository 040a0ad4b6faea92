package visibility

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// The heap against a sorted slice.
func TestHeap(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	q := heap[int]{kind: byUrgency}
	keys := map[*Held[int]]int64{}
	for step := range 20_000 {
		switch h := anyOf(keys); {
		case h == nil || rng.IntN(3) == 0:
			h, k := &Held[int]{}, rng.Int64N(50)
			q.push(h, k)
			keys[h] = k
		case rng.IntN(2) == 0:
			q.remove(h)
			q.remove(h) // which is not there any more
			delete(keys, h)
		default:
			keys[h] = rng.Int64N(50)
			q.fix(h, keys[h])
		}
		if len(q.s) != len(keys) {
			t.Fatalf("step %d: %d entries of %d", step, len(q.s), len(keys))
		}
		for i, e := range q.s {
			if e.h.place[byUrgency] != int32(i+1) || e.h.place[byDue] != 0 || keys[e.h] != e.key {
				t.Fatalf("step %d: entry %d does not match its lease", step, i)
			}
			if i > 0 && q.s[(i-1)/2].key > e.key {
				t.Fatalf("step %d: entry %d is before its parent", step, i)
			}
		}
		if step%100 == 0 {
			limit := rng.Int64N(60)
			got, want := q.until(limit, nil), 0
			for _, k := range keys {
				if k <= limit {
					want++
				}
			}
			seen := map[*Held[int]]bool{}
			for _, h := range got {
				seen[h] = true
				if keys[h] > limit {
					t.Fatalf("step %d: until(%d) brings %d", step, limit, keys[h])
				}
			}
			if len(seen) != want || len(got) != want {
				t.Fatalf("step %d: until(%d) brings %d of %d", step, limit, len(got), want)
			}
		}
	}
	if tail := q.s[len(q.s):cap(q.s)]; slices.ContainsFunc(tail, func(e entry[int]) bool { return e.h != nil }) {
		t.Error("removed leases are kept alive")
	}
}

func anyOf(keys map[*Held[int]]int64) *Held[int] {
	for h := range keys {
		return h
	}
	return nil
}
