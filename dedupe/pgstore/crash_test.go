package pgstore

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/must"
	"github.com/onceq/onceq/internal/testserver/testpg"
)

// inserting opens a transaction that has inserted a record under key, and keeps it open: a claim of
// that key waits.
func inserting(t *testing.T, s *Store, pool *pgxpool.Pool, key string) pgx.Tx {
	t.Helper()
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tx.Rollback(context.Background()) })
	insert := `INSERT INTO ` + s.sql().table + ` (scope, key, status, fence, token, attempt, started, policy, owner, message_id, error_class, first_error, last_error,
		created, claimed_at, updated) VALUES ('orders', $1, 'claimed', 1, gen_random_uuid(), 1, false, 'rerun', '', '', '', '', '', now(), now(), now())`
	if _, err := tx.Exec(t.Context(), insert, key); err != nil {
		t.Fatal(err)
	}
	return tx
}

// TestCancelled: the caller gives up in the middle of a claim. Nobody goes on waiting for it on the
// server, and the same claim again wins.
func TestCancelled(t *testing.T) {
	pool := openPool(t)
	s := newStore(t, pool, newTable())
	s.insertWait = time.Hour
	blocker := inserting(t, s, pool, "m")
	qs := []dedupe.ClaimRequest{request("a"), request("m"), request("z")}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var err error
	var wg sync.WaitGroup
	wg.Go(func() { _, err = s.Claim(ctx, qs) })
	until(t, "the wait of the claim", func() bool { return waiting(t, pool) == 1 })
	cancel()
	wg.Wait()
	if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "outcome is unknown") {
		t.Errorf("the claim was answered %v; want the context's error, and that the outcome is unknown", err)
	}
	until(t, "the end of the wait on the server", func() bool { return waiting(t, pool) == 0 })
	blocker.Rollback(t.Context())
	for i, c := range claimAll(t, s, qs...) {
		if c.Outcome != dedupe.Won || !c.Fresh {
			t.Errorf("claim %d repeated: %+v", i, c)
		}
	}
}

// TestBackendKilled: the server's process dies in the middle of a claim. The answer is an error,
// and the same claim again wins.
func TestBackendKilled(t *testing.T) {
	pool := openPool(t)
	s := newStore(t, pool, newTable())
	s.insertWait = time.Hour
	blocker := inserting(t, s, pool, "m")
	qs := []dedupe.ClaimRequest{request("a"), request("m"), request("z")}
	var cs []dedupe.Claim
	var err error
	var wg sync.WaitGroup
	wg.Go(func() { cs, err = s.Claim(t.Context(), qs) })
	until(t, "the wait of the claim", func() bool { return waiting(t, pool) == 1 })
	exec(t, pool, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'")
	wg.Wait()
	if err == nil || errors.Is(err, dedupe.ErrBusy) || errors.Is(err, dedupe.ErrLeaseLost) {
		t.Errorf("the claim was answered %+v, %v; want an error that says nothing of any entry", cs, err)
	}
	blocker.Rollback(t.Context())
	for i, c := range claimAll(t, s, qs...) {
		if c.Outcome != dedupe.Won || !c.Fresh {
			t.Errorf("claim %d repeated: %+v", i, c)
		}
	}
}

// lossy runs a call, and loses the reply.
type lossy struct {
	DB
	lose bool
}

func (l *lossy) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	br := l.DB.SendBatch(ctx, b)
	if !l.lose {
		return br
	}
	l.lose = false
	return lost{br}
}

type lost struct{ pgx.BatchResults }

var errLost = errors.New("the connection was reset")

func (l lost) Close() error {
	if err := l.BatchResults.Close(); err != nil {
		return err
	}
	return errLost
}

