package dedupetest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/onceq/onceq/dedupe"
)

// This file has the cases of many entries, many callers and second handles. Run calls each in a
// subtest. Callers in goroutines share the store and a value of type race. Its mu guards what they
// count, and how they failed.

// maxTestBatch bounds the batches of the suite.
const maxTestBatch = 1000

func batchCases() []testCase {
	return []testCase{
		{
			Name: "full-batches",
			Rule: "a call of Limits.MaxBatch entries is answered by position, each entry alone; a call of none has no answers",
			Run:  fullBatches,
		},
		{
			Name:  "mixed-batch",
			Rule:  "every entry of a batch is one conditional write, alone: it succeeds or fails without its neighbours",
			Needs: []need{batches},
			Run:   mixedBatch,
		},
		{
			Name:  "a-key-twice-in-a-batch",
			Rule:  "Renew and Settle take a key more than once: the stale entry fails, the live one succeeds, whatever their order",
			Needs: []need{batches},
			Run:   keyTwice,
		},
		{
			Name:  "batches-at-once",
			Rule:  "batches of many callers over the same keys, each sorted by key, never wait for each other for ever, and each key has one winner",
			Needs: []need{batches},
			Run:   func(e *env) { batchesAtOnce(e, e.s) },
		},
		{
			Name:  "batches-at-once-on-two-handles",
			Rule:  "batches of several processes over the same keys, each sorted by key, never wait for each other for ever, and each key has one winner",
			Needs: []need{batches, second},
			Run:   func(e *env) { batchesAtOnce(e, e.s, e.subject.Second(e.TB)) },
		},
	}
}

func fullBatches(e *env) {
	n := min(e.l.MaxBatch, maxTestBatch)
	qs := make([]dedupe.ClaimRequest, n)
	ns, ss := make([]dedupe.Renewal, n), make([]dedupe.Settlement, n)
	ks, fs := make([]dedupe.Key, n), make([]dedupe.Forgotten, n)
	for i := range n {
		k := key(fmt.Sprintf("k%06d", i))
		qs[i], ks[i] = e.request(k), k
		ns[i] = dedupe.Renewal{Key: k, Token: qs[i].Token, TTL: 2 * ttl, State: fmt.Appendf(nil, "state %d", i), StateNo: 1}
		ss[i] = dedupe.Settlement{Key: k, Token: qs[i].Token, To: dedupe.Done, Result: fmt.Appendf(nil, "result %d", i)}
	}
	start := time.Now()
	cs := e.claimAll(qs)
	for i := range cs {
		e.expectClaim(&qs[i], &cs[i], start, time.Now())
		fs[i] = dedupe.Forgotten{Key: ks[i], Fence: cs[i].Lease.Fence}
	}
	for i, r := range e.renewAll(ns) {
		e.expectRenew(&ns[i], &r, start, time.Now())
	}
	e.getAll(ks)
	for i, a := range e.settleAll(ss) {
		e.expectSettle(&ss[i], &a, start)
	}
	slices.Reverse(ks)
	e.getAll(ks)
	errs, err := e.s.Forget(e.Context(), fs)
	e.OK(err, "Forget")
	if len(errs) != n {
		e.Fatalf("Forget of %d entries gave %d answers", n, len(errs))
	}
	for i := range errs {
		e.Want("Forget", errs[i], e.m.forget(fs[i]))
	}
	e.getAll(ks)

	e.Doing = "the batch is empty"
	e.claimAll(nil)
	e.renewAll(nil)
	e.settleAll(nil)
	e.getAll(nil)
	errs, err = e.s.Forget(e.Context(), nil)
	e.OK(err, "Forget")
	if len(errs) != 0 {
		e.Errorf("Forget of no entries gave %d answers", len(errs))
	}
}

// getAll compares the records of ks with the model's, in one call.
func (e *env) getAll(ks []dedupe.Key) {
	e.Helper()
	rs, err := e.s.Get(e.Context(), ks)
	e.OK(err, "Get")
	if len(rs) != len(ks) {
		e.Fatalf("Get of %d keys gave %d answers", len(ks), len(rs))
	}
	for i, r := range rs {
		want := e.m.live(ks[i])
		if (r == nil) != (want == nil) {
			e.Fatalf("Get of key %d was answered %s, want %s", i, brief(r), brief(want))
		}
		if r != nil {
			e.equal("a record of the batch", r, want)
		}
	}
}

func mixedBatch(e *env) {
	live, done, none := key("a-live"), key("b-done"), key("c-none")
	q := e.request(live)
	e.claim(q)
	d := e.request(done)
	e.claim(d)
	e.settle(dedupe.Settlement{Key: done, Token: d.Token, To: dedupe.Done, Result: []byte("result")})

	qs := []dedupe.ClaimRequest{e.request(live), e.request(done), e.request(none)}
	start := time.Now()
	cs := e.claimAll(qs)
	for i := range cs {
		e.expectClaim(&qs[i], &cs[i], start, time.Now())
	}
	ns := []dedupe.Renewal{
		{Key: none, Token: q.Token, TTL: ttl},
		{Key: live, Token: q.Token, TTL: 2 * ttl, Started: true},
		{Key: done, Token: d.Token, TTL: ttl, State: []byte("late"), StateNo: 9},
	}
	for i, r := range e.renewAll(ns) {
		e.expectRenew(&ns[i], &r, start, time.Now())
	}
	ss := []dedupe.Settlement{
		{Key: done, Token: d.Token, To: dedupe.Failed},
		{Key: none, Token: q.Token, To: dedupe.Done},
		{Key: live, Token: q.Token, To: dedupe.Released, ErrClass: "a", ErrText: "b"},
		{Key: key("never"), Token: q.Token, To: dedupe.Done},
	}
	for i, a := range e.settleAll(ss) {
		e.expectSettle(&ss[i], &a, start)
	}
	e.getAll([]dedupe.Key{done, key("never"), live, none, live})
}

