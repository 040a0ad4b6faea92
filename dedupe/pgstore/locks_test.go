package pgstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/must"
	"github.com/onceq/onceq/internal/pgkit/pgtest"
)

// impatient makes a statement that waits for a lock fail instead, so that a test needs no clock to
// see it.
func impatient(c *pgxpool.Config) { c.ConnConfig.RuntimeParams["lock_timeout"] = "20ms" }

// completing opens a transaction that has completed the claims, and keeps it open.
func completing(t *testing.T, s *Store, pool *pgxpool.Pool, leases ...dedupe.Lease) pgx.Tx {
	t.Helper()
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tx.Rollback(context.Background()) })
	for _, l := range leases {
		if err := s.CompleteTx(t.Context(), tx, &job{Of: l}, "done in a transaction"); err != nil {
			t.Fatal(err)
		}
	}
	return tx
}

// TestOpenTransactionStallsNobody: a business transaction that has completed a job, and is held
// open, costs no other job its lease. With one statement that waits, a renewal of three keys took
// 2.7 s.
func TestOpenTransactionStallsNobody(t *testing.T) {
	pool := openPool(t, impatient)
	s := newStore(t, pool, newTable())
	names := []string{"a", "live", "m", "dead", "z"}
	leases := make(map[string]dedupe.Lease)
	for _, n := range names {
		leases[n] = claimOne(t, s, request(n))
	}
	age(t, pool, s, leases["dead"].Key, time.Hour)
	tx := completing(t, s, pool, leases["live"], leases["dead"])

	var ns []dedupe.Renewal
	var ss []dedupe.Settlement
	for _, n := range names {
		l := leases[n]
		ns = append(ns, dedupe.Renewal{Key: l.Key, Token: l.Token, TTL: time.Hour})
		ss = append(ss, dedupe.Settlement{Key: l.Key, Token: l.Token, To: dedupe.Done})
	}
	locked := func(n string) bool { return n == "live" || n == "dead" }
	rs, err := s.Renew(t.Context(), ns)
	if err != nil {
		t.Fatal(err)
	}
	for i, n := range names {
		if busy := errors.Is(rs[i].Err, dedupe.ErrBusy); busy != locked(n) || !busy && rs[i].Err != nil {
			t.Errorf("renewal of %q: %v", n, rs[i].Err)
		}
	}
	cs := claimAll(t, s, request("dead"), request("live"), request("new"), request("z"))
	for i, want := range []dedupe.Outcome{dedupe.InProgress, dedupe.InProgress, dedupe.Won, dedupe.InProgress} {
		if cs[i].Outcome != want {
			t.Errorf("claim %d beside the open transaction: %v, want %v", i, cs[i].Outcome, want)
		}
	}
	if cs[0].Left != 0 || cs[0].Age < time.Hour || cs[1].Left < 50*time.Second {
		t.Errorf("in progress: left %v and %v, age %v", cs[0].Left, cs[1].Left, cs[0].Age)
	}
	as, err := s.Settle(t.Context(), ss)
	if err != nil {
		t.Fatal(err)
	}
	for i, n := range names {
		if locked(n) && !errors.Is(as[i].Err, dedupe.ErrBusy) || !locked(n) && as[i].Status != dedupe.Done {
			t.Errorf("settlement of %q: %+v", n, as[i])
		}
	}
	errs, err := s.Forget(t.Context(), []dedupe.Forgotten{
		{Key: leases["a"].Key, Fence: leases["a"].Fence}, {Key: leases["live"].Key, Fence: leases["live"].Fence, Force: true},
	})
	if err != nil || errs[0] != nil || !errors.Is(errs[1], dedupe.ErrBusy) {
		t.Errorf("Forget: %v, %v", errs, err)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	rs, err = s.Renew(t.Context(), ns[1:2])
	if err != nil || !errors.Is(rs[0].Err, dedupe.ErrLeaseLost) {
		t.Errorf("renewal after the commit: %+v, %v", rs, err)
	}
	as, err = s.Settle(t.Context(), ss[1:2])
	if err != nil || as[0].Status != dedupe.Done {
		t.Errorf("settlement after the commit: %+v, %v", as, err)
	}
	if r := get(t, s, leases["live"].Key); string(r.Result) != `"done in a transaction"` {
		t.Errorf("the transaction's result was overwritten: %q", r.Result)
	}
}

// TestReferenced: a table of the user's may refer to the records; a row that is being inserted
// there holds the record's key, not the record.
func TestReferenced(t *testing.T) {
	pool := openPool(t, impatient)
	s := newStore(t, pool, newTable())
	l := claimOne(t, s, request("k"))
	exec(t, pool, "CREATE TABLE lines (scope text, key text, FOREIGN KEY (scope, key) REFERENCES "+s.sql().table+")")
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.Background())
	if _, err := tx.Exec(t.Context(), "INSERT INTO lines VALUES ('orders', 'k')"); err != nil {
		t.Fatal(err)
	}
	rs, err := s.Renew(t.Context(), []dedupe.Renewal{{Key: l.Key, Token: l.Token, TTL: time.Minute}})
	if err != nil || rs[0].Err != nil {
		t.Errorf("a renewal: %+v, %v", rs, err)
	}
	as, err := s.Settle(t.Context(), []dedupe.Settlement{{Key: l.Key, Token: l.Token, To: dedupe.Released, Joined: true}})
	if err != nil || as[0].Err != nil {
		t.Errorf("a joined settlement: %+v, %v", as, err)
	}
	l = claimOne(t, s, request("k"))
	settleOne(t, s, l, dedupe.Done)
}

