package pgstore

import (
	"context"
	"errors"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/storetest"
)

// TestChangedMeanwhile: between the reading of a record and the writing of what the table makes of
// it, somebody else changes it. The write must not happen, and the answer is what is so now.
func TestChangedMeanwhile(t *testing.T) {
	pool := openPool(t)
	counting := &counted{DB: pool}
	s := newStore(t, counting, newTable())
	other := newStore(t, pool, s.sql().name)
	rivals := storetest.Rivals(t, other, func(k dedupe.Key) { age(t, pool, s, k, 2*time.Hour) })
	for name, c := range rivals {
		q := request(name)
		q.Policy = dedupe.Park
		l := claimOne(t, s, q)
		age(t, pool, s, q.Key, time.Hour)
		counting.trips.Store(0)
		counting.before = func() {
			if counting.trips.Load() == 2 {
				c.Act(l)
			}
		}
		q.Token = newToken()
		got := claimAll(t, s, q)[0]
		counting.before = nil
		r := get(t, s, q.Key)
		if got.Outcome != c.Want || (r.Token == q.Token) != (c.Want == dedupe.Won) {
			t.Errorf("%s: answered %v, want %v; the record is %+v", name, got.Outcome, c.Want, r)
		}
		if c.Want == dedupe.Won && (got.Lease.Fence != r.Fence || r.Fence <= l.Fence || !got.Created.Equal(r.Created)) {
			t.Errorf("%s: the lease is %+v, the record %+v, the fence was %d", name, got.Lease, r, l.Fence)
		}
	}
}

// TestForgetChangedMeanwhile: a record that is changed while it is being forgotten stays. The owner
// of a dead claim changes neither fence nor status when it renews.
func TestForgetChangedMeanwhile(t *testing.T) {
	pool := openPool(t)
	counting := &counted{DB: pool}
	s := newStore(t, counting, newTable())
	other := newStore(t, pool, s.sql().name)
	for name, c := range map[string]struct {
		found dedupe.Status
		rival func(l dedupe.Lease)
	}{
		"it is claimed anew": {dedupe.Released, func(l dedupe.Lease) { claimOne(t, other, request(l.Key.Key)) }},
		"the owner is done":  {dedupe.Claimed, func(l dedupe.Lease) { settleOne(t, other, l, dedupe.Done) }},
		"the owner renews": {dedupe.Claimed, func(l dedupe.Lease) {
			rs, err := other.Renew(t.Context(), []dedupe.Renewal{{Key: l.Key, Token: l.Token, TTL: time.Hour}})
			if err != nil || rs[0].Err != nil {
				t.Error(rs, err)
			}
		}},
	} {
		l := claimOne(t, s, request(name))
		if c.found == dedupe.Claimed {
			age(t, pool, s, l.Key, time.Hour)
		} else {
			settleOne(t, s, l, c.found)
		}
		counting.trips.Store(0)
		counting.before = func() {
			if counting.trips.Load() == 2 {
				c.rival(l)
			}
		}
		errs, err := s.Forget(t.Context(), []dedupe.Forgotten{{Key: l.Key, Fence: l.Fence}})
		counting.before = nil
		if err != nil || !errors.Is(errs[0], dedupe.ErrBusy) {
			t.Errorf("%s: Forget: %v, %v; want ErrBusy", name, errs, err)
		}
		r := get(t, s, l.Key)
		if r.Fence != l.Fence {
			if errs, err := s.Forget(t.Context(), []dedupe.Forgotten{{Key: l.Key, Fence: l.Fence}}); err != nil || !errors.Is(errs[0], dedupe.ErrLeaseLost) {
				t.Errorf("%s: Forget with the old fence: %v, %v; want ErrLeaseLost", name, errs, err)
			}
		}
	}
}

