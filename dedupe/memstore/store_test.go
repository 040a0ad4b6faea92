package memstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/retry"
)

const (
	ttl    = time.Minute
	retain = time.Hour
)

// tester makes single calls.
type tester struct {
	*testing.T
	*Store
	n byte
}

func newTester(t *testing.T, o *Options) *tester {
	t.Helper()
	return &tester{T: t, Store: mustNew(t, o)}
}

// pass lets time go by in a bubble.
func pass(d time.Duration) {
	retry.Rest(context.Background(), d)
}

func name(s string) dedupe.Key { return dedupe.Key{Scope: "test", Key: s} }

func (t *tester) claimOne(key string) (dedupe.Claim, dedupe.Token) {
	t.Helper()
	t.n++
	token := dedupe.Token{1, t.n}
	cs, err := t.Store.Claim(t.Context(), []dedupe.ClaimRequest{{Key: name(key), Token: token, TTL: ttl}})
	if err != nil {
		t.Fatal(err)
	}
	return cs[0], token
}

// put claims key, and settles it to a status other than claimed.
func (t *tester) put(key string, to dedupe.Status, keep time.Duration) {
	t.Helper()
	c, token := t.claimOne(key)
	if c.Outcome != dedupe.Won {
		t.Fatalf("the claim of %s was answered %v, %v", key, c.Outcome, c.Err)
	}
	if to == dedupe.Claimed {
		return
	}
	as, err := t.Store.Settle(t.Context(), []dedupe.Settlement{{Key: name(key), Token: token, To: to, Retain: keep}})
	if err != nil || as[0].Err != nil {
		t.Fatal(err, as)
	}
}

func (t *tester) wantKept(keys ...string) {
	t.Helper()
	var got []string
	for r, err := range t.Store.List(t.Context(), dedupe.Query{}) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, r.Key.Key)
	}
	slices.Sort(keys)
	if !slices.Equal(got, keys) {
		t.Errorf("the store holds %q, want %q", got, keys)
	}
}

func TestOptions(t *testing.T) {
	s := mustNew(t, nil)
	if l := s.Limits(); l != (dedupe.Limits{MaxResult: DefaultMaxResult, MaxBatch: DefaultMaxBatch}) || s.most != DefaultMaxRecords {
		t.Errorf("the defaults are %+v, %d", l, s.most)
	}
	s = mustNew(t, &Options{MaxRecords: 3, MaxResult: 2, MaxBatch: 1})
	if l := s.Limits(); l != (dedupe.Limits{MaxResult: 2, MaxBatch: 1}) || s.most != 3 {
		t.Errorf("the limits are %+v, %d", l, s.most)
	}
	for field, o := range map[string]*Options{
		"MaxRecords": {MaxRecords: -1},
		"MaxResult":  {MaxResult: -1},
		"MaxBatch":   {MaxBatch: -1},
	} {
		if s, err := New(o); err == nil || s != nil || !strings.Contains(err.Error(), "Options."+field+" is -1") {
			t.Errorf("New with %s -1 gave %v, %v", field, s, err)
		}
	}
}

func TestBatchOverLimit(t *testing.T) {
	s := mustNew(t, &Options{MaxBatch: 2})
	ctx := t.Context()
	calls := map[string]func(n int) error{
		"Claim":  func(n int) error { _, err := s.Claim(ctx, make([]dedupe.ClaimRequest, n)); return err },
		"Renew":  func(n int) error { _, err := s.Renew(ctx, make([]dedupe.Renewal, n)); return err },
		"Settle": func(n int) error { _, err := s.Settle(ctx, make([]dedupe.Settlement, n)); return err },
		"Get":    func(n int) error { _, err := s.Get(ctx, make([]dedupe.Key, n)); return err },
		"Forget": func(n int) error { _, err := s.Forget(ctx, make([]dedupe.Forgotten, n)); return err },
	}
	for call, f := range calls {
		if err := f(2); err != nil {
			t.Errorf("%s of 2 entries was answered %v", call, err)
		}
		if err := f(3); !errors.Is(err, dedupe.ErrBadRequest) {
			t.Errorf("%s of 3 entries was answered %v", call, err)
		}
	}
}

