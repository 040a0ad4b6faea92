package pgstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onceq/onceq/dedupe"
)

// modes are all ways in which pgx sends statements.
var modes = []pgx.QueryExecMode{
	pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec, pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
}

// roleSettings are what a role or a database may have set. None of them may matter, but where
// refused says so.
var roleSettings = []struct {
	set string
	// refused is a part of the error of all calls; empty = none. Simple is that in the simple
	// protocol alone.
	refused, simple string
}{
	{set: "datestyle = 'German, DMY'"},
	{set: "datestyle = 'SQL, MDY'"},
	{set: "datestyle = 'Postgres, DMY'"},
	{set: "bytea_output = 'escape'"},
	{set: "intervalstyle = 'sql_standard'"},
	{set: "timezone = 'Asia/Kolkata'"},
	{set: "client_encoding = 'LATIN1'", simple: "client_encoding"},
	{set: "client_encoding = 'WIN1252'", simple: "client_encoding"},
	{set: "client_encoding = 'SQL_ASCII'", simple: "client_encoding"},
	{set: "default_transaction_isolation = 'serializable'"},
	{set: "default_transaction_read_only = on", refused: "default_transaction_read_only"},
	{set: "standard_conforming_strings = off", simple: "standard_conforming_strings"},
	{set: "statement_timeout = '5s'"},
	{set: "lock_timeout = '1ms'"},
	{set: "idle_in_transaction_session_timeout = '10s'"},
	{set: "enable_indexscan = off"},
	{set: "transform_null_equals = on"},
	{set: "backslash_quote = off"},
	{set: "array_nulls = off"},
	{set: "quote_all_identifiers = on"},
	{set: "extra_float_digits = -5"},
	{set: "lc_messages = 'C'"},
	{set: "row_security = off"},
	{set: "synchronize_seqscans = off"},
	{set: "default_transaction_deferrable = on"},
	{set: "xmloption = document"},
	{set: "search_path = public, pg_catalog"},
}

// newRole makes a role that may do everything, with a setting, and opens a pool as it.
func newRole(t *testing.T, admin *pgxpool.Pool, set string, more ...func(*pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	// The number comes first, because PostgreSQL cuts a name after 63 bytes.
	role := strings.ToLower(fmt.Sprintf("r%d_%s", tables.Add(1), scan[string](t, admin, "SELECT current_database()")))
	role = role[:min(len(role), 63)]
	exec(t, admin, "CREATE ROLE "+role+" LOGIN SUPERUSER PASSWORD 'secret'")
	exec(t, admin, "ALTER ROLE "+role+" SET "+set)
	t.Cleanup(func() {
		if _, err := admin.Exec(context.Background(), "DROP OWNED BY "+role+"; DROP ROLE "+role); err != nil {
			t.Error(err)
		}
	})
	return poolOn(t, admin.Config().ConnString(), append(more, func(c *pgxpool.Config) { c.ConnConfig.User, c.ConnConfig.Password = role, "secret" })...)
}

// TestRoleSettings: what a role or a database has set changes no answer, however the statements are
// sent.
func TestRoleSettings(t *testing.T) {
	admin := openPool(t, func(c *pgxpool.Config) { c.MaxConns = 30 })
	newStore(t, admin, "records")
	var wg sync.WaitGroup
	for _, c := range roleSettings {
		pools := make([]*pgxpool.Pool, len(modes))
		pools[0] = newRole(t, admin, c.set)
		for i, mode := range modes {
			pools[i] = pools[0]
			if i > 0 {
				config := pools[0].Config()
				config.ConnConfig.DefaultQueryExecMode = mode
				var err error
				if pools[i], err = pgxpool.NewWithConfig(t.Context(), config); err != nil {
					t.Fatal(err)
				}
				t.Cleanup(pools[i].Close)
			}
		}
		wg.Go(func() {
			for i, mode := range modes {
				refused := c.refused
				if mode == pgx.QueryExecModeSimpleProtocol && c.simple != "" {
					refused = c.simple
				}
				var err error
				for try := range 10 {
					// On a busy machine the lock on the end of a file is kept for longer than a
					// millisecond. Nothing was written then.
					if err = wholeLife(t.Context(), pools[i], fmt.Sprintf("käse-☃-%v-%s-%d", mode, c.set, try)); !errors.Is(err, dedupe.ErrBusy) {
						break
					}
				}
				if (err != nil) != (refused != "") || err != nil && !strings.Contains(err.Error(), refused) {
					t.Errorf("%s, %v: %v; want an error with %q", c.set, mode, err, refused)
				}
				pools[i].Close()
			}
		})
	}
	wg.Wait()
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
	if n := scan[int](t, admin, "SELECT count(*) FROM records"); n != 1 {
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
