package snippets

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe/memstore"
)

// An order that the single handler has done is not done again by the Mux, in whichever form it
// comes. A reminder runs a day before it is due.
func TestOrdersMux(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		queue, err := membroker.New(nil)
		require.NoError(t, err)
		store, err := memstore.New(nil)
		require.NoError(t, err)
		var ran []string
		var at []time.Time
		charge := func(_ context.Context, _ *onceq.Job, o Purchase) error {
			ran, at = append(ran, o.OrderID), append(at, time.Now())
			return nil
		}
		work := func(h onceq.Handler, d time.Duration) {
			p, err := onceq.NewProcessor(onceq.ProcessorConfig{Handler: h, Key: orderKey, Store: store, Scope: "orders"})
			require.NoError(t, err)
			w, err := p.Worker(queue, onceq.WorkerConfig{DeadLetter: onceq.KeepInQueue})
			require.NoError(t, err)
			ctx, stop := context.WithTimeout(t.Context(), d)
			defer stop()
			require.NoError(t, w.Run(ctx))
		}
		bare := func() {
			_, err := queue.Send(t.Context(), []broker.Outgoing{{Body: []byte(`{"OrderID": "A-1"}`)}})
			require.NoError(t, err)
		}
		bare()
		work(onceq.JSON(charge), time.Minute)
		bare()
		require.NoError(t, Purchases.Send(t.Context(), queue, Purchase{"A-1"}))
		due := time.Now().Add(49 * time.Hour)
		require.NoError(t, remind(t.Context(), queue, Purchase{"A-2"}, due))
		work(ordersMux(charge), 26*time.Hour)
		require.Equal(t, []string{"A-1", "A-2"}, ran)
		require.WithinDuration(t, due.Add(-24*time.Hour), at[1], time.Minute)
	})
}
