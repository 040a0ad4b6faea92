package snippets

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe/firestorestore/firestorefake"
)

// The bolts of docs/backend-firestore.md are taken once, though the order came twice.
func TestDeductDoc(t *testing.T) {
	_, address := firestorefake.Start(t, nil)
	t.Setenv("FIRESTORE_EMULATOR_HOST", address)
	client, store, err := openKeys(t.Context(), "p")
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Close() })
	queue := newQueue(t)
	for range 2 {
		require.NoError(t, onceq.SendOne(t.Context(), queue, &broker.Outgoing{
			Body: []byte(`{"SKU": "bolt", "Pieces": 3}`), Meta: &broker.Meta{Key: "order-1"},
		}))
	}
	ctx, stop := context.WithCancel(t.Context())
	p, err := onceq.NewProcessor(onceq.ProcessorConfig{
		Handler: deductDoc(client, store), Store: store, Scope: "orders", Observer: &count{left: 2, stop: stop},
	})
	require.NoError(t, err)
	worker, err := p.Worker(queue, onceq.WorkerConfig{DeadLetter: newQueue(t), Concurrency: 1})
	require.NoError(t, err)
	require.NoError(t, worker.Run(ctx))
	bolt, err := client.Doc("stock/bolt").Get(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, -3, bolt.Data()["n"])
}
