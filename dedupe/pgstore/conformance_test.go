package pgstore

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/dedupetest"
)

// TestConformance runs each case on a table of its own, in one database.
func TestConformance(t *testing.T) {
	pool := openPool(t, func(c *pgxpool.Config) { c.MaxConns = 40 })
	db := stdlib.OpenDBFromPool(pool)
	t.Cleanup(func() { db.Close() })
	for name, begin := range map[string]func(testing.TB, *Store, string) dedupetest.Tx{
		"pgx":          func(t testing.TB, s *Store, ledger string) dedupetest.Tx { return beginPgx(t, s, pool, ledger) },
		"database-sql": func(t testing.TB, s *Store, ledger string) dedupetest.Tx { return beginSQL(t, s, db, ledger) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dedupetest.Run(t, dedupetest.Harness{Open: func(t testing.TB) dedupetest.Subject {
				return subject(t, pool, begin)
			}})
		})
	}
}

func subject(t testing.TB, pool *pgxpool.Pool, begin func(testing.TB, *Store, string) dedupetest.Tx) dedupetest.Subject {
	return subjectBeside(t, pool, pool, begin)
}

// subjectBeside is a store on a pool of its own, beside that of the hooks.
func subjectBeside(t testing.TB, pool, own *pgxpool.Pool, begin func(testing.TB, *Store, string) dedupetest.Tx) dedupetest.Subject {
	table := newTable()
	s := newStore(t, own, table)
	ledger := table + "_ledger"
	exec(t, pool, "CREATE TABLE "+ledger+" (line text NOT NULL)")
	return dedupetest.Subject{
		Store:  s,
		Age:    func(t testing.TB, k dedupe.Key, d time.Duration) { age(t, pool, s, k, d) },
		Second: func(t testing.TB) dedupe.Store { return newStore(t, own, table) },
		Begin:  func(t testing.TB) dedupetest.Tx { return begin(t, s, ledger) },
		Rows: func(t testing.TB) []string {
			rows, err := pool.Query(t.Context(), "SELECT line FROM "+ledger)
			if err != nil {
				t.Fatal(err)
			}
			lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
			if err != nil {
				t.Fatal(err)
			}
			return lines
		},
		Close: s.Close,
	}
}

func beginPgx(t testing.TB, s *Store, pool *pgxpool.Pool, ledger string) dedupetest.Tx {
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	// A case that failed must not keep the pool from closing.
	t.Cleanup(func() { tx.Rollback(context.Background()) })
	return dedupetest.Tx{
		Insert: func(row string) error {
			_, err := tx.Exec(t.Context(), "INSERT INTO "+ledger+" VALUES ($1)", row)
			return err
		},
		Complete: func(ctx context.Context, job dedupe.Owned, result []byte) error {
			return s.CompleteTx(ctx, tx, job, result)
		},
		Commit:   func() error { return tx.Commit(t.Context()) },
		Rollback: func() error { return tx.Rollback(t.Context()) },
	}
}

func beginSQL(t testing.TB, s *Store, db *sql.DB, ledger string) dedupetest.Tx {
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tx.Rollback() })
	return dedupetest.Tx{
		Insert: func(row string) error {
			_, err := tx.ExecContext(t.Context(), "INSERT INTO "+ledger+" VALUES ($1)", row)
			return err
		},
		Complete: func(ctx context.Context, job dedupe.Owned, result []byte) error {
			return s.CompleteSQL(ctx, tx, job, result)
		},
		Commit:   tx.Commit,
		Rollback: tx.Rollback,
	}
}