// TestLostReplies: the call has been applied and nobody knows; its repeat says the same as it had
// said.
func TestLostReplies(t *testing.T) {
	pool := openPool(t)
	db := &lossy{DB: pool}
	s := newStore(t, db, newTable())
	lose := func(what string, call func() error) {
		t.Helper()
		db.lose = true
		if err := call(); !errors.Is(err, errLost) {
			t.Fatalf("%s: %v, want the lost reply's error", what, err)
		}
		db.lose = false
	}
	q := request("k")
	claim := func() error { _, err := s.Claim(t.Context(), []dedupe.ClaimRequest{q}); return err }
	lose("a new claim", claim)
	c := claimAll(t, s, q)[0]
	if c.Outcome != dedupe.Won || !c.Fresh || c.Lease.Attempt != 1 {
		t.Errorf("a new claim repeated: %+v", c)
	}
	for _, to := range []dedupe.Status{dedupe.Released, dedupe.Done} {
		if to == dedupe.Done {
			q = request("k")
			c = claimAll(t, s, q)[0]
		}
		n := dedupe.Renewal{Key: q.Key, Token: q.Token, TTL: time.Hour, Started: true, State: []byte("step"), StateNo: 1}
		renew := func() error { _, err := s.Renew(t.Context(), []dedupe.Renewal{n}); return err }
		lose("a renewal", renew)
		if err := renew(); err != nil {
			t.Error(err)
		}
		e := dedupe.Settlement{Key: q.Key, Token: q.Token, To: to, Uncounted: true, ErrClass: "error", ErrText: "text"}
		lose("a settlement", func() error { _, err := s.Settle(t.Context(), []dedupe.Settlement{e}); return err })
		as, err := s.Settle(t.Context(), []dedupe.Settlement{e})
		if err != nil || as[0].Err != nil || as[0].Status != to {
			t.Errorf("settlement to %v repeated: %+v, %v", to, as, err)
		}
		if r := get(t, s, q.Key); r.Attempt != 0 && to == dedupe.Released {
			t.Errorf("the attempt was given back %d times", 1-r.Attempt)
		}
	}
	f := dedupe.Forgotten{Key: q.Key, Fence: c.Lease.Fence}
	lose("a reading Forget", func() error { _, err := s.Forget(t.Context(), []dedupe.Forgotten{f}); return err })
	for range 2 {
		if errs, err := s.Forget(t.Context(), []dedupe.Forgotten{f}); err != nil || errs[0] != nil {
			t.Errorf("Forget repeated: %v, %v", errs, err)
		}
	}
}

// TestLostTakeover: the reply to the second round trip is lost.
func TestLostTakeover(t *testing.T) {
	pool := openPool(t)
	db := &lossy{DB: pool}
	counting := &counted{DB: db}
	s := newStore(t, counting, newTable())
	old := claimOne(t, s, request("k"))
	age(t, pool, s, old.Key, time.Hour)
	counting.trips.Store(0)
	counting.before = func() { db.lose = counting.trips.Load() == 2 }
	q := request("k")
	if _, err := s.Claim(t.Context(), []dedupe.ClaimRequest{q}); !errors.Is(err, errLost) {
		t.Fatalf("the claim was answered %v, want the lost reply's error", err)
	}
	if c := claimAll(t, s, q)[0]; c.Outcome != dedupe.Won || c.Lease.Fence <= old.Fence || c.Lease.Attempt != 2 {
		t.Errorf("the takeover repeated: %+v", c)
	}
}

