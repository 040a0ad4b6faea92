package pgstore

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/onceq/onceq/dedupe"
)

// TestCostOfAHundred holds what a job costs the client, claimed and completed in batches of a
// hundred: allocations, bytes and round trips. Times are for benchmarks.
func TestCostOfAHundred(t *testing.T) {
	const batch, rounds, mostAllocs, mostBytes = 100, 100, 7, 1500
	db := &counted{DB: openPool(t)}
	s := newStore(t, db, newTable())
	qs, ends := make([]dedupe.ClaimRequest, batch), make([]dedupe.Settlement, batch)
	keys := 0
	hundred := func() {
		for i := range qs {
			keys++
			qs[i] = dedupe.ClaimRequest{Key: dedupe.Key{Scope: "cost", Key: fmt.Sprint(keys)}, Token: newToken(), TTL: time.Minute}
			ends[i] = dedupe.Settlement{Key: qs[i].Key, Token: qs[i].Token, To: dedupe.Done}
		}
		cs, err := s.Claim(t.Context(), qs)
		if err != nil || cs[0].Outcome != dedupe.Won {
			t.Fatal(cs, err)
		}
		as, err := s.Settle(t.Context(), ends)
		if err != nil || as[0].Err != nil {
			t.Fatal(as, err)
		}
	}
	hundred() // what is made once
	trips := db.trips.Load()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range rounds {
		hundred()
	}
	runtime.ReadMemStats(&after)
	const jobs = batch * rounds
	allocs, bytes := float64(after.Mallocs-before.Mallocs)/jobs, float64(after.TotalAlloc-before.TotalAlloc)/jobs
	t.Logf("%.2f allocations and %.0f bytes a job", allocs, bytes)
	if allocs > mostAllocs || bytes > mostBytes {
		t.Errorf("%.2f allocations and %.0f bytes a job, want at most %d and %d", allocs, bytes, mostAllocs, mostBytes)
	}
	if n := db.trips.Load() - trips; n != 2*rounds {
		t.Errorf("%d round trips for %d batches", n, rounds)
	}
}
