package main

import (
	"context"
	"database/sql"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/otelonceq"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/sqlitestore"
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
