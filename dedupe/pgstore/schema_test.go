package pgstore

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/must"
	"github.com/onceq/onceq/internal/pgkit/pgtest"
	"github.com/onceq/onceq/internal/testserver/testpg"
)

func TestNewRefuses(t *testing.T) {
	pool := openPool(t)
	conn, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	for name, c := range map[string]struct {
		db    DB
		table string
		text  string
	}{
		"nil":                {nil, "", "db is nil"},
		"a nil pool":         {(*pgxpool.Pool)(nil), "", "db is a nil *pgxpool.Pool"},
		"a connection":       {conn.Conn(), "", "*pgxpool.Pool"},
		"a pool's conn":      {conn, "", "one connection"},
		"an empty table":     {pool, "jobs.", "table is empty"},
		"an empty schema":    {pool, ".records", "schema is empty"},
		"three parts":        {pool, "a.b.c", `"b.c"`},
		"quotes":             {pool, `a"b`, "letters, digits"},
		"a digit first":      {pool, "1a", "no digit first"},
		"not ASCII":          {pool, "bücher", "letters, digits"},
		"too long":           {pool, strings.Repeat("a", 49), "49 bytes, the limit is 48"},
		"the server's own":   {pool, "pg_catalog.a", "PostgreSQL's own"},
		"the standard's own": {pool, "information_schema.a", "PostgreSQL's own"},
	} {
		s, err := New(c.db, &Options{Table: c.table})
		if err == nil || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: %v, %v; want an error with %q", name, s, err, c.text)
		}
	}
	var _ DB = pool
	if _, ok := any(pgx.Tx(nil)).(DB); ok {
		t.Error("a transaction passes for a pool")
	}
}

// TestTables: names in every allowed form, side by side.
func TestTables(t *testing.T) {
	pool := openPool(t)
	names := []string{"", "Records", "records", "jobs.records", "Jobs.records", "select", strings.Repeat("a", 48), strings.Repeat("b", 48) + "." + strings.Repeat("c", 48)}
	for _, name := range names {
		for range 2 {
			s := newStore(t, pool, name)
			if name != "" && s.sql().name != name {
				t.Errorf("table %q is called %q", name, s.sql().name)
			}
		}
		s := newStore(t, pool, name)
		l := claimOne(t, s, request("k"))
		settleOne(t, s, l, dedupe.Done)
		tx := completing(t, s, pool, claimOne(t, s, request("tx")))
		if err := tx.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n, err := s.Sweep(t.Context(), 0); n != 0 || err != nil {
			t.Error(n, err)
		}
	}
}

// TestMigrateTogether: twenty starters at once, of two tables in a schema that is not there.
func TestMigrateTogether(t *testing.T) {
	pool := openPool(t, func(c *pgxpool.Config) { c.MaxConns = 30 })
	start := make(chan struct{})
	var wg sync.WaitGroup
	for i := range 20 {
		s := must.Get(New(pool, &Options{Table: fmt.Sprintf("fleet.records_%d", i%2)}))
		wg.Go(func() {
			<-start
			if err := s.Migrate(t.Context()); err != nil {
				t.Errorf("starter %d: %v", i, err)
				return
			}
			if cs, err := s.Claim(t.Context(), []dedupe.ClaimRequest{request(fmt.Sprint(i))}); err != nil || cs[0].Outcome != dedupe.Won {
				t.Errorf("starter %d: %+v, %v", i, cs, err)
			}
		})
	}
	close(start)
	wg.Wait()
}

// TestMigrateRepairs: what is missing is made, what is there is kept.
func TestMigrateRepairs(t *testing.T) {
	pool := openPool(t)
	s := newStore(t, pool, "records")
	l := claimOne(t, s, request("k"))
	if c := pgtest.Scan[string](t, pool, "SELECT obj_description('records'::regclass, 'pg_class')"); c != "onceq dedupe records, version 1; with what version 2 adds" {
		t.Errorf("the comment is %q", c)
	}
	for _, damage := range []string{"DROP INDEX records_expires", "DROP INDEX records_attention", "ALTER TABLE records DROP COLUMN past", "ALTER TABLE records DROP COLUMN sent", "DROP SEQUENCE records_fence", "COMMENT ON TABLE records IS NULL", "COMMENT ON TABLE records IS 'ours'"} {
		exec(t, pool, damage)
		for range 2 {
			if err := s.Migrate(t.Context()); err != nil {
				t.Errorf("after %s: %v", damage, err)
			}
		}
	}
	if c := pgtest.Scan[string](t, pool, "SELECT obj_description('records'::regclass, 'pg_class')"); c != "ours" {
		t.Errorf("the user's comment is now %q", c)
	}
	if n := pgtest.Scan[int](t, pool, "SELECT count(*) FROM pg_indexes WHERE tablename = 'records'"); n != 3 {
		t.Errorf("%d indexes, want 3", n)
	}
	if r := get(t, s, l.Key); r.Fence != l.Fence {
		t.Errorf("the record is %+v", r)
	}
	// A column of the user's own is none of our business.
	exec(t, pool, "ALTER TABLE records ADD COLUMN note text")
	if err := s.Migrate(t.Context()); err != nil {
		t.Error(err)
	}
	claimOne(t, s, request("k2"))
}

