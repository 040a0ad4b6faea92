package dynamostore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/smithy-go/middleware"

	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/must"
)

// before makes do run before the n-th write of s, from 1: what a rival does meanwhile.
func before(tb testing.TB, s *Store, n int, do func()) *Store {
	tb.Helper()
	var writes atomic.Int64
	return beforeEach(tb, s, func() {
		if int(writes.Add(1)) == n {
			do()
		}
	})
}

// beforeEach makes do run before each write of s.
func beforeEach(tb testing.TB, s *Store, do func()) *Store {
	tb.Helper()
	return hooked(tb, s, func(op string) {
		if op == "PutItem" || op == "UpdateItem" {
			do()
		}
	})
}

// hooked makes do run before each request of s.
func hooked(tb testing.TB, s *Store, do func(op string)) *Store {
	tb.Helper()
	hook := func(stack *middleware.Stack) error {
		return stack.Initialize.Add(middleware.InitializeMiddlewareFunc("before",
			func(ctx context.Context, in middleware.InitializeInput, next middleware.InitializeHandler) (middleware.InitializeOutput, middleware.Metadata, error) {
				do(awsmiddleware.GetOperationName(ctx))
				return next.HandleInitialize(ctx, in)
			}), middleware.After)
	}
	o := must.Get(New(openClient(tb, func(o *dynamodb.Options) { o.APIOptions = append(o.APIOptions, hook) }), s.table, &Options{TTLAttribute: s.ttl}))
	o.leaveOut = s.leaveOut
	return o
}

// A guarded case fails when one of the conditions that it is about is left out. s is the store
// whose conditions are looked at, and other a sound one.
type guarded struct {
	name string
	run  func(tb testing.TB, s, other *Store) error
}