// The fence goes on where it was after Forget, and in the next store, even at the same instant.
func TestFence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var last uint64
		rises := func(s *tester) {
			t.Helper()
			c, _ := s.claimOne("k")
			if c.Outcome != dedupe.Won || c.Lease.Fence <= last {
				t.Errorf("the fence is %d after %d", c.Lease.Fence, last)
			}
			last = c.Lease.Fence
		}
		for range 3 {
			s := newTester(t, nil)
			for range 100 {
				rises(s)
				errs, err := s.Forget(t.Context(), []dedupe.Forgotten{{Key: name("k"), Fence: last, Force: true}})
				if err != nil || errs[0] != nil {
					t.Fatal(err, errs)
				}
			}
		}
	})
	before := uint64(time.Now().UnixMicro())
	c, _ := newTester(t, nil).claimOne("k")
	if c.Lease.Fence <= before {
		t.Errorf("the fence is %d, at %d µs: a store of an earlier process may have given it", c.Lease.Fence, before)
	}
}

// A record that is removed gives its memory back to the next one, and nothing of it is seen again.
func TestRecordsAreReused(t *testing.T) {
	s := newTester(t, &Options{MaxRecords: 1})
	for i := range 100 {
		key := fmt.Sprint(i)
		c, token := s.claimOne(key)
		if !c.Fresh || c.State != nil || c.FirstErr != "" {
			t.Fatalf("claim %d was answered %+v", i, c)
		}
		if _, err := s.Renew(t.Context(), []dedupe.Renewal{{Key: name(key), Token: token, TTL: ttl, Started: true, State: []byte("x"), StateNo: 1}}); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Settle(t.Context(), []dedupe.Settlement{{Key: name(key), Token: token, To: dedupe.Done, Result: []byte("x")}}); err != nil {
			t.Fatal(err)
		}
	}
	sizes := 0
	for i := range s.shards {
		sizes += s.shards[i].size
	}
	if sizes > shardCount {
		t.Errorf("%d entries were allocated for 1 record", sizes)
	}
}