// TestParkedAndLocked: a parked job whose owner completes it after all is in progress for a letter
// that would reopen it.
func TestParkedAndLocked(t *testing.T) {
	pool := openPool(t, impatient)
	s := newStore(t, pool, newTable())
	l := claimOne(t, s, request("k"))
	settleOne(t, s, l, dedupe.Parked)
	tx := completing(t, s, pool, l)
	q := request("k")
	q.Reopen = l.Fence
	if c := claimAll(t, s, q)[0]; c.Outcome != dedupe.InProgress {
		t.Errorf("a reopening claim beside the open transaction: %+v", c)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if c := claimAll(t, s, q)[0]; c.Outcome != dedupe.Won || c.Lease.Fence <= l.Fence {
		t.Errorf("a reopening claim after the rollback: %+v", c)
	}
}

// TestOwnClaimLocked: the repeat of a claim whose reply was lost is never told that somebody else
// has it.
func TestOwnClaimLocked(t *testing.T) {
	pool := openPool(t, impatient)
	s := newStore(t, pool, newTable())
	q := request("k")
	l := claimOne(t, s, q)
	tx := completing(t, s, pool, l)
	cs, err := s.Claim(t.Context(), []dedupe.ClaimRequest{q})
	if err != nil || !errors.Is(cs[0].Err, dedupe.ErrBusy) {
		t.Errorf("the same claim again, its row locked: %+v, %v; want ErrBusy", cs, err)
	}
	tx.Rollback(t.Context())
	if again := claimOne(t, s, q); again.Fence != l.Fence {
		t.Errorf("the same claim again has fence %d, want %d", again.Fence, l.Fence)
	}
}

// TestSlowTakeoverIsSeen: a claim that meets another one's takeover just before its commit waits
// for it for a moment, and then knows how long the new lease lives.
func TestSlowTakeoverIsSeen(t *testing.T) {
	pool := openPool(t)
	counting := &counted{DB: pool}
	table := newTable()
	s := newStore(t, counting, table)
	l := claimOne(t, s, request("k"))
	age(t, pool, s, l.Key, time.Hour)
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.Background())
	other := newToken()
	if _, err := tx.Exec(t.Context(), "UPDATE "+s.sql().table+" SET token = $1, fence = fence + 1, claimed_at = clock_timestamp(), updated = clock_timestamp(), lease_until = clock_timestamp() + interval '1 hour'",
		[16]byte(other)); err != nil {
		t.Fatal(err)
	}
	counting.trips.Store(0)
	counting.before = func() {
		if counting.trips.Load() == 3 { // the look and one try are over
			if err := tx.Commit(t.Context()); err != nil {
				t.Error(err)
			}
		}
	}
	c := claimAll(t, s, request("k"))[0]
	if c.Outcome != dedupe.InProgress || c.Left < 50*time.Minute || counting.trips.Load() != 3 {
		t.Errorf("after %d round trips: %v, left %v", counting.trips.Load(), c.Outcome, c.Left)
	}
}

