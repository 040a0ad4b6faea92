package snippets

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe/memstore"
)

// A job goes through all of the page's limiters, and runs.
func TestLimits(t *testing.T) {
	store, err := memstore.New(nil)
	require.NoError(t, err)
	queue := newQueue(t)
	ctx, stop := context.WithCancel(t.Context())
	ran := 0
	h, err := perTenant(onceq.HandlerFunc(func(context.Context, *onceq.Job) error {
		ran++
		return nil
	}))
	require.NoError(t, err)
	h, err = perTenantInTheFleet(h, store)
	require.NoError(t, err)
	h, err = asTheAPIAllows(h, store)
	require.NoError(t, err)
	w, err := charging(h, onceq.ProcessorConfig{Store: store, Scope: "s", Observer: &count{left: 1, stop: stop}}, queue, newQueue(t))
	require.NoError(t, err)
	require.NoError(t, onceq.SendOne(t.Context(), queue, &broker.Outgoing{Body: []byte("x"), Attributes: map[string]string{"tenant": "a"}}))
	require.NoError(t, w.Run(ctx))
	require.Equal(t, 1, ran)
}