var guardedCases = []guarded{
	{"a claim does not write over another", func(tb testing.TB, s, other *Store) error {
		l := claimOne(tb, other, request("live"))
		return expectHeld(tb, s, request("live"), l)
	}},
	{"no later claim writes over another", func(tb testing.TB, s, other *Store) error {
		claimOne(tb, s, request("the first"))
		l := claimOne(tb, other, request("live, too"))
		return expectHeld(tb, s, request("live, too"), l)
	}},
	{"a takeover does not write over a renewal", func(tb testing.TB, s, other *Store) error {
		l := claimOne(tb, other, request("renewed"))
		age(tb, other, l.Key, time.Hour)
		s = before(tb, s, 2, func() {
			if err := renewOne(tb, other, dedupe.Renewal{Key: l.Key, Token: l.Token, TTL: time.Hour}); err != nil {
				tb.Error(err)
			}
		})
		return expectHeld(tb, s, request("renewed"), l)
	}},
	{"a takeover does not write over a record that was deleted and made anew", func(tb testing.TB, s, other *Store) error {
		l := claimOne(tb, other, request("deleted"))
		age(tb, other, l.Key, time.Hour)
		s = before(tb, s, 2, func() {
			deleteRaw(tb, other, l.Key)
			l = claimOne(tb, other, request("deleted"))
		})
		q := request("deleted")
		c := claimAll(tb, s, q)[0]
		if r := get(tb, other, q.Key); c.Outcome != dedupe.InProgress || r.Token != l.Token {
			return fmt.Errorf("answered %v; the record is %+v", c.Outcome, r)
		}
		return nil
	}},
	{"Forget leaves what was claimed anew", func(tb testing.TB, s, other *Store) error {
		l := claimOne(tb, other, request("forgotten"))
		settleOne(tb, other, l, dedupe.Released)
		var again dedupe.Lease
		s = before(tb, s, 1, func() { again = claimOne(tb, other, request("forgotten")) })
		errs, err := s.Forget(tb.Context(), []dedupe.Forgotten{{Key: l.Key, Fence: l.Fence}})
		if err != nil || !errors.Is(errs[0], dedupe.ErrLeaseLost) {
			return fmt.Errorf("answered %v, %v", errs, err)
		}
		if r := get(tb, other, l.Key); r.Token != again.Token {
			return fmt.Errorf("the record is %+v", r)
		}
		return nil
	}},
	{"a worker that does not know the time touches no other's claim", func(tb testing.TB, s, other *Store) error {
		old, now := overtaken(tb, other, "first call")
		was := rawItem(tb, other, now.Key)
		s = beforeEach(tb, s, func() {})
		err := renewOne(tb, s, dedupe.Renewal{Key: old.Key, Token: old.Token, TTL: 9 * time.Hour, State: []byte("stolen"), StateNo: 9})
		if is := rawItem(tb, other, now.Key); versionOf(is) != versionOf(was) {
			return fmt.Errorf("the version was %d and is %d", versionOf(was), versionOf(is))
		}
		return unchanged(tb, other, now, dedupe.Claimed, err)
	}},
	{"a stale token renews nothing", func(tb testing.TB, s, other *Store) error {
		old, now := overtaken(tb, other, "renew")
		err := renewOne(tb, s, dedupe.Renewal{Key: old.Key, Token: old.Token, TTL: 9 * time.Hour, State: []byte("stolen"), StateNo: 9})
		return unchanged(tb, other, now, dedupe.Claimed, err)
	}},
	{"a claim that has ended is not renewed", func(tb testing.TB, s, other *Store) error {
		l := claimOne(tb, other, request("ended"))
		age(tb, other, l.Key, time.Hour)
		settleOne(tb, other, l, dedupe.Parked)
		// A parked record has no lease, which a renewal would have to be longer than, so it gets
		// one here.
		it := rawItem(tb, other, l.Key)
		it[attrLease] = number(1)
		putRaw(tb, other, it)
		err := renewOne(tb, s, dedupe.Renewal{Key: l.Key, Token: l.Token, TTL: time.Hour, State: []byte("stolen"), StateNo: 9})
		return unchanged(tb, other, l, dedupe.Parked, err)
	}},
	{"a renewal shortens no lease", func(tb testing.TB, s, other *Store) error {
		q := request("shortened")
		q.TTL = 5 * time.Hour
		l := claimOne(tb, other, q)
		was := get(tb, other, l.Key).LeaseUntil
		if err := renewOne(tb, s, dedupe.Renewal{Key: l.Key, Token: l.Token, TTL: time.Minute}); err != nil {
			return err
		}
		if is := get(tb, other, l.Key).LeaseUntil; !is.Equal(was) {
			return fmt.Errorf("the lease ended at %v and ends at %v", was, is)
		}
		return nil
	}},
	{"a renewal of a longer lease does not touch another's", func(tb testing.TB, s, other *Store) error {
		q := request("longer, overtaken")
		q.TTL = 5 * time.Hour
		old := claimOne(tb, other, q)
		var now dedupe.Lease
		s = before(tb, s, 3, func() { // the first one asks for the time
			age(tb, other, old.Key, 9*time.Hour)
			now = claimOne(tb, other, request(q.Key.Key))
		})
		err := renewOne(tb, s, dedupe.Renewal{Key: old.Key, Token: old.Token, TTL: time.Minute, State: []byte("stolen"), StateNo: 9})
		return unchanged(tb, other, now, dedupe.Claimed, err)
	}},
	{"a renewal of a longer lease does not touch what has ended", func(tb testing.TB, s, other *Store) error {
		q := request("longer, ended")
		q.TTL = 5 * time.Hour
		l := claimOne(tb, other, q)
		s = before(tb, s, 3, func() { settleOne(tb, other, l, dedupe.Done) })
		err := renewOne(tb, s, dedupe.Renewal{Key: l.Key, Token: l.Token, TTL: time.Minute, State: []byte("stolen"), StateNo: 9})
		return unchanged(tb, other, l, dedupe.Done, err)
	}},
	{"a late state does not take the place of a newer one", func(tb testing.TB, s, other *Store) error {
		l := claimOne(tb, other, request("late state"))
		save(tb, other, l, "two", 2, time.Minute)
		save(tb, s, l, "one", 1, time.Hour)
		return saved(tb, other, l, "two")
	}},
	{"a late state with a longer lease does not, either", func(tb testing.TB, s, other *Store) error {
		q := request("late state, longer")
		q.TTL = 5 * time.Hour
		l := claimOne(tb, other, q)
		s = before(tb, s, 3, func() { save(tb, other, l, "two", 2, time.Minute) })
		save(tb, s, l, "one", 1, time.Minute)
		return saved(tb, other, l, "two")
	}},
	{"a stale token settles nothing", func(tb testing.TB, s, other *Store) error {
		for _, to := range []dedupe.Status{dedupe.Done, dedupe.Failed, dedupe.Released, dedupe.Parked} {
			old, now := overtaken(tb, other, to.String())
			_, err := settle(tb, s, dedupe.Settlement{Key: old.Key, Token: old.Token, To: to, Result: []byte("stolen")})
			if err := unchanged(tb, other, now, dedupe.Claimed, err); err != nil {
				return fmt.Errorf("to %v: %w", to, err)
			}
		}
		return nil
	}},
	{"what is settled is not settled again", func(tb testing.TB, s, other *Store) error {
		for _, to := range []dedupe.Status{dedupe.Failed, dedupe.Parked, dedupe.Released} {
			l := claimOne(tb, other, request("again-"+to.String()))
			settleOne(tb, other, l, dedupe.Done)
			st, err := settle(tb, s, dedupe.Settlement{Key: l.Key, Token: l.Token, To: to})
			if r := get(tb, other, l.Key); err != nil || st != dedupe.Done || r.Status != dedupe.Done {
				return fmt.Errorf("to %v: answered %v, %v; the record is %+v", to, st, err, r)
			}
		}
		return nil
	}},
	{"a late release of a parked claim leaves it parked", func(tb testing.TB, s, other *Store) error {
		l := claimOne(tb, other, request("late release"))
		settleOne(tb, other, l, dedupe.Parked)
		return noted(tb, s, other, l, dedupe.Parked, dedupe.Parked)
	}},
	{"a late release does not write over a later word", func(tb testing.TB, s, other *Store) error {
		l := claimOne(tb, other, request("late release, done"))
		settleOne(tb, other, l, dedupe.Parked)
		s = before(tb, s, 3, func() { settleOne(tb, other, l, dedupe.Done) }) // the first one asks for the time
		return noted(tb, s, other, l, dedupe.Done, dedupe.Done)
	}},
	{"a late release says nothing of another's parked claim", func(tb testing.TB, s, other *Store) error {
		l := claimOne(tb, other, request("late release, replayed"))
		settleOne(tb, other, l, dedupe.Parked)
		s = before(tb, s, 3, func() {
			q := request("late release, replayed")
			q.Reopen = l.Fence
			settleOne(tb, other, claimOne(tb, other, q), dedupe.Parked)
		})
		return noted(tb, s, other, l, 0, dedupe.Parked)
	}},
	{"what a host that stood still puts right is its own end only", func(tb testing.TB, s, other *Store) error {
		var now dedupe.Lease
		s = before(tb, s, 3, func() { now = claimOne(tb, other, request("stood still")) })
		l := claimOne(tb, s, request("stood still"))
		s.clock.least -= 2 * time.Hour
		s.clock.most -= 2 * time.Hour
		settleOne(tb, s, l, dedupe.Released)
		if it := rawItem(tb, other, l.Key); now.Fence == 0 || it[other.ttl] != nil {
			return fmt.Errorf("the next claim is %+v, and its item %v", now, it)
		}
		return nil
	}},
	{"a joined settlement makes no record", func(tb testing.TB, s, other *Store) error {
		q := request("joined")
		as, err := s.Settle(tb.Context(), []dedupe.Settlement{{Key: q.Key, Token: q.Token, To: dedupe.Done, Joined: true}})
		if it := rawItem(tb, other, q.Key); err != nil || !errors.Is(as[0].Err, dedupe.ErrLeaseLost) || len(it) > 0 {
			return fmt.Errorf("answered %v, %v; the item is %v", as, err, it)
		}
		return nil
	}},
	{"a stale token completes nothing", func(tb testing.TB, s, other *Store) error {
		old, now := overtaken(tb, other, "commit")
		err := s.Commit(tb.Context(), &job{Of: old}, "stolen")
		return unchanged(tb, other, now, dedupe.Claimed, err)
	}},
	{"what is settled is not completed", func(tb testing.TB, s, other *Store) error {
		l := claimOne(tb, other, request("completed"))
		settleOne(tb, other, l, dedupe.Failed)
		err := s.Commit(tb.Context(), &job{Of: l}, "stolen")
		return unchanged(tb, other, l, dedupe.Failed, err)
	}},
}

