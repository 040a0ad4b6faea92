package snippets

import (
	"bufio"
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe/memstore"
	"github.com/onceq/onceq/dlq"
	"github.com/onceq/onceq/ops"
)

func TestScreen(t *testing.T) {
	orders, err := membroker.New(&membroker.Options{Name: "orders"})
	require.NoError(t, err)
	dead, err := membroker.New(&membroker.Options{Name: "orders-dead"})
	require.NoError(t, err)
	letters, err := dlq.New(dead, &dlq.Options{Wait: 10 * time.Millisecond})
	require.NoError(t, err)
	store, err := memstore.New(nil)
	require.NoError(t, err)
	for range 6 {
		_, err = dead.Send(t.Context(), []broker.Outgoing{{Body: []byte("{}")}})
		require.NoError(t, err)
	}
	o, err := ops.New([]ops.Target{{Name: "orders", Queue: orders, DeadLetters: dead, Letters: letters, Store: store}}, nil)
	require.NoError(t, err)
	board, err := ops.NewBoard(o, nil)
	require.NoError(t, err)
	acts, err := ops.NewRunning(&ops.RunningOptions{Board: board})
	require.NoError(t, err)
	defer func() {
		require.NoError(t, acts.Close(context.Background()))
		require.NoError(t, board.Close(context.Background()))
	}()

	s := httptest.NewServer(screen(board, acts))
	defer s.Close()
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL, http.NoBody)
	require.NoError(t, err)
	answer, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer answer.Body.Close()
	events := bufio.NewScanner(answer.Body)
	require.True(t, events.Scan())
	require.Contains(t, events.Text(), `"Letters":6`)
	require.Contains(t, events.Text(), `"acts":0`)

	id, err := begin(t.Context(), board, acts, o.As("ana"), "orders", dlq.Fingerprint(dlq.Unexplained, ""))
	require.NoError(t, err)
	for !strings.Contains(events.Text(), `"acts":1`) {
		require.True(t, events.Scan())
	}
	for { // nobody runs the jobs, so it waits for somebody's word
		changed := acts.Changed()
		if a, _ := acts.Act(id); a.Watched != nil {
			require.Equal(t, 5, a.Sent)
			require.Equal(t, "ana", a.By)
			break
		}
		<-changed
	}
	require.NoError(t, acts.Stop(id, "ana"))
}
