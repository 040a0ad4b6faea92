package snippets

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/dedupe/memstore"
	"github.com/onceq/onceq/dlq"
)

func TestObserved(t *testing.T) {
	orders, err := membroker.New(nil)
	require.NoError(t, err)
	dead, err := membroker.New(nil)
	require.NoError(t, err)
	store, err := memstore.New(nil)
	require.NoError(t, err)
	var mux onceq.Mux
	mux.On("charge", onceq.HandlerFunc(func(context.Context, *onceq.Job) error { return nil }), nil)
	w, stop, err := observed(&mux, orders, dead, store)
	require.NoError(t, err)
	defer stop()
	require.Equal(t, []string{"charge"}, w.Types())
}

func TestReplayGroup(t *testing.T) {
	orders, err := membroker.New(nil)
	require.NoError(t, err)
	dead, err := membroker.New(nil)
	require.NoError(t, err)
	letters, err := dlq.New(dead, nil)
	require.NoError(t, err)
	asked := false
	report, err := replayGroup(t.Context(), letters, orders, "a41f09c2", func(p *dlq.Plan) bool {
		asked = true
		return p.Count(dlq.Take) > 0
	})
	require.NoError(t, err)
	require.True(t, asked)
	require.Zero(t, report.Replayed)
}