// noted releases a parked claim late, and reports whether it was answered so and the record stays.
func noted(tb testing.TB, s, other *Store, l dedupe.Lease, answer, is dedupe.Status) error {
	tb.Helper()
	st, err := settle(tb, s, dedupe.Settlement{Key: l.Key, Token: l.Token, To: dedupe.Released, ErrClass: "bank", ErrText: "stolen"})
	r := get(tb, other, l.Key)
	if lost := errors.Is(err, dedupe.ErrLeaseLost); st != answer || lost != (answer == 0) || r.Status != is || (r.LastErr != "") != (answer == dedupe.Parked) {
		return fmt.Errorf("answered %v, %v; the record is %+v", st, err, r)
	}
	return nil
}

func save(tb testing.TB, s *Store, l dedupe.Lease, state string, no int, ttl time.Duration) {
	tb.Helper()
	if err := renewOne(tb, s, dedupe.Renewal{Key: l.Key, Token: l.Token, TTL: ttl, State: []byte(state), StateNo: no}); err != nil {
		tb.Error(err)
	}
}

func saved(tb testing.TB, s *Store, l dedupe.Lease, want string) error {
	tb.Helper()
	if r := get(tb, s, l.Key); string(r.State) != want {
		return fmt.Errorf("the state is %q, number %d; want %q", r.State, r.StateNo, want)
	}
	return nil
}

