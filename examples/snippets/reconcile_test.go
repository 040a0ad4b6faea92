package snippets

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/memstore"
	"github.com/onceq/onceq/dlq"
	"github.com/onceq/onceq/ops"
)

// TestReconcileNightly: of five processes one reconciles, an error lets another one, and what was
// missing runs once.
func TestReconcileNightly(t *testing.T) {
	orders, err := membroker.New(&membroker.Options{Name: "orders"})
	require.NoError(t, err)
	dead, err := membroker.New(nil)
	require.NoError(t, err)
	store, err := memstore.New(nil)
	require.NoError(t, err)
	letters, err := dlq.New(dead, &dlq.Options{Wait: 10 * time.Millisecond})
	require.NoError(t, err)
	o, err := ops.New([]ops.Target{{Name: "orders", Queue: orders, DeadLetters: dead, Letters: letters, Store: store, Scopes: []string{"orders"}}}, &ops.Options{By: "cron"})
	require.NoError(t, err)
	list := func(yield func(ops.Expected, error) bool) {
		yield(ops.Expected{
			Key: dedupe.Key{Scope: "orders", Key: "A-1"}, Due: time.Now().Add(-time.Hour), Send: &broker.Outgoing{Body: []byte("{}")},
		}, nil)
	}
	day := time.Date(2026, 11, 22, 3, 0, 0, 0, time.UTC)
	torn := errors.New("the list is torn")
	err = reconcileNightly(t.Context(), o, store, day, func(yield func(ops.Expected, error) bool) { yield(ops.Expected{}, torn) }, nil)
	require.ErrorIs(t, err, torn)
	var mu sync.Mutex
	var found []ops.Finding
	var all sync.WaitGroup
	for range 5 {
		all.Go(func() {
			err := reconcileNightly(t.Context(), o, store, day, list, func(f ops.Finding) { mu.Lock(); defer mu.Unlock(); found = append(found, f) })
			require.NoError(t, err)
		})
	}
	all.Wait()
	require.Len(t, found, 1)
	require.Equal(t, ops.FoundMissing, found[0].Kind)
	ran := make(chan string, 10)
	p, err := onceq.NewProcessor(onceq.ProcessorConfig{
		Handler: onceq.HandlerFunc(func(_ context.Context, j *onceq.Job) error { ran <- j.Message.Meta.Key; return nil }), Scope: "orders", Store: store,
	})
	require.NoError(t, err)
	w, err := p.Worker(orders, onceq.WorkerConfig{DeadLetter: dead})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- w.Run(ctx) }()
	require.Equal(t, "A-1", <-ran)
	stop()
	<-ended
	require.Empty(t, ran)
}
