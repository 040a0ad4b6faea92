package pgstore

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onceq/onceq/dedupe"
)

// TestBusyKeepsTheConnection: what the server refuses because of others is no reason to connect anew, least of all when it
// is slow.
func TestBusyKeepsTheConnection(t *testing.T) {
	pool := openPool(t, func(c *pgxpool.Config) { c.MaxConns = 2 })
	s := newStore(t, pool, newTable())
	l := claimOne(t, s, request("k"))
	tx := completing(t, s, pool, l)
	pid := func() int { return scan[int](t, pool, "SELECT pg_backend_pid()") }
	first := pid()
	for range 3 {
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
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

// TestReplicaIsLeft: after a failover the old primary takes no writes. Nothing is decided by that, and the pool must not keep
// the connection.
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
		if err := call(); sqlState(err) != readOnly || errors.Is(err, dedupe.ErrBusy) || errors.Is(err, dedupe.ErrLeaseLost) {
			t.Errorf("%s: %v; want a call error of SQLSTATE %s", name, err, readOnly)
		}
		if on := scan[string](t, pool, "SHOW default_transaction_read_only"); on != "off" {
			t.Errorf("%s: the pool has kept the connection", name)
			exec(t, pool, "SET default_transaction_read_only = off")
		}
	}
	settleOne(t, s, l, dedupe.Done)
}