// TestOneWinner: one of 100 rivals for a key wins after one round trip. Each of the others has its
// answer after a second one at the latest: the first may have waited for the winner's COMMIT.
func TestOneWinner(t *testing.T) {
	pool := openPool(t, func(c *pgxpool.Config) { c.MaxConns = 50 })
	table := newTable()
	newStore(t, pool, table)
	for round := range 3 {
		name := fmt.Sprintf("k%d", round)
		start := make(chan struct{})
		var mu sync.Mutex
		var outcomes []dedupe.Outcome
		var wg sync.WaitGroup
		for range 100 {
			counting := &counted{DB: pool}
			s := must.Get(New(counting, &Options{Table: table}))
			wg.Go(func() {
				<-start
				cs, err := s.Claim(t.Context(), []dedupe.ClaimRequest{request(name)})
				if err != nil || cs[0].Err != nil {
					t.Error(err, cs)
					return
				}
				mu.Lock()
				defer mu.Unlock()
				outcomes = append(outcomes, cs[0].Outcome)
				most := int64(2)
				if cs[0].Outcome == dedupe.Won {
					most = 1
				}
				if n := int64(counting.trips.Load()); n > most {
					t.Errorf("%v was answered after %d round trips, want %d", cs[0].Outcome, n, most)
				}
			})
		}
		close(start)
		wg.Wait()
		won := 0
		for _, o := range outcomes {
			if o == dedupe.Won {
				won++
			} else if o != dedupe.InProgress {
				t.Errorf("a rival was answered %v", o)
			}
		}
		if won != 1 {
			t.Errorf("%d of 100 rivals won", won)
		}
	}
}

// TestRoundTrips: what stays as it is is answered in one round trip, what changes in two.
func TestRoundTrips(t *testing.T) {
	pool := openPool(t)
	counting := &counted{DB: pool}
	s := newStore(t, counting, newTable())
	trips := func(want int64, what string, call func()) {
		t.Helper()
		counting.trips.Store(0)
		call()
		if got := counting.trips.Load(); got != want {
			t.Errorf("%s: %d round trips, want %d", what, got, want)
		}
	}
	q := request("k")
	var l dedupe.Lease
	claim := func(q dedupe.ClaimRequest, want dedupe.Outcome) func() {
		return func() {
			if c := claimAll(t, s, q)[0]; c.Outcome != want {
				t.Errorf("the claim was answered %v, want %v", c.Outcome, want)
			} else {
				l = c.Lease
			}
		}
	}
	trips(1, "a new key", claim(q, dedupe.Won))
	trips(2, "the same claim again", claim(q, dedupe.Won))
	won := l
	trips(1, "a live claim", claim(request("k"), dedupe.InProgress))
	trips(1, "a renewal", func() {
		if rs, err := s.Renew(t.Context(), []dedupe.Renewal{{Key: won.Key, Token: won.Token, TTL: time.Minute}}); err != nil || rs[0].Err != nil {
			t.Error(rs, err)
		}
	})
	trips(1, "a joined settlement", func() {
		as, err := s.Settle(t.Context(), []dedupe.Settlement{{Key: won.Key, Token: won.Token, To: dedupe.Done, Joined: true}})
		if err != nil || as[0].Status != dedupe.Claimed {
			t.Error(as, err)
		}
	})
	trips(1, "a settlement", func() { settleOne(t, s, won, dedupe.Released) })
	trips(2, "a released key", claim(request("k"), dedupe.Won))
	won = l
	trips(1, "a settlement", func() { settleOne(t, s, won, dedupe.Done) })
	trips(1, "a done key", claim(request("k"), dedupe.AlreadyDone))
}

