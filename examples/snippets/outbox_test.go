package snippets

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/adapters/pgbroker"
)

// Where the database is away, no order is placed, and the caller is told.
func TestPlaceWithoutADatabase(t *testing.T) {
	config, err := pgxpool.ParseConfig("postgres://nobody@127.0.0.1:1/none?connect_timeout=1")
	require.NoError(t, err)
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	defer pool.Close()
	queue, err := pgbroker.New(pool, "mails", nil)
	require.NoError(t, err)
	require.Error(t, placeOrder(t.Context(), pool, queue, "A-1", nil))
}

func TestRelayTo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		outbox, err := membroker.New(nil)
		require.NoError(t, err)
		orders, err := membroker.New(nil)
		require.NoError(t, err)
		m := onceq.Message("mail", "A-1", nil)
		require.NoError(t, onceq.SendOne(t.Context(), outbox, &m))
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		require.NoError(t, relayTo(ctx, outbox, orders))
		depth, err := orders.Depth(t.Context())
		require.NoError(t, err)
		require.EqualValues(t, 1, depth.Visible)
	})
}