// TestInsertedMeanwhile: a claim waits for a rival that is inserting the same key. Its neighbour
// was read before that. What the claim finds then hangs on what becomes of the rival's record.
func TestInsertedMeanwhile(t *testing.T) {
	pool := openPool(t)
	for name, c := range map[string]struct {
		commit, remove bool
		want           dedupe.Outcome
		trips          int
	}{
		"rolled back":           {want: dedupe.Won, trips: 1},
		"committed":             {commit: true, want: dedupe.AlreadyDone, trips: 2},
		"committed and removed": {commit: true, remove: true, want: dedupe.Won, trips: 2},
	} {
		t.Run(name, func(t *testing.T) {
			counting := &counted{DB: pool}
			s := newStore(t, counting, newTable())
			s.insertWait = time.Minute
			settleOne(t, s, claimOne(t, s, request("a")), dedupe.Done)
			rival, err := pool.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer rival.Rollback(context.Background())
			const others = "status, fence, token, attempt, started, policy, owner, message_id, error_class, first_error, last_error, created, claimed_at, updated, finished, expires"
			insert := `INSERT INTO ` + s.sql().table + ` (scope, key, ` + others + `) SELECT scope, 'b', ` + others + ` FROM ` + s.sql().table
			if _, err := rival.Exec(t.Context(), insert); err != nil {
				t.Fatal(err)
			}
			counting.trips.Store(0)
			counting.before = func() {
				if c.remove && counting.trips.Load() == 2 {
					exec(t, pool, "DELETE FROM "+s.sql().table+" WHERE key = 'b'")
				}
			}
			var cs []dedupe.Claim
			var wg sync.WaitGroup
			wg.Go(func() { cs, err = s.Claim(t.Context(), []dedupe.ClaimRequest{request("a"), request("b")}) })
			until(t, "the wait for the rival's insertion", func() bool { return waiting(t, pool) == 1 })
			end := rival.Rollback
			if c.commit {
				end = rival.Commit
			}
			if err := end(t.Context()); err != nil {
				t.Error(err)
			}
			wg.Wait()
			if err != nil || cs[0].Err != nil || cs[0].Outcome != dedupe.AlreadyDone || cs[1].Outcome != c.want || int(counting.trips.Load()) != c.trips {
				t.Errorf("after %d round trips: %+v, %v; want %v after %d", counting.trips.Load(), cs, err, c.want, c.trips)
			}
		})
	}
}

// TestOwnClaimBesideARenewal: an own claim that is repeated, because its answer was lost, may meet
// its own renewal that records the start. That has a shorter lease, so of all that was read only
// the time of the last change differs, and the start must stay.
func TestOwnClaimBesideARenewal(t *testing.T) {
	pool := openPool(t)
	s := newStore(t, pool, "records")
	q := request("k")
	q.Policy = dedupe.Park
	claimOne(t, s, q)
	rival := &counted{DB: pool}
	again := newStore(t, rival, "records")
	rival.trips.Store(0)
	rival.before = func() {
		if rival.trips.Load() == 2 { // the first has read the record
			ns, err := s.Renew(t.Context(), []dedupe.Renewal{{Key: q.Key, Token: q.Token, TTL: time.Second, Started: true}})
			if err != nil || ns[0].Err != nil {
				t.Error(ns, err)
			}
		}
	}
	q.TTL = time.Hour
	claimOne(t, again, q)
	if n := rival.trips.Load(); n < 3 {
		t.Errorf("%d round trips: the second has written over what it did not see", n)
	}
	r := get(t, s, q.Key)
	if !r.Started || time.Until(r.LeaseUntil) < 50*time.Minute {
		t.Errorf("the record is %+v", r)
	}
	age(t, pool, s, q.Key, 2*time.Hour)
	q.Token = newToken()
	if c := claimAll(t, s, q)[0]; c.Outcome != dedupe.IsParked {
		t.Errorf("a takeover of the started claim is answered %v, want parked", c.Outcome)
	}
}

// TestMostAttempts: a record with as many attempts as its column holds does not fail those that are
// claimed with it.
func TestMostAttempts(t *testing.T) {
	pool := openPool(t)
	s := newStore(t, pool, "records")
	qs := []dedupe.ClaimRequest{request("a"), request("b"), request("c")}
	claimAll(t, s, qs...)
	exec(t, pool, "UPDATE records SET attempt = 2147483647 WHERE key = 'b'")
	for range 2 {
		for i := range qs {
			age(t, pool, s, qs[i].Key, time.Hour)
			qs[i].Token = newToken()
		}
		for i, c := range claimAll(t, s, qs...) {
			if c.Outcome != dedupe.Won {
				t.Errorf("claim of %v: %v", qs[i].Key, c.Outcome)
			}
		}
	}
	if r := get(t, s, qs[1].Key); r.Attempt != math.MaxInt32 {
		t.Errorf("attempt %d", r.Attempt)
	}
}
