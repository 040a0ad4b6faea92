package memstore

import (
	"math"
	"reflect"
	"runtime"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceq/onceq/dedupe"
)

// TestBytesOfAKey holds what a done record takes besides its key.
func TestBytesOfAKey(t *testing.T) {
	const n, want = 100_000, 220
	names := make([]string, n)
	for i := range names {
		names[i] = "order-" + strconv.Itoa(i)
	}
	heap := func() uint64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	s := mustNew(t, nil)
	for _, name := range names {
		k := dedupe.Key{Scope: "orders", Key: name}
		finish(t, s, k)
	}
	got := float64(heap()-before) / n
	t.Logf("%.0f bytes a key", got)
	if got > want {
		t.Errorf("%.0f bytes a key, want at most %d", got, want)
	}
	runtime.KeepAlive(s)
	runtime.KeepAlive(names)
}

// TestPackedRecord finds of a done record what was settled, whatever it has, as often as it is
// asked for.
func TestPackedRecord(t *testing.T) {
	for name, change := range map[string]func(*dedupe.ClaimRequest, *dedupe.Settlement){
		"plain":         func(*dedupe.ClaimRequest, *dedupe.Settlement) {},
		"a result":      func(_ *dedupe.ClaimRequest, s *dedupe.Settlement) { s.Result = []byte("r") },
		"an empty one":  func(_ *dedupe.ClaimRequest, s *dedupe.Settlement) { s.Result = []byte{} },
		"a fingerprint": func(q *dedupe.ClaimRequest, _ *dedupe.Settlement) { q.Fingerprint = []byte("f") },
		"sent":          func(q *dedupe.ClaimRequest, _ *dedupe.Settlement) { q.Sent = time.Unix(1, 2000) },
		"sent long ago": func(q *dedupe.ClaimRequest, _ *dedupe.Settlement) { q.Sent = time.Date(1, 1, 2, 0, 0, 0, 0, time.UTC) },
		"sent in 9999": func(q *dedupe.ClaimRequest, _ *dedupe.Settlement) {
			q.Sent = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)
		},
		"parks":          func(q *dedupe.ClaimRequest, _ *dedupe.Settlement) { q.Policy = dedupe.Park },
		"kept for ever":  func(_ *dedupe.ClaimRequest, s *dedupe.Settlement) { s.Retain = math.MaxInt64 },
		"kept a moment":  func(_ *dedupe.ClaimRequest, s *dedupe.Settlement) { s.Retain = time.Minute },
		"another worker": func(q *dedupe.ClaimRequest, _ *dedupe.Settlement) { q.Owner = "w-2" },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, now := mustNew(t, nil), time.Now()
				k := dedupe.Key{Scope: "orders", Key: "7"}
				q := dedupe.ClaimRequest{Key: k, Token: dedupe.Token{7}, TTL: time.Minute, Owner: "w-1", MessageID: "m-1"}
				end := dedupe.Settlement{Key: k, Token: q.Token, To: dedupe.Done}
				change(&q, &end)
				c := must(s.Claim(t.Context(), []dedupe.ClaimRequest{q}))[0]
				pass(time.Second)
				if a := must(s.Settle(t.Context(), []dedupe.Settlement{end}))[0]; a.Err != nil {
					t.Fatal(a.Err)
				}
				retain := end.Retain
				if retain == 0 {
					retain = dedupe.DefaultRetention
				}
				ended := now.Add(time.Second)
				want := dedupe.Record{
					Key: k, Status: dedupe.Done, Fence: c.Lease.Fence, Token: q.Token, Attempt: 1, Policy: q.Policy, Owner: q.Owner,
					Fingerprint: q.Fingerprint, Result: end.Result, Sent: q.Sent, Created: now, ClaimedAt: now, Updated: ended, Finished: ended,
					Expires: ended.Add(retain),
				}
				for range 2 {
					pass(time.Second)
					got := must(s.Get(t.Context(), []dedupe.Key{k}))[0]
					if got == nil {
						t.Fatal("the record is gone")
					}
					for _, p := range [][2]*time.Time{
						{&got.Sent, &want.Sent},
						{&got.Created, &want.Created},
						{&got.ClaimedAt, &want.ClaimedAt},
						{&got.Updated, &want.Updated},
						{&got.Finished, &want.Finished},
						{&got.Expires, &want.Expires},
					} {
						if p[0].Equal(*p[1]) {
							*p[0] = *p[1] // the places of times differ
						}
					}
					if !reflect.DeepEqual(got, &want) {
						t.Errorf("the record is\n%+v, want\n%+v", got, &want)
					}
				}
				checkStructure(t, s)
				if end.Retain == time.Minute {
					pass(time.Minute)
					if got := must(s.Get(t.Context(), []dedupe.Key{k}))[0]; got != nil {
						t.Errorf("an expired record is shown: %+v", got)
					}
				}
			})
		})
	}
}

// TestEvictionTakesTheOldest: a store that is full drops records of its oldest hundredth, and says
// how many.
func TestEvictionTakesTheOldest(t *testing.T) {
	const most = 100_000
	s := mustNew(t, &Options{MaxRecords: most})
	key := func(i int) dedupe.Key { return dedupe.Key{Scope: "orders", Key: strconv.Itoa(i)} }
	for i := range most {
		finish(t, s, key(i))
	}
	if s.Evicted() != 0 {
		t.Fatalf("%d were dropped of a store that was not full", s.Evicted())
	}
	for i := most; i < most+500; i++ {
		finish(t, s, key(i))
	}
	gone := 0
	for i := range most {
		if must(s.Get(t.Context(), []dedupe.Key{key(i)}))[0] == nil {
			gone++
			if i > most*3/100 {
				t.Errorf("record %d of %d was dropped", i, most)
			}
		}
	}
	if uint64(gone) != s.Evicted() || gone < 500 || gone > 510 || s.Len() != most+500-gone {
		t.Errorf("%d are gone, %d were dropped, and %d are there", gone, s.Evicted(), s.Len())
	}
	checkStructure(t, s)
}

func finish(t *testing.T, s *Store, k dedupe.Key) {
	t.Helper()
	if c := must(s.Claim(t.Context(), []dedupe.ClaimRequest{{Key: k, Token: dedupe.Token{1}, TTL: time.Minute, Owner: "w-1", MessageID: "m-1"}}))[0]; c.Outcome != dedupe.Won {
		t.Fatal(c.Outcome, c.Err)
	}
	if a := must(s.Settle(t.Context(), []dedupe.Settlement{{Key: k, Token: dedupe.Token{1}, To: dedupe.Done}}))[0]; a.Err != nil {
		t.Fatal(a.Err)
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