// TestFenceSurvives: whatever removes a record, the next claim of its key has a higher fence;
// otherwise an old dead letter would name a new failure.
func TestFenceSurvives(t *testing.T) {
	pool := openPool(t)
	table := newTable()
	s := newStore(t, pool, table)
	var top uint64
	next := func(what string) dedupe.Lease {
		t.Helper()
		l := claimOne(t, s, request("k"))
		if l.Fence <= top {
			t.Errorf("after %s the fence is %d, and was %d", what, l.Fence, top)
		}
		top = l.Fence
		return l
	}
	l := next("nothing")
	if errs, err := s.Forget(t.Context(), []dedupe.Forgotten{{Key: l.Key, Fence: l.Fence, Force: true}}); err != nil || errs[0] != nil {
		t.Fatal(errs, err)
	}
	l = next("Forget")
	settleOne(t, s, l, dedupe.Done)
	age(t, pool, s, l.Key, 32*24*time.Hour)
	if n, err := s.Sweep(t.Context(), 0); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	next("Sweep")
	exec(t, pool, "TRUNCATE "+table+" RESTART IDENTITY")
	next("TRUNCATE … RESTART IDENTITY")
	exec(t, pool, "DROP TABLE "+table)
	newStore(t, pool, table)
	next("a table made anew")
	exec(t, pool, "DROP TABLE "+table+"; DROP SEQUENCE "+table+"_fence")
	newStore(t, pool, table)
	next("a table and a sequence made anew")
	exec(t, pool, "UPDATE "+table+" SET fence = fence + 1000000000000000")
	top += 1e15
	exec(t, pool, "DROP SEQUENCE "+table+"_fence")
	newStore(t, pool, table)
	age(t, pool, s, dedupe.Key{Scope: "orders", Key: "k"}, time.Hour)
	next("a lost sequence")
	if errs, err := s.Forget(t.Context(), []dedupe.Forgotten{{Key: l.Key, Fence: top, Force: true}}); err != nil || errs[0] != nil {
		t.Fatal(errs, err)
	}
	l = next("a lost sequence and Forget")
	exec(t, pool, "SELECT setval($1::regclass, 7)", table+"_fence") // as a dump without the last second restores it
	age(t, pool, s, l.Key, time.Hour)
	next("a sequence that was set back")
}

// TestClocks: a worker whose clock is 26 years behind neither steals a live claim nor loses its
// own: the store's clock decides. The bubble's clock stands at the year 2000.
func TestClocks(t *testing.T) {
	url := testpg.New(t).URL
	pool := poolOn(t, url)
	table := newTable()
	s := newStore(t, pool, table)
	theirs := claimOne(t, s, request("theirs"))
	var ours dedupe.Lease
	synctest.Test(t, func(t *testing.T) {
		c := must.Get(pgxpool.ParseConfig(url))
		behind := must.Get(pgxpool.NewWithConfig(t.Context(), c))
		defer behind.Close()
		s := newStore(t, behind, table)
		if y := time.Now().Year(); y != 2000 {
			t.Fatalf("the bubble's year is %d", y)
		}
		if c := claimAll(t, s, request("theirs"))[0]; c.Outcome != dedupe.InProgress || c.Left < 50*time.Second || c.Left > time.Minute || c.Age > 30*time.Second {
			t.Errorf("a live claim, seen from the past: %+v", c)
		}
		ours = claimOne(t, s, request("ours"))
		if left := time.Until(ours.Deadline); left > time.Minute || left < 50*time.Second {
			t.Errorf("the owner's view of its lease ends in %v", left)
		}
		settleOne(t, s, claimOne(t, s, request("done")), dedupe.Done)
	})
	if c := claimAll(t, s, request("ours"))[0]; c.Outcome != dedupe.InProgress || c.Left < 50*time.Second || c.Left > time.Minute {
		t.Errorf("a live claim from the past: %+v", c)
	}
	if c := claimAll(t, s, request("done"))[0]; c.Outcome != dedupe.AlreadyDone {
		t.Errorf("a done job from the past: %+v", c)
	}
	age(t, pool, s, theirs.Key, 2*time.Minute)
	synctest.Test(t, func(t *testing.T) {
		c := must.Get(pgxpool.ParseConfig(url))
		behind := must.Get(pgxpool.NewWithConfig(t.Context(), c))
		defer behind.Close()
		if c := claimAll(t, newStore(t, behind, table), request("theirs"))[0]; c.Outcome != dedupe.Won {
			t.Errorf("a dead claim, seen from the past: %+v", c)
		}
	})
}