func TestMigrateRefuses(t *testing.T) {
	pool := openPool(t)
	for name, c := range map[string]struct{ sql, text string }{
		"another table":  {"CREATE TABLE {t} (id bigint)", "not this store's: no column attempt; no column claimed_at"},
		"a type":         {"{ours}; ALTER TABLE {t} ALTER COLUMN token TYPE text", "column token is text, want uuid"},
		"a column":       {"{ours}; ALTER TABLE {t} DROP COLUMN state", "no column state"},
		"no primary key": {"{ours}; ALTER TABLE {t} DROP CONSTRAINT {t}_pkey", "no valid primary key on (scope, key)"},
		"newer":          {"{ours}; COMMENT ON TABLE {t} IS 'onceq dedupe records, version 7'", "version 7, made by a newer pgstore"},
		"absurd":         {"{ours}; COMMENT ON TABLE {t} IS 'onceq dedupe records, version x'", `version x"`},
	} {
		table := newTable()
		sql := strings.ReplaceAll(c.sql, "{t}", table)
		if rest, ok := strings.CutPrefix(sql, "{ours}; "); ok {
			newStore(t, pool, table)
			sql = rest
		}
		exec(t, pool, sql)
		s := must.Get(New(pool, &Options{Table: table}))
		if err := s.Migrate(t.Context()); err == nil || !strings.Contains(err.Error(), c.text) || !strings.Contains(err.Error(), table) {
			t.Errorf("%s: %v, want %q", name, err, c.text)
		}
	}
}

