package pgstore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/pgkit"
	"github.com/onceq/onceq/internal/pgkit/pgtest"
)

// TestBusyKeepsTheConnection: what the server refuses because of others is no reason to connect
// anew, least of all when it is slow.
func TestBusyKeepsTheConnection(t *testing.T) {
	pool := openPool(t, func(c *pgxpool.Config) { c.MaxConns = 2 })
	s := newStore(t, pool, newTable())
	l := claimOne(t, s, request("k"))
	tx := completing(t, s, pool, l)
	pid := func() int { return pgtest.Scan[int](t, pool, "SELECT pg_backend_pid()") }
	first := pid()
	for range 3 {
		ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
		as, err := s.Settle(ctx, []dedupe.Settlement{{Key: l.Key, Token: l.Token, To: dedupe.Released, Joined: true}})
		cancel()
		if err != nil || !errors.Is(as[0].Err, dedupe.ErrBusy) {
			t.Fatalf("the settlement was answered %+v, %v; want ErrBusy", as, err)
		}
	}
	if now := pid(); now != first {
		t.Errorf("backend %d now, %d before: the connection was given up", now, first)
	}
	tx.Rollback(t.Context())
	settleOne(t, s, l, dedupe.Done)
}

// TestReplicaIsLeft: after a failover the old primary takes no writes. Nothing is decided by that,
// and the pool must not keep the connection.
func TestReplicaIsLeft(t *testing.T) {
	pool := openPool(t, func(c *pgxpool.Config) { c.MaxConns = 1 })
	s := newStore(t, pool, newTable())
	l := claimOne(t, s, request("k"))
	calls := map[string]func() error{
		"Claim of a new key":  func() error { _, err := s.Claim(t.Context(), []dedupe.ClaimRequest{request("new")}); return err },
		"Claim of a live key": func() error { _, err := s.Claim(t.Context(), []dedupe.ClaimRequest{request("k")}); return err },
		"Renew": func() error {
			_, err := s.Renew(t.Context(), []dedupe.Renewal{{Key: l.Key, Token: l.Token, TTL: time.Hour}})
			return err
		},
		"Settle": func() error {
			_, err := s.Settle(t.Context(), []dedupe.Settlement{{Key: l.Key, Token: l.Token, To: dedupe.Done}})
			return err
		},
	}
	for name, call := range calls {
		exec(t, pool, "SET default_transaction_read_only = on")
		if err := call(); pgkit.State(err) != pgkit.ReadOnly || errors.Is(err, dedupe.ErrBusy) || errors.Is(err, dedupe.ErrLeaseLost) {
			t.Errorf("%s: %v; want a call error of SQLSTATE %s", name, err, pgkit.ReadOnly)
		}
		if on := pgtest.Scan[string](t, pool, "SHOW default_transaction_read_only"); on != "off" {
			t.Errorf("%s: the pool has kept the connection", name)
			exec(t, pool, "SET default_transaction_read_only = off")
		}
	}
	settleOne(t, s, l, dedupe.Done)
}

