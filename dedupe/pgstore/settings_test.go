package pgstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/pgkit/pgtest"
)

// newRole makes a role that may do everything, with a setting, and opens a pool as it.
func newRole(t *testing.T, admin *pgxpool.Pool, set string, more ...func(*pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	pool, _ := pgtest.NewRole(t, admin, "SUPERUSER", set, more...)
	return pool
}

// TestRoleSettings: what a role or a database has set changes no answer, however the statements are
// sent.
func TestRoleSettings(t *testing.T) {
	admin := openPool(t, func(c *pgxpool.Config) { c.MaxConns = 30 })
	newStore(t, admin, "records")
	busy := func(err error) bool { return errors.Is(err, dedupe.ErrBusy) }
	pgtest.TestSettings(t, admin, wholeLife, busy, "statement_timeout = '5s'", "idle_in_transaction_session_timeout = '10s'")
}

// wholeLife makes every call of a store, on a job of each way, and looks at what the answers say.
func wholeLife(ctx context.Context, pool *pgxpool.Pool, name string) error {
	s, err := New(pool, &Options{Table: "records"})
	if err != nil {
		return err
	}
	if err := s.Migrate(ctx); err != nil {
		return err
	}
	state, print := []byte{0, 255, '\\'}, []byte{0, 1, 255, '\\', '"'}
	q := request(name)
	q.Fingerprint, q.Owner = print, "é\"\\"
	claim := func(q dedupe.ClaimRequest, want dedupe.Outcome) (dedupe.Claim, error) {
		cs, err := s.Claim(ctx, []dedupe.ClaimRequest{q})
		if err == nil {
			err = cs[0].Err
		}
		if err == nil && cs[0].Outcome != want {
			err = fmt.Errorf("%v, want %v", cs[0].Outcome, want)
		}
		if err != nil {
			return dedupe.Claim{}, fmt.Errorf("claim: %w", err)
		}
		return cs[0], nil
	}
	if _, err := claim(q, dedupe.Won); err != nil {
		return err
	}
	ns, err := s.Renew(ctx, []dedupe.Renewal{{Key: q.Key, Token: q.Token, TTL: time.Minute, Started: true, State: state, StateNo: 1}})
	if err != nil || ns[0].Err != nil {
		return fmt.Errorf("renew: %w", errors.Join(err, ns[0].Err))
	}
	again := q
	again.Token = newToken()
	if _, err := claim(again, dedupe.InProgress); err != nil {
		return err
	}
	as, err := s.Settle(ctx, []dedupe.Settlement{{Key: q.Key, Token: q.Token, To: dedupe.Failed, ErrClass: `c\`, ErrText: "t'\"\x00\xff"}})
	if err != nil || as[0].Err != nil {
		return fmt.Errorf("settle: %w", errors.Join(err, as[0].Err))
	}
	rs, err := s.Get(ctx, []dedupe.Key{q.Key})
	switch {
	case err != nil:
		return err
	case rs[0] == nil || !slices.Equal(rs[0].State, state) || !slices.Equal(rs[0].Fingerprint, print) || rs[0].Owner != q.Owner ||
		time.Since(rs[0].Created).Abs() > time.Minute:
		return fmt.Errorf("the record is %+v", rs[0])
	}
	again.Reopen = rs[0].Fence
	c, err := claim(again, dedupe.Won)
	if err != nil {
		return err
	}
	if err := inTx(ctx, pool, func(tx pgx.Tx) error { return s.CompleteTx(ctx, tx, &job{Of: c.Lease}, []byte("r\\\x00")) }); err != nil {
		return err
	}
	q.Token = newToken()
	if c, err = claim(q, dedupe.AlreadyDone); err != nil || string(c.Record.Result) != "r\\\x00" {
		return fmt.Errorf("after CompleteTx: %+v, %w", c, err)
	}
	n := 0
	for r, err := range s.List(ctx, dedupe.Query{Scope: q.Key.Scope, Prefix: name, Status: dedupe.Done, Before: time.Now().Add(time.Hour), Limit: 3}) {
		if err != nil {
			return err
		}
		if r.Key == q.Key {
			n++
		}
	}
	if n != 1 {
		return fmt.Errorf("List shows it %d times", n)
	}
	q = request(name + " by Commit")
	if c, err = claim(q, dedupe.Won); err != nil {
		return err
	}
	commit := func() error {
		return s.Commit(ctx, &job{Of: c.Lease}, func(pgx.Tx) (any, error) { return nil, nil })
	}
	if err := commit(); err != nil {
		return err
	}
	if err := commit(); !errors.Is(err, dedupe.ErrLeaseLost) {
		return fmt.Errorf("a second Commit: %w", err)
	}
	errs, err := s.Forget(ctx, []dedupe.Forgotten{{Key: q.Key, Fence: c.Lease.Fence}})
	if err = errors.Join(append(errs, err)...); err != nil {
		return err
	}
	_, err = s.Sweep(ctx, 0)
	return err
}

func inTx(ctx context.Context, pool *pgxpool.Pool, do func(tx pgx.Tx) error) error {
	return pgx.BeginFunc(ctx, pool, do)
}

// TestEncodings: workers whose roles have different encodings mean one key by one text.
func TestEncodings(t *testing.T) {
	admin := openPool(t)
	one := newStore(t, admin, "records")
	k := request("Müller-42")
	for _, mode := range modes[:4] { // pgx refuses the simple protocol by itself
		other := newStore(t, newRole(t, admin, "client_encoding = 'LATIN1'", func(c *pgxpool.Config) { c.ConnConfig.DefaultQueryExecMode = mode }), "records")
		stores := []*Store{one, other}
		for i, s := range stores {
			k.Token = newToken()
			l := claimOne(t, s, k)
			k.Token = newToken()
			if c := claimAll(t, stores[1-i], k)[0]; c.Outcome != dedupe.InProgress {
				t.Errorf("%v: the other role's claim is answered %v", mode, c.Outcome)
			}
			if r := get(t, stores[1-i], k.Key); r.Token != l.Token || r.Key != k.Key {
				t.Errorf("%v: the other role reads %+v", mode, r)
			}
			settleOne(t, stores[1-i], l, dedupe.Released)
		}
	}
	if n := pgtest.Scan[int](t, admin, "SELECT count(*) FROM records"); n != 1 {
		t.Errorf("%d records of one key", n)
	}
}

// TestLongest: the longest durations that Go has mean for ever, and overflow nothing.
func TestLongest(t *testing.T) {
	b := newBusiness(t)
	const longest = time.Duration(1<<63 - 1)
	far := func(what string, at time.Time) {
		t.Helper()
		if at.Before(time.Now().AddDate(290, 0, 0)) {
			t.Errorf("%s is %v", what, at)
		}
	}
	q := request("k")
	q.TTL = longest
	l := claimOne(t, b.s, q)
	far("the claim's deadline", l.Deadline)
	for range 2 {
		ns, err := b.s.Renew(t.Context(), []dedupe.Renewal{{Key: q.Key, Token: q.Token, TTL: longest}})
		if err != nil || ns[0].Err != nil {
			t.Fatal(ns, err)
		}
		far("the renewal's deadline", ns[0].Deadline)
	}
	claimOne(t, b.s, q) // its own again, which changes what was read
	far("the lease", get(t, b.s, q.Key).LeaseUntil)
	other := q
	other.Token = newToken()
	if c := claimAll(t, b.s, other)[0]; c.Outcome != dedupe.InProgress || c.Left < longest-time.Hour {
		t.Errorf("another's claim: %+v", c)
	}
	for _, to := range []dedupe.Status{dedupe.Released, dedupe.Failed, dedupe.Done} {
		as, err := b.s.Settle(t.Context(), []dedupe.Settlement{{Key: q.Key, Token: l.Token, To: to, Retain: longest}})
		if err != nil || as[0].Err != nil {
			t.Fatal(to, as, err)
		}
		far(to.String(), get(t, b.s, q.Key).Expires)
		if to != dedupe.Done {
			q.Token, q.Reopen = newToken(), l.Fence
			l = claimOne(t, b.s, q)
		}
	}
	j := b.claim("tx")
	j.Keep = longest
	if err := b.pay(j, nil, nil); err != nil {
		t.Fatal(err)
	}
	far("Commit", get(t, b.s, j.Of.Key).Expires)
	j = b.claim("joined")
	ctx, cancel := context.WithTimeout(t.Context(), 10*365*24*time.Hour)
	defer cancel()
	as, err := b.s.Settle(ctx, []dedupe.Settlement{{Key: j.Of.Key, Token: j.Of.Token, To: dedupe.Released, Joined: true}})
	if err != nil || as[0].Status != dedupe.Released {
		t.Errorf("a joined settlement that may wait ten years: %+v, %v", as, err)
	}
}