// TestOppositeOrders: batches over the same keys in opposite orders wait for each other never.
// Unsorted statements deadlocked in 4 of 10 rounds.
func TestOppositeOrders(t *testing.T) {
	pool := openPool(t)
	s := newStore(t, pool, newTable())
	const keys, rounds = 60, 12
	for round := range rounds {
		var qs [2][]dedupe.ClaimRequest
		for i := range keys {
			qs[0] = append(qs[0], request(fmt.Sprintf("%d-%03d", round, i)))
			qs[1] = append(qs[1], request(fmt.Sprintf("%d-%03d", round, i)))
		}
		slices.Reverse(qs[1])
		both := func(call func(side int) error) {
			t.Helper()
			start := make(chan struct{})
			var wg sync.WaitGroup
			for side := range 2 {
				wg.Go(func() {
					<-start
					if err := call(side); err != nil {
						t.Errorf("round %d: %v", round, err)
					}
				})
			}
			close(start)
			wg.Wait()
		}
		var mu sync.Mutex
		var won []dedupe.Lease
		both(func(side int) error {
			cs, err := s.Claim(t.Context(), qs[side])
			for i := range cs {
				switch {
				case cs[i].Err != nil:
					err = errors.Join(err, cs[i].Err)
				case cs[i].Outcome == dedupe.Won:
					mu.Lock()
					won = append(won, cs[i].Lease)
					mu.Unlock()
				}
			}
			return err
		})
		if len(won) != keys {
			t.Fatalf("round %d: %d claims of %d keys were won", round, len(won), keys)
		}
		both(func(side int) error {
			ns := make([]dedupe.Renewal, 0, keys)
			for _, l := range won {
				ns = append(ns, dedupe.Renewal{Key: l.Key, Token: l.Token, TTL: time.Hour})
			}
			if side == 1 {
				slices.Reverse(ns)
			}
			_, err := s.Renew(t.Context(), ns)
			return err
		})
		both(func(side int) error {
			ss := make([]dedupe.Settlement, 0, keys)
			for _, l := range won {
				ss = append(ss, dedupe.Settlement{Key: l.Key, Token: l.Token, To: dedupe.Done})
			}
			if side == 1 {
				slices.Reverse(ss)
			}
			_, err := s.Settle(t.Context(), ss)
			return err
		})
	}
	// The server's own count: a deadlock that was answered "busy" would not be seen above.
	pool.Close()
	fresh := poolOn(t, pool.Config().ConnString())
	if n := pgtest.Scan[int64](t, fresh, "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"); n != 0 {
		t.Errorf("%d deadlocks", n)
	}
}

// TestKeyTwice: a key that stands twice in a claim is not won twice, and harms no neighbour.
func TestKeyTwice(t *testing.T) {
	s := newStore(t, openPool(t), newTable())
	a, b, again := request("k"), request("k"), request("k")
	again.Token = a.Token
	cs := claimAll(t, s, request("z"), a, b, again, request("a"))
	for i, want := range []dedupe.Outcome{dedupe.Won, dedupe.Won, dedupe.InProgress, dedupe.Won, dedupe.Won} {
		if cs[i].Outcome != want {
			t.Errorf("entry %d: %v, want %v", i, cs[i].Outcome, want)
		}
	}
	if cs[1].Lease.Fence != cs[3].Lease.Fence {
		t.Errorf("the same claim twice has the fences %d and %d", cs[1].Lease.Fence, cs[3].Lease.Fence)
	}
	// A token that was wrongly used for two keys is none of the other key's business.
	x, y := request("x"), request("y")
	y.Token = x.Token
	claimOne(t, s, x)
	cs = claimAll(t, s, x, y)
	if !cs[1].Fresh || cs[1].Lease.Key != y.Key || cs[0].Lease.Key != x.Key || cs[0].Lease.Fence == cs[1].Lease.Fence {
		t.Errorf("two keys with one token: %+v", cs)
	}
}