// TestRivalThatHangs: the host of a rival died between its insertion and its commit. Its key is
// busy; those that stand in a batch with it are won.
func TestRivalThatHangs(t *testing.T) {
	pool := openPool(t)
	s := newStore(t, pool, newTable())
	inserting(t, s, pool, "k-042")
	inserting(t, s, pool, "k-317")
	var qs []dedupe.ClaimRequest
	for i := range 500 {
		qs = append(qs, request(fmt.Sprintf("k-%03d", i)))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	cs, err := s.Claim(ctx, qs)
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range cs {
		if stuck := i == 42 || i == 317; stuck != errors.Is(c.Err, dedupe.ErrBusy) || stuck != (c.Outcome != dedupe.Won) {
			t.Errorf("claim %d: %+v", i, c)
		}
	}
}

// TestManyRivalsThatHang: the waits end before the call's time does, whatever their number.
func TestManyRivalsThatHang(t *testing.T) {
	pool := openPool(t)
	s := newStore(t, pool, newTable())
	tx := inserting(t, s, pool, "k-000")
	var qs []dedupe.ClaimRequest
	for i := range 200 {
		qs = append(qs, request(fmt.Sprintf("k-%03d", i)))
	}
	for i := 5; i < 200; i += 5 {
		if _, err := tx.Exec(t.Context(), "INSERT INTO "+s.sql().table+" SELECT (jsonb_populate_record(t, jsonb_build_object('key', $1::text))).* FROM "+
			s.sql().table+" t WHERE key = 'k-000'", qs[i].Key.Key); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
	defer cancel()
	cs, err := s.Claim(ctx, qs)
	if err != nil {
		t.Fatal(err)
	}
	won := 0
	for i, c := range cs {
		if c.Outcome == dedupe.Won {
			won++
		} else if !errors.Is(c.Err, dedupe.ErrBusy) {
			t.Errorf("claim %d: %+v, want won or ErrBusy", i, c)
		}
		if i%5 == 0 && c.Err == nil {
			t.Errorf("claim %d: %+v although a rival holds the key", i, c)
		}
	}
	if won == 0 {
		t.Error("nothing was won")
	}
	tx.Rollback(t.Context())
	for i, c := range claimAll(t, s, qs...) {
		if c.Outcome != dedupe.Won || !c.Fresh {
			t.Errorf("claim %d repeated: %+v", i, c)
		}
	}
}

// TestPoolOfItsOwn is the advice of the package's documentation: the handlers' transactions may
// hold all of their connections, the leases are renewed.
func TestPoolOfItsOwn(t *testing.T) {
	small := func(c *pgxpool.Config) { c.MaxConns = 2 }
	theirs := openPool(t, small)
	ours := poolOn(t, theirs.Config().ConnString(), small)
	table := newTable()
	shared, own := newStore(t, theirs, table), newStore(t, ours, table)
	a, b := claimOne(t, own, request("a")), claimOne(t, own, request("b"))
	completing(t, own, theirs, a)
	tx := completing(t, own, theirs)
	renew := func(s *Store) error {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		as, err := s.Renew(ctx, []dedupe.Renewal{{Key: b.Key, Token: b.Token, TTL: time.Hour}})
		if err == nil {
			err = as[0].Err
		}
		return err
	}
	if err := renew(own); err != nil {
		t.Errorf("the renewal beside a pool that is used up: %v", err)
	}
	if err := renew(shared); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, dedupe.ErrLeaseLost) {
		t.Errorf("the renewal in a pool that is used up: %v, want that its time was over", err)
	}
	if err := own.CompleteTx(t.Context(), tx, &job{Of: b}, nil); err != nil {
		t.Error(err)
	}
	if err := tx.Commit(t.Context()); err != nil || get(t, own, b.Key).Status != dedupe.Done {
		t.Errorf("the completion from the other pool: %v", err)
	}
}

// TestCommitReplica: after a failover the old primary takes no writes, and the pool must not keep
// the connection.
func TestCommitReplica(t *testing.T) {
	b := newBusiness(t)
	pool := poolOn(t, b.pool.Config().ConnString(), func(c *pgxpool.Config) { c.MaxConns = 1 })
	s := newStore(t, pool, "")
	for _, work := range []string{"INSERT INTO ledger VALUES ('charged')", "SELECT 1"} {
		exec(t, pool, "SET default_transaction_read_only = on")
		err := s.Commit(t.Context(), b.claim(work), func(tx pgx.Tx) (any, error) {
			_, err := tx.Exec(t.Context(), work)
			return nil, err
		})
		if pgkit.State(err) != pgkit.ReadOnly {
			t.Errorf("%s: %v, want SQLSTATE %s", work, err, pgkit.ReadOnly)
		}
		if on := pgtest.Scan[string](t, pool, "SHOW default_transaction_read_only"); on != "off" {
			t.Errorf("%s: the pool has kept the connection", work)
			exec(t, pool, "SET default_transaction_read_only = off")
		}
	}
}

// TestCommitSecondStore is the advice of the documentation: handlers that hold all of their own
// pool's connections keep none from the worker's store.
func TestCommitSecondStore(t *testing.T) {
	b := newBusiness(t)
	theirs := newStore(t, poolOn(t, b.pool.Config().ConnString(), func(c *pgxpool.Config) { c.MaxConns = 2 }), "")
	run := make(chan struct{})
	jobs := []*job{b.claim("a"), b.claim("b")}
	var in atomic.Int64
	var wg sync.WaitGroup
	for _, j := range jobs {
		wg.Go(func() {
			err := theirs.Commit(t.Context(), j, func(tx pgx.Tx) (any, error) {
				in.Add(1)
				<-run
				_, err := tx.Exec(t.Context(), "INSERT INTO ledger VALUES ('charged')")
				return nil, err
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	until(t, "both", func() bool { return in.Load() == 2 })
	for _, j := range jobs {
		rs, err := b.s.Renew(t.Context(), []dedupe.Renewal{{Key: j.Of.Key, Token: j.Of.Token, TTL: time.Hour}})
		if err != nil || rs[0].Err != nil {
			t.Error(rs, err)
		}
	}
	close(run)
	wg.Wait()
	for _, j := range jobs {
		b.want(j.Of.Key, dedupe.Done, 2)
	}
}
