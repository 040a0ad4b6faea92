package pgstore

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/must"
	"github.com/onceq/onceq/internal/pgkit/pgtest"
)

// This file has the tests of tables that stand in Migrate's way: renamed ones, partitioned ones,
// and roles with time limits of their own.

// TestMigrateBesideARenamedTable: indexes keep their names when their table is renamed. The new
// table's are its own, and those of the other table stay.
func TestMigrateBesideARenamedTable(t *testing.T) {
	pool := openPool(t)
	newStore(t, pool, "records")
	exec(t, pool, "ALTER TABLE records RENAME TO records_old")
	s := must.Get(New(pool, &Options{Table: "records"}))
	for range 2 {
		if err := s.Migrate(t.Context()); err == nil || !strings.Contains(err.Error(), "records_attention") || !strings.Contains(err.Error(), "records_old") {
			t.Errorf("Migrate: %v, want an error that names the index and its table", err)
		}
	}
	exec(t, pool, "ALTER INDEX records_attention RENAME TO records_old_attention; ALTER INDEX records_expires RENAME TO records_old_expires")
	if err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := pgtest.Scan[int](t, pool, "SELECT count(*) FROM pg_indexes WHERE tablename = 'records'"); n != 3 {
		t.Errorf("the new table has %d indexes, want 3", n)
	}
	// An index that another table's build has left is not this one's to drop.
	exec(t, pool, `DROP INDEX records_attention; ALTER INDEX records_old_attention RENAME TO records_attention;
		UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'records_attention'::regclass`)
	if err := s.Migrate(t.Context()); err == nil || !strings.Contains(err.Error(), "records_old") {
		t.Errorf("Migrate beside an invalid index of another table: %v", err)
	}
	if !pgtest.Scan[bool](t, pool, "SELECT to_regclass('records_attention') IS NOT NULL") {
		t.Error("Migrate has dropped the index of another table")
	}
}

// TestBuilderKeepsItsTurn: a role's limit on idle transactions does not end the turn of the starter
// that builds the index. Another would take its index for the leftover of an interrupted build.
func TestBuilderKeepsItsTurn(t *testing.T) {
	pool := openPool(t)
	newStore(t, pool, "records")
	exec(t, pool, "DROP INDEX records_attention")
	old, err := pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = old.Rollback(t.Context()) }()
	if _, err := old.Exec(t.Context(), "SELECT count(*) FROM records"); err != nil {
		t.Fatal(err)
	}
	hurried := poolOn(t, pool.Config().ConnString(), func(c *pgxpool.Config) {
		c.MaxConns = 4
		c.ConnConfig.RuntimeParams["idle_in_transaction_session_timeout"] = "150ms"
	})
	s := must.Get(New(hurried, &Options{Table: "records"}))
	built := make(chan error, 1)
	go func() { built <- s.Migrate(t.Context()) }()
	until(t, "the build", func() bool {
		return pgtest.Scan[int](t, pool, "SELECT count(*) FROM pg_index WHERE indrelid = 'records'::regclass AND NOT indisvalid") == 1
	})
	exec(t, pool, "SELECT pg_sleep(0.5)") // the server's limit is the server's time
	if n := pgtest.Scan[int](t, pool, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"); n != 1 {
		t.Errorf("%d starters have the turn, want the one that builds", n)
	}
	if err := old.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-built; err != nil {
		t.Error(err)
	}
}

// TestMigratePartitioned: PostgreSQL builds no index of a partitioned table concurrently, and
// Migrate says what to run instead.
func TestMigratePartitioned(t *testing.T) {
	pool := openPool(t)
	s := newStore(t, pool, "records")
	exec(t, pool, `DROP SEQUENCE records_fence; ALTER TABLE records RENAME TO plain; DROP INDEX records_attention, records_expires;
		CREATE TABLE records (LIKE plain, PRIMARY KEY (scope, key)) PARTITION BY HASH (scope, key);
		CREATE TABLE records_0 PARTITION OF records FOR VALUES WITH (MODULUS 2, REMAINDER 0);
		CREATE TABLE records_1 PARTITION OF records FOR VALUES WITH (MODULUS 2, REMAINDER 1)`)
	err := s.Migrate(t.Context())
	if err == nil || !strings.Contains(err.Error(), `CREATE INDEX IF NOT EXISTS "records_attention"`) {
		t.Fatalf("Migrate: %v", err)
	}
	_, statement, _ := strings.Cut(err.Error(), "nobody: ")
	exec(t, pool, strings.TrimSuffix(statement, ")"))
	if err := s.Migrate(t.Context()); err != nil {
		t.Errorf("after the statement that it named: %v", err)
	}
	settleOne(t, s, claimOne(t, s, request("k")), dedupe.Failed)
}

// TestMigrateHurried: a statement_timeout of the role ends the build of a large table each time.
func TestMigrateHurried(t *testing.T) {
	pool := openPool(t)
	newStore(t, pool, "records")
	exec(t, pool, "DROP INDEX records_attention")
	old, err := pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = old.Rollback(t.Context()) }()
	if _, err := old.Exec(t.Context(), "SELECT count(*) FROM records"); err != nil {
		t.Fatal(err)
	}
	hurried := poolOn(t, pool.Config().ConnString(), func(c *pgxpool.Config) {
		c.ConnConfig.RuntimeParams["statement_timeout"] = "300ms"
	})
	s := must.Get(New(hurried, &Options{Table: "records"}))
	if err := s.Migrate(t.Context()); !errors.Is(err, dedupe.ErrBusy) || !strings.Contains(err.Error(), "statement_timeout") {
		t.Errorf("Migrate: %v, want ErrBusy that names statement_timeout", err)
	}
}

// TestBuildersWithOneConnection: a builder whose pool has one connection gives up its turn. The
// next starter leaves its index alone nevertheless.
func TestBuildersWithOneConnection(t *testing.T) {
	pool := openPool(t)
	newStore(t, pool, "records")
	exec(t, pool, "DROP INDEX records_attention")
	old, err := pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = old.Rollback(t.Context()) }()
	if _, err := old.Exec(t.Context(), "SELECT count(*) FROM records"); err != nil {
		t.Fatal(err)
	}
	starter := func() *Store {
		one := poolOn(t, pool.Config().ConnString(), func(c *pgxpool.Config) { c.MaxConns = 1 })
		return must.Get(New(one, &Options{Table: "records"}))
	}
	first, built := starter(), make(chan error, 1)
	go func() { built <- first.Migrate(t.Context()) }()
	const index = "SELECT coalesce(sum(indexrelid::bigint), 0)::bigint FROM pg_index WHERE indrelid = 'records'::regclass AND NOT indisvalid"
	until(t, "the build", func() bool { return pgtest.Scan[int64](t, pool, index) != 0 })
	was := pgtest.Scan[int64](t, pool, index)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := starter().Migrate(ctx); err != nil {
		t.Errorf("the second starter: %v", err)
	}
	if err := old.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-built; err != nil {
		t.Error(err)
	}
	if now := pgtest.Scan[int64](t, pool, "SELECT to_regclass('records_attention')::oid::bigint"); now != was {
		t.Errorf("the index is %d, the first starter built %d", now, was)
	}
}
