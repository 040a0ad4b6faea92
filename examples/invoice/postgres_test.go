package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe/pgstore"
	"github.com/onceq/onceq/localstack"
	"github.com/onceq/onceq/onceqtest"
)

// openPostgres gives the books and the store in one database.
func openPostgres(t *testing.T) (*sql.DB, *pgstore.Store, *pgxpool.Pool) {
	t.Helper()
	url := localstack.Postgres(t).URL
	pool, err := pgxpool.New(t.Context(), url)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	store, err := pgstore.New(pool, nil)
	require.NoError(t, err)
	require.NoError(t, store.Migrate(t.Context()))
	db, err := sql.Open("pgx", url)
	require.NoError(t, err)
	t.Cleanup(func() { db.Close() })
	_, err = db.ExecContext(t.Context(), schema)
	require.NoError(t, err)
	return db, store, pool
}

// The same handler on PostgreSQL: forty jobs, four for each of ten orders, ten at once.
func TestPostgres(t *testing.T) {
	t.Parallel()
	db, store, _ := openPostgres(t)
	o := &office{db, func(ctx context.Context, tx *sql.Tx, j *onceq.Job, result any) error {
		return store.CompleteSQL(ctx, tx, j, result)
	}}
	var ms []broker.Outgoing
	var want []string
	for n := range 40 {
		body := fmt.Sprintf(`{"Order": "order-%d", "Cents": 100}`, n%10)
		ms = append(ms, broker.Outgoing{Body: []byte(body), Meta: &broker.Meta{Key: fmt.Sprint("job ", n)}})
	}
	work(t, onceq.ProcessorConfig{
		Handler: onceq.JSON(o.write), Store: store,
		Defaults: onceq.JobOptions{
			MaxAttempts: -1, // two that want one number: one of them each time
			Backoff:     func(int, error) time.Duration { return time.Millisecond },
		},
	}, ms)
	got := books(t, db)
	for n := range 10 {
		want = append(want, fmt.Sprint("order-", n))
		require.Contains(t, got[n], fmt.Sprint(n+1, " "), "no number is missing: %q", got)
		got[n] = got[n][len(fmt.Sprint(n+1, " ")):]
	}
	slices.Sort(got)
	require.Equal(t, want, got)
}

// The pitfall: the unique violation itself is caught, and yet nothing after it in the transaction
// works. The job is never done, however often it is tried.
func TestPostgresFailedInsertAborts(t *testing.T) {
	t.Parallel()
	db, store, _ := openPostgres(t)
	_, err := db.ExecContext(t.Context(), `INSERT INTO invoices VALUES (1, 'order-1', 100)`)
	require.NoError(t, err)
	caught := onceq.HandlerFunc(func(ctx context.Context, j *onceq.Job) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		_, err = tx.ExecContext(ctx, `INSERT INTO invoices VALUES (2, 'order-1', 100)`)
		violation, ok := errors.AsType[*pgconn.PgError](err)
		if !ok || violation.Code != "23505" {
			return fmt.Errorf("want a unique violation, got %w", err)
		}
		if err := store.CompleteSQL(ctx, tx, j, invoice{1}); err != nil { // "done already", it thinks
			return err
		}
		return tx.Commit()
	})
	o := &office{db, func(ctx context.Context, tx *sql.Tx, j *onceq.Job, result any) error {
		return store.CompleteSQL(ctx, tx, j, result)
	}}
	for _, c := range []struct {
		name    string
		handler onceq.Handler
		outcome onceq.Outcome
	}{{"caught", caught, "retried"}, {"on conflict do nothing", onceq.JSON(o.write), "done"}} {
		rig := onceqtest.New(t, onceq.ProcessorConfig{Handler: c.handler, Store: store}, nil)
		rig.Send(broker.Outgoing{Body: []byte(`{"Order": "order-1", "Cents": 100}`), Meta: &broker.Meta{Key: c.name}})
		got := rig.Deliver()
		require.Equal(t, c.outcome, got.Outcome, "%s: %s", c.name, got.Err)
		if c.outcome == "retried" {
			require.Contains(t, got.Err, "25P02")
		} else {
			require.JSONEq(t, `{"Number": 1}`, string(got.Stored.Result))
		}
	}
	require.Equal(t, []string{"1 order-1"}, books(t, db))
}
