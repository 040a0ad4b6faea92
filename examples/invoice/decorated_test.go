package main

import (
	"context"
	"database/sql"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/otelonceq"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/dynamostore"
	"github.com/onceq/onceq/dedupe/pgstore"
	"github.com/onceq/onceq/dedupe/sqlitestore"
	"github.com/onceq/onceq/localstack"
)

// What a store has beyond the contract is called on the store itself, which broker.As finds. It
// completes jobs that a worker has claimed through the decorated one.

// decorated is a store with telemetry around it, twice, and the store that is found in there.
func decorated[S dedupe.Store](t *testing.T, bare S) (dedupe.Store, S) {
	t.Helper()
	tel, err := otelonceq.New(nil)
	require.NoError(t, err)
	around := tel.Store(tel.Store(bare))
	found, ok := broker.As[S](around)
	require.True(t, ok)
	require.Equal(t, any(bare), any(found), "the very store")
	return around, found
}

// orders are ten jobs, two for each of five orders.
func orders() (ms []broker.Outgoing) {
	for n := range 10 {
		ms = append(ms, broker.Outgoing{Body: fmt.Appendf(nil, `{"Order": "order-%d", "Cents": 100}`, n%5), Meta: &broker.Meta{Key: fmt.Sprint("job ", n)}})
	}
	return ms
}

func TestDecoratedSQLite(t *testing.T) {
	t.Parallel()
	db := open(t)
	_, err := db.ExecContext(t.Context(), schema)
	require.NoError(t, err)
	bare, err := sqlitestore.New(db, nil)
	require.NoError(t, err)
	t.Cleanup(func() { bare.Close() })
	require.NoError(t, bare.Migrate(t.Context()))
	around, store := decorated(t, bare)
	o := &office{db, func(ctx context.Context, tx *sql.Tx, j *onceq.Job, result any) error {
		return store.CompleteTx(ctx, tx, j, result)
	}}
	work(t, onceq.ProcessorConfig{Handler: onceq.JSON(o.write), Store: around}, orders())
	require.Len(t, books(t, db), 5)
}

func TestDecoratedPostgres(t *testing.T) {
	t.Parallel()
	db, bare, pool := openPostgres(t)
	around, store := decorated(t, bare)
	bill := func(ctx context.Context, tx pgx.Tx, p paid) error {
		_, err := tx.Exec(ctx, `INSERT INTO invoices (number, order_id, cents)
			VALUES (hashtext($1), $1, $2) ON CONFLICT (order_id) DO NOTHING`, p.Order, p.Cents)
		return err
	}
	ms := orders()
	work(t, onceq.ProcessorConfig{Store: around, Handler: onceq.JSON(func(ctx context.Context, j *onceq.Job, p paid) error {
		return store.Commit(ctx, j, func(tx pgx.Tx) (any, error) { return invoice{1}, bill(ctx, tx, p) })
	})}, ms[:5:5])
	require.Len(t, books(t, db), 5)
	// A worker whose jobs another store keeps is told so, whatever is around the two.
	other, err := pgstore.New(pool, &pgstore.Options{Table: "other"})
	require.NoError(t, err)
	require.NoError(t, other.Migrate(t.Context()))
	var lost error
	work(t, onceq.ProcessorConfig{Store: around, Handler: onceq.JSON(func(ctx context.Context, j *onceq.Job, _ paid) error {
		if j.Attempt == 1 {
			lost = other.Commit(ctx, j, func(pgx.Tx) (any, error) { return nil, nil })
			return onceq.RetryAfter(0, lost)
		}
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { return store.CompleteTx(ctx, tx, j, invoice{2}) })
	})}, ms[5:6:6])
	require.ErrorIs(t, lost, dedupe.ErrLeaseLost)
	for key, want := range map[string]invoice{"job 4": {1}, "job 5": {2}} {
		got, status, err := onceq.Result[invoice](t.Context(), around, dedupe.Key{Scope: "invoices", Key: key})
		require.NoError(t, err)
		require.Equal(t, dedupe.Done, status)
		require.Equal(t, want, got)
	}
}

func TestDecoratedDynamoDB(t *testing.T) {
	t.Parallel()
	db := localstack.DynamoDB(t)
	bare, err := dynamostore.New(db.Client(t), db.TableName(t, "invoices"), nil)
	require.NoError(t, err)
	require.NoError(t, bare.CreateTable(t.Context()))
	around, store := decorated(t, bare)
	work(t, onceq.ProcessorConfig{Store: around, Handler: onceq.JSON(func(ctx context.Context, j *onceq.Job, _ paid) error {
		return store.Commit(ctx, j, invoice{7})
	})}, orders()[:3:3])
	got, status, err := onceq.Result[invoice](t.Context(), around, dedupe.Key{Scope: "invoices", Key: "job 2"})
	require.NoError(t, err)
	require.Equal(t, dedupe.Done, status)
	require.Equal(t, invoice{7}, got)
}