// TestMigrateEncoding: a database that is not UTF8 cannot hold every key, and one such key would
// fail its whole batch.
func TestMigrateEncoding(t *testing.T) {
	db := testpg.New(t)
	pool := poolOn(t, db.URL)
	name := db.Name + "_ascii"
	exec(t, pool, "CREATE DATABASE "+name+" ENCODING 'SQL_ASCII' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0")
	t.Cleanup(func() {
		if _, err := pool.Exec(context.Background(), "DROP DATABASE "+name+" WITH (FORCE)"); err != nil {
			t.Error(err)
		}
	})
	u := must.Get(url.Parse(db.URL))
	u.Path = "/" + name
	s, err := New(poolOn(t, u.String()), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Migrate(t.Context()); err == nil || !strings.Contains(err.Error(), "SQL_ASCII") || !strings.Contains(err.Error(), "UTF8") {
		t.Errorf("Migrate: %v", err)
	}
}

// TestRights: once the table is there a role needs no right to create, and what it needs is what
// doc.go says.
func TestRights(t *testing.T) {
	db := testpg.New(t)
	pool := poolOn(t, db.URL)
	newStore(t, pool, "jobs.records")
	role := strings.ToLower(db.Name) + "_worker"
	exec(t, pool, "CREATE ROLE "+role)
	t.Cleanup(func() {
		if _, err := pool.Exec(context.Background(), "DROP OWNED BY "+role+"; DROP ROLE "+role); err != nil {
			t.Error(err)
		}
	})
	exec(t, pool, `REVOKE CREATE ON SCHEMA public FROM PUBLIC; GRANT USAGE ON SCHEMA jobs TO `+role+`;
		GRANT SELECT, INSERT, UPDATE, DELETE ON jobs.records TO `+role+`; GRANT USAGE ON SEQUENCE jobs.records_fence TO `+role)
	worker := poolOn(t, db.URL, func(c *pgxpool.Config) { c.ConnConfig.RuntimeParams["role"] = role })
	s := newStore(t, worker, "jobs.records")
	l := claimOne(t, s, request("k"))
	age(t, pool, s, l.Key, time.Hour)
	l = claimOne(t, s, request("k"))
	settleOne(t, s, l, dedupe.Done)
	age(t, pool, s, l.Key, 1000*time.Hour)
	if n, err := s.Sweep(t.Context(), 0); n != 1 || err != nil {
		t.Error(n, err)
	}
	other, err := New(worker, &Options{Table: "jobs.others"})
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Migrate(t.Context()); err == nil || !strings.Contains(err.Error(), "permission denied") {
		t.Errorf("Migrate without rights: %v", err)
	}
}

func TestNotMigrated(t *testing.T) {
	s, err := New(openPool(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.Claim(t.Context(), []dedupe.ClaimRequest{request("k")})
	if err == nil || !strings.Contains(err.Error(), "has Migrate been run on table onceq_dedupe?") {
		t.Errorf("Claim: %v", err)
	}
}

func TestSweep(t *testing.T) {
	pool := openPool(t, impatient)
	s := newStore(t, pool, newTable())
	const done = 2500
	var qs []dedupe.ClaimRequest
	var ss []dedupe.Settlement
	flush := func() {
		claimAll(t, s, qs...)
		if as, err := s.Settle(t.Context(), ss); err != nil || as[0].Err != nil {
			t.Fatal(as, err)
		}
		qs, ss = nil, nil
	}
	for i := range done {
		qs = append(qs, request(fmt.Sprint(i)))
		to := []dedupe.Status{dedupe.Done, dedupe.Failed, dedupe.Released}[i%3]
		ss = append(ss, dedupe.Settlement{Key: qs[len(qs)-1].Key, Token: qs[len(qs)-1].Token, To: to, Retain: time.Hour})
		if len(qs) == 500 {
			flush()
		}
	}
	claimed, parked, kept := claimOne(t, s, request("claimed")), claimOne(t, s, request("parked")), claimOne(t, s, request("kept"))
	settleOne(t, s, parked, dedupe.Parked)
	settleOne(t, s, kept, dedupe.Done) // 31 days
	sweep := func(limit, want int) {
		t.Helper()
		if n, err := s.Sweep(t.Context(), limit); n != want || err != nil {
			t.Errorf("Sweep(%d): %d, %v; want %d", limit, n, err, want)
		}
	}
	sweep(0, 0)
	exec(t, pool, "UPDATE "+s.sql().table+" SET expires = expires - interval '2 hours', lease_until = lease_until - interval '2 hours'")
	// A row that was mended by hand keeps its claim.
	exec(t, pool, "UPDATE "+s.sql().table+" SET expires = now() - interval '1 hour' WHERE status IN ('claimed', 'parked')")
	sweep(7, 7)
	// One that somebody holds is left to the next time.
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.Background())
	if _, err := tx.Exec(t.Context(), "SELECT FROM "+s.sql().table+" WHERE key = '2400' FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	var total int
	var mu sync.Mutex
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			n, err := s.Sweep(t.Context(), 0)
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			total += n
		})
	}
	wg.Wait()
	tx.Rollback(t.Context())
	n, err := s.Sweep(t.Context(), 0)
	if total+n != done-7 || n == 0 || err != nil {
		t.Errorf("three sweepers removed %d, the last %d, %v; want %d together", total, n, err, done-7)
	}
	if left := pgtest.Scan[int](t, pool, "SELECT count(*) FROM "+s.sql().table); left != 3 {
		t.Errorf("%d rows are left, want 3", left)
	}
	_ = claimed
}

func TestClosed(t *testing.T) {
	pool := openPool(t)
	s := newStore(t, pool, newTable())
	second := newStore(t, pool, s.sql().name)
	for range 2 {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	if _, err := s.Sweep(t.Context(), 0); !errors.Is(err, dedupe.ErrClosed) {
		t.Errorf("Sweep: %v", err)
	}
	if err := s.Migrate(t.Context()); !errors.Is(err, dedupe.ErrClosed) {
		t.Errorf("Migrate: %v", err)
	}
	// The pool is the user's.
	claimOne(t, second, request("k"))
	pool.Close()
	if cs, err := second.Claim(t.Context(), []dedupe.ClaimRequest{request("k")}); err == nil {
		t.Errorf("a claim on a closed pool: %+v", cs)
	}
}