func keyTwice(e *env) {
	for _, staleFirst := range []bool{true, false} {
		e.Doing = fmt.Sprintf("the stale entry comes first: %v", staleFirst)
		k := key(fmt.Sprintf("k-%v", staleFirst))
		old := e.request(k)
		e.claim(old)
		e.age(k, 2*ttl)
		q := e.request(k)
		e.claim(q)
		tokens := []dedupe.Token{q.Token, old.Token, q.Token}
		if staleFirst {
			tokens = []dedupe.Token{old.Token, q.Token, old.Token}
		}
		var ns []dedupe.Renewal
		var ss []dedupe.Settlement
		for _, t := range tokens {
			ns = append(ns, dedupe.Renewal{Key: k, Token: t, TTL: 2 * ttl, Started: t == q.Token})
			ss = append(ss, dedupe.Settlement{Key: k, Token: t, To: dedupe.Done, Result: fmt.Appendf(nil, "same %v", t == q.Token)})
		}
		start := time.Now()
		for i, r := range e.renewAll(ns) {
			e.expectRenew(&ns[i], &r, start, time.Now())
		}
		e.stored(k)
		for i, a := range e.settleAll(ss) {
			e.expectSettle(&ss[i], &a, start)
		}
		e.stored(k)
	}
}

// batchesAtOnce lets callers claim overlapping batches until each key is done, and settle what they
// have won.
func batchesAtOnce(e *env, handles ...dedupe.Store) {
	const keys, callers = 40, 8
	r := &race{e: e, done: make(map[dedupe.Key]int)}
	var wg sync.WaitGroup
	for c := range callers {
		s := handles[c%len(handles)]
		tokens := make([]dedupe.Token, keys)
		for n := range tokens {
			tokens[n] = e.token()
		}
		wg.Go(func() {
			for from := range keys {
				var qs []dedupe.ClaimRequest
				for i := range min(e.l.MaxBatch, 10) {
					n := (from + i*(c+1)) % keys
					qs = append(qs, dedupe.ClaimRequest{Key: key(fmt.Sprintf("k%02d", n)), Token: tokens[n], TTL: ttl})
				}
				slices.SortFunc(qs, func(a, b dedupe.ClaimRequest) int { return strings.Compare(a.Key.Key, b.Key.Key) })
				qs = slices.CompactFunc(qs, func(a, b dedupe.ClaimRequest) bool { return a.Key == b.Key })
				if err := r.batch(s, qs); err != nil {
					r.fail(fmt.Errorf("caller %d: %w", c, err))
					return
				}
			}
		})
	}
	wg.Wait()
	if r.failed != nil {
		e.Fatalf("%v", r.failed)
	}
	for n := range keys {
		if k := key(fmt.Sprintf("k%02d", n)); r.done[k] != 1 {
			e.Errorf("%s was won by %d callers, want 1", k, r.done[k])
		}
	}
}

// race counts who has done what.
type race struct {
	e      *env
	mu     sync.Mutex
	done   map[dedupe.Key]int
	failed error
}

func (r *race) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed = errors.Join(r.failed, err)
}

// batch claims qs and settles what was won.
func (r *race) batch(s dedupe.Store, qs []dedupe.ClaimRequest) error {
	var cs []dedupe.Claim
	err := r.e.untilKnown(len(qs), func() (n int, at func(int) error, err error) {
		cs, err = s.Claim(r.e.Context(), qs)
		return len(cs), func(i int) error { return cs[i].Err }, err
	})
	if err != nil {
		return fmt.Errorf("the call Claim: %w", err)
	}
	var ss []dedupe.Settlement
	for i := range cs {
		if cs[i].Outcome == dedupe.Won {
			ss = append(ss, dedupe.Settlement{Key: qs[i].Key, Token: qs[i].Token, To: dedupe.Done})
		}
	}
	var as []dedupe.Settled
	err = r.e.untilKnown(len(ss), func() (n int, at func(int) error, err error) {
		as, err = s.Settle(r.e.Context(), ss)
		return len(as), func(i int) error { return as[i].Err }, err
	})
	if err != nil {
		return fmt.Errorf("the call Settle: %w", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range as {
		if as[i].Status != dedupe.Done {
			return fmt.Errorf("a settlement of %s was answered %v", ss[i].Key, as[i].Status)
		}
		r.done[ss[i].Key]++
	}
	return nil
}

// untilKnown repeats a call of n entries while the store is too busy for any of them.
func (e *env) untilKnown(n int, call func() (n int, at func(int) error, err error)) error {
	for n > 0 {
		got, at, err := call()
		if err == nil && got != n {
			return fmt.Errorf("%d entries were given %d answers", n, got)
		}
		for i := 0; err == nil && i < n; i++ {
			err = at(i)
		}
		switch {
		case err == nil:
			return nil
		case !errors.Is(err, dedupe.ErrBusy):
			return err
		case !e.Pause(time.Millisecond): // lets a busy store do its work
			return e.Context().Err()
		}
	}
	return nil
}
