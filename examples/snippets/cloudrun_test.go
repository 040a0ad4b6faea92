package snippets

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/gcppubsub/pubsubpush"
	"github.com/onceq/onceq/dedupe/memstore"
)

// Who has no token may not push, and after the drain nobody may.
func TestPushes(t *testing.T) {
	st, err := memstore.New(nil)
	require.NoError(t, err)
	p, err := onceq.NewProcessor(onceq.ProcessorConfig{
		Handler: onceq.HandlerFunc(func(context.Context, *onceq.Job) error { return nil }), Store: st, Scope: "orders",
	})
	require.NoError(t, err)
	b, err := p.Batches(onceq.BatchConfig{DeadLetter: newQueue(t)})
	require.NoError(t, err)
	h, err := pushes(b)
	require.NoError(t, err)
	push := func() int {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/push", strings.NewReader("{}")))
		return w.Code
	}
	require.Equal(t, http.StatusUnauthorized, push())
	require.NoError(t, drain(h, &http.Server{ReadHeaderTimeout: 1}))
	require.Equal(t, http.StatusServiceUnavailable, push())
}

// A push as the page makes it: pushed twice, it runs once.
func TestPush(t *testing.T) {
	st, err := memstore.New(nil)
	require.NoError(t, err)
	var ran []string
	p, err := onceq.NewProcessor(onceq.ProcessorConfig{
		Handler: onceq.HandlerFunc(func(_ context.Context, j *onceq.Job) error {
			ran = append(ran, j.Key().Key+": "+string(j.Message.Body))
			return nil
		}), Store: st, Scope: "orders",
	})
	require.NoError(t, err)
	b, err := p.Batches(onceq.BatchConfig{DeadLetter: newQueue(t)})
	require.NoError(t, err)
	h, err := pubsubpush.New(b, pubsubpush.Options{Auth: pubsubpush.None{}, AckDeadline: time.Minute})
	require.NoError(t, err)
	for range 2 {
		require.Equal(t, http.StatusNoContent, push(h, "1", []byte("12 cents")))
	}
	require.Equal(t, []string{"A-1: 12 cents"}, ran)
}
