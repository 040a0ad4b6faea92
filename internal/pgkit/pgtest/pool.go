// Package pgtest is what the tests of the store and of the queue in PostgreSQL say alike: pools,
// roles with settings of their own, a pooler in front of the server, and the plans of statements.
package pgtest

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onceq/onceq/internal/must"
	"github.com/onceq/onceq/internal/testserver/testpg"
)

// Pool opens a pool on a database of the test's own.
func Pool(tb testing.TB, settings ...func(*pgxpool.Config)) *pgxpool.Pool {
	tb.Helper()
	return PoolOn(tb, testpg.New(tb).URL, settings...)
}

// PoolOn opens a pool of ten connections on the database at url.
func PoolOn(tb testing.TB, url string, settings ...func(*pgxpool.Config)) *pgxpool.Pool {
	tb.Helper()
	c := must.Get(pgxpool.ParseConfig(url))
	c.MaxConns = 10
	for _, set := range settings {
		set(c)
	}
	pool := must.Get(pgxpool.NewWithConfig(tb.Context(), c))
	tb.Cleanup(pool.Close)
	return pool
}

// Exec runs a statement, which must not fail.
func Exec(tb testing.TB, db interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}, sql string, args ...any,
) {
	tb.Helper()
	if _, err := db.Exec(tb.Context(), sql, args...); err != nil {
		tb.Fatal(err)
	}
}

// Scan reads one value.
func Scan[T any](tb testing.TB, db interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}, sql string, args ...any,
) (v T) {
	tb.Helper()
	if err := db.QueryRow(tb.Context(), sql, args...).Scan(&v); err != nil {
		tb.Fatal(err)
	}
	return v
}

// Until waits for what another goroutine, or the server, does.
func Until(tb testing.TB, what string, done func() bool) {
	tb.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(60 * time.Second); !done(); <-tick.C {
		if time.Now().After(end) {
			tb.Fatalf("%s did not come", what)
		}
	}
}