// waiting tells how many backends wait for a lock in the pool's database.
func waiting(t *testing.T, pool *pgxpool.Pool) int {
	t.Helper()
	return pgtest.Scan[int](t, pool, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'")
}

// terminate ends the server's process of that number, and sees its end; the function that waits for
// it is of version 14.
func terminate(t *testing.T, pool *pgxpool.Pool, pid int) {
	t.Helper()
	exec(t, pool, "SELECT pg_terminate_backend($1)", pid)
	until(t, "the end of the server's process", func() bool {
		return pgtest.Scan[int](t, pool, "SELECT count(*) FROM pg_stat_activity WHERE pid = $1", pid) == 0
	})
}

// until polls: there is no channel into the server.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("%s has not happened in 20 s", what)
		}
		<-time.After(2 * time.Millisecond)
	}
}

// TestJoinedSettlementWaits: only the end of the user's transaction tells what became of the job,
// so the worker's word waits for it and then says what is so.
func TestJoinedSettlementWaits(t *testing.T) {
	pool := openPool(t)
	s := newStore(t, pool, newTable())
	for _, to := range []dedupe.Status{dedupe.Done, dedupe.Released, dedupe.Failed, dedupe.Parked} {
		for _, commits := range []bool{true, false} {
			l := claimOne(t, s, request(fmt.Sprintf("%v-%v", to, commits)))
			tx := completing(t, s, pool, l)
			var as []dedupe.Settled
			var err error
			var wg sync.WaitGroup
			wg.Go(func() {
				as, err = s.Settle(t.Context(), []dedupe.Settlement{{Key: l.Key, Token: l.Token, To: to, Joined: true}})
			})
			until(t, "the wait for the row", func() bool { return waiting(t, pool) == 1 })
			want := to
			if commits {
				tx.Commit(t.Context())
				want = dedupe.Done
			} else if tx.Rollback(t.Context()); to == dedupe.Done {
				want = dedupe.Claimed
			}
			wg.Wait()
			if err != nil || as[0].Err != nil || as[0].Status != want || get(t, s, l.Key).Status != want {
				t.Errorf("to %v, commits %v: %+v, %v; want %v", to, commits, as, err, want)
			}
		}
	}
}

// TestJoinedSettlementGivesUp: the deadline ends the wait, on the server as well.
func TestJoinedSettlementGivesUp(t *testing.T) {
	pool := openPool(t)
	s := newStore(t, pool, newTable())
	l := claimOne(t, s, request("k"))
	tx := completing(t, s, pool, l)
	ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
	defer cancel()
	as, err := s.Settle(ctx, []dedupe.Settlement{{Key: l.Key, Token: l.Token, To: dedupe.Released, Joined: true}})
	if err != nil || !errors.Is(as[0].Err, dedupe.ErrBusy) || errors.Is(as[0].Err, dedupe.ErrLeaseLost) {
		t.Errorf("the settlement was answered %+v, %v; want ErrBusy", as, err)
	}
	if n := waiting(t, pool); n != 0 {
		t.Errorf("%d backends still wait", n)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	as, err = s.Settle(t.Context(), []dedupe.Settlement{{Key: l.Key, Token: l.Token, To: dedupe.Released, Joined: true}})
	if err != nil || as[0].Status != dedupe.Done {
		t.Errorf("repeated: %+v, %v; want done", as, err)
	}
}