func versionOf(it item) uint64 {
	d := decoder{it: it}
	return d.count(attrVersion)
}

// overtaken is a claim whose key another one has taken.
func overtaken(tb testing.TB, s *Store, key string) (old, now dedupe.Lease) {
	tb.Helper()
	old = claimOne(tb, s, request("overtaken-"+key))
	age(tb, s, old.Key, time.Hour)
	return old, claimOne(tb, s, request("overtaken-"+key))
}

// expectHeld claims what l holds.
func expectHeld(tb testing.TB, s *Store, q dedupe.ClaimRequest, l dedupe.Lease) error {
	tb.Helper()
	c := claimAll(tb, s, q)[0]
	if r := get(tb, s, q.Key); c.Outcome != dedupe.InProgress || r.Token != l.Token || r.Fence != l.Fence {
		return fmt.Errorf("answered %v; the record is %+v", c.Outcome, r)
	}
	return nil
}

// unchanged reports whether err is ErrLeaseLost and l's record as it was.
func unchanged(tb testing.TB, s *Store, l dedupe.Lease, want dedupe.Status, err error) error {
	tb.Helper()
	if l.Fence == 0 {
		return fmt.Errorf("answered %v before the rival came", err)
	}
	r := get(tb, s, l.Key)
	if !errors.Is(err, dedupe.ErrLeaseLost) || r.Token != l.Token || r.Status != want || string(r.State) == "stolen" || string(r.Result) == "stolen" || string(r.Result) == `"stolen"` {
		return fmt.Errorf("answered %v; the record is %+v", err, r)
	}
	return nil
}

// TestConditions: each case holds, and each condition of each write is needed by one of them:
// without it the case fails.
func TestConditions(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	type place struct{ kind, clause string }
	seen := make(map[place]bool)
	noting := func(kind string, c *clause) bool {
		mu.Lock()
		defer mu.Unlock()
		seen[place{kind, c.name}] = true
		return false
	}
	// What each case fails without.
	try := func(leaveOut func(string, *clause) bool) (failed []string) {
		other := openStore(t)
		s := second(t, other)
		s.leaveOut = leaveOut
		for _, c := range guardedCases {
			if err := c.run(t, s, other); err != nil {
				failed = append(failed, fmt.Sprintf("%s: %v", c.name, err))
			}
		}
		return failed
	}
	if failed := try(noting); len(failed) > 0 {
		t.Fatalf("with all conditions: %q", failed)
	}
	want := []place{
		{"first insert", isAbsent.name},
		{"insert", isAbsent.name},
		{"swap", sameFence.name},
		{"swap", sameVersion.name},
		{"renew", ownToken.name},
		{"renew", stillClaimed.name},
		{"renew", notLonger.name},
		{"renew", olderState.name},
		{"renew a longer lease", olderState.name},
		{"renew a longer lease", ownToken.name},
		{"renew a longer lease", stillClaimed.name},
		{"settle", ownToken.name},
		{"settle", notSettled.name},
		{"release", ownToken.name},
		{"release", stillClaimed.name},
		{"note", ownToken.name},
		{"note", stillParked.name},
		{"park", ownToken.name},
		{"park", stillClaimed.name},
		{"touch", ownToken.name},
		{"redate", ownToken.name},
		{"complete", ownToken.name},
		{"complete", notSettled.name},
	}
	for _, p := range want {
		if !seen[p] {
			t.Errorf("no write %q had the condition %q", p.kind, p.clause)
		}
	}
	for p := range seen {
		if !slices.Contains(want, p) {
			t.Errorf("the write %q has a condition that this test does not know: %q", p.kind, p.clause)
		}
		failed := try(func(kind string, c *clause) bool { return kind == p.kind && c.name == p.clause })
		if len(failed) == 0 {
			t.Errorf("the write %q without its condition %q fails no case", p.kind, p.clause)
		}
		for _, f := range failed {
			t.Logf("%s without %q: %s", p.kind, p.clause, f)
		}
	}
}