func TestConcurrent(t *testing.T) {
	const most, workers, rounds = 100, 8, 300
	s := mustNew(t, &Options{MaxRecords: most})
	ctx := t.Context()
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := range rounds {
				k := name(fmt.Sprint(w, "-", i%40))
				token := dedupe.Token{1, byte(w), byte(i), byte(i >> 8)}
				cs, err := s.Claim(ctx, []dedupe.ClaimRequest{{Key: k, Token: token, TTL: ttl}})
				if err != nil || cs[0].Err != nil {
					t.Error(err, cs)
					return
				}
				if cs[0].Outcome == dedupe.Won {
					to := dedupe.Done
					if i%5 == 0 {
						to = dedupe.Released
					}
					as, err := s.Settle(ctx, []dedupe.Settlement{{Key: k, Token: token, To: to, Retain: time.Duration(1+i%3) * time.Microsecond}})
					if err != nil || as[0].Err != nil && !errors.Is(as[0].Err, dedupe.ErrLeaseLost) {
						t.Error(err, as)
					}
				}
				if n := s.Len(); n > most {
					t.Errorf("the store holds %d records, the bound is %d", n, most)
				}
				switch i % 20 {
				case 0:
					for _, err := range s.List(ctx, dedupe.Query{}) {
						if err != nil {
							t.Error(err)
						}
					}
				case 10:
					if _, err := s.Forget(ctx, []dedupe.Forgotten{{Key: k, Fence: cs[0].Lease.Fence, Force: true}}); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	wg.Wait()
	checkStructure(t, s)
}

// checkStructure compares all that is counted or linked twice.
func checkStructure(t *testing.T, s *Store) {
	t.Helper()
	total := 0
	for i := range s.shards {
		sh := &s.shards[i]
		n, dated, done := 0, 0, 0
		for e := range sh.table.all() {
			n++
			r := *sh.load(e, time.Now())
			if !r.Expires.IsZero() {
				dated++
			}
			if r.Status == dedupe.Done {
				done++
			}
			if s.shard(e.hash) != sh || sh.find(e.hash, e.key()) != e {
				t.Errorf("%v is not found", e.key())
			}
		}
		if n != sh.table.n {
			t.Errorf("a shard counts %d entries and has %d", sh.table.n, n)
		}
		total += n
		if got := count(&sh.queue.inOrder) + sh.queue.heap.Len(); got != dated {
			t.Errorf("%d records expire and %d are queued", dated, got)
		}
		if got := count(&sh.done); got != done {
			t.Errorf("%d records are done and %d are listed", done, got)
		}
	}
	if total != s.Len() {
		t.Errorf("the store counts %d records and has %d", s.Len(), total)
	}
}

func count(l *list) int {
	n := 0
	for e := l.first; e != nil; e = e.nodes[l.which].next {
		n++
	}
	return n
}

func TestListEndsWhenCancelled(t *testing.T) {
	s := newTester(t, nil)
	for i := range 10 {
		s.put(fmt.Sprint(i), dedupe.Done, 0)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	seen, errs := 0, 0
	for _, err := range s.List(ctx, dedupe.Query{}) {
		if err != nil {
			errs++
			continue
		}
		if seen++; seen == 3 {
			cancel()
		}
	}
	if seen != 3 || errs != 1 {
		t.Errorf("after a cancellation at the third record there were %d records and %d errors", seen, errs)
	}
}

// A record that changes while a list goes on must still be what was asked for when its turn comes.
func TestListChecksAgain(t *testing.T) {
	s := newTester(t, nil)
	s.put("a", dedupe.Claimed, 0)
	_, token := s.claimOne("b")
	var got []string
	for r, err := range s.List(t.Context(), dedupe.Query{Status: dedupe.Claimed}) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, r.Key.Key)
		if _, err := s.Settle(t.Context(), []dedupe.Settlement{{Key: name("b"), Token: token, To: dedupe.Done}}); err != nil {
			t.Fatal(err)
		}
	}
	if !slices.Equal(got, []string{"a"}) {
		t.Errorf("the list of claimed records gave %q, want a alone", got)
	}
}

// While a claim makes room its shard is unlocked, and another may make the same record.
func TestOneWinnerInAFullStore(t *testing.T) {
	const most, workers = 4, 4
	s := newTester(t, &Options{MaxRecords: most})
	for i := range most {
		s.put(fmt.Sprint("old", i), dedupe.Done, 0)
	}
	for round := range 2000 {
		key := name(fmt.Sprint("new", round))
		var won [workers]bool
		var wg sync.WaitGroup
		gate := make(chan struct{})
		for w := range workers {
			q := []dedupe.ClaimRequest{{Key: key, Token: dedupe.Token{2, byte(w)}, TTL: ttl}}
			wg.Go(func() {
				<-gate
				cs, err := s.Claim(t.Context(), q)
				if err != nil || cs[0].Err != nil {
					t.Error(err, cs)
					return
				}
				if won[w] = cs[0].Outcome == dedupe.Won; !won[w] {
					return
				}
				if _, err := s.Settle(t.Context(), []dedupe.Settlement{{Key: key, Token: q[0].Token, To: dedupe.Done}}); err != nil {
					t.Error(err)
				}
			})
		}
		close(gate)
		wg.Wait()
		n := 0
		for _, w := range won {
			if w {
				n++
			}
		}
		if n != 1 || s.Len() > most {
			t.Fatalf("round %d: %d callers have won, and there are %d records; want 1 and at most %d", round, n, s.Len(), most)
		}
	}
	checkStructure(t, s.Store)
}
