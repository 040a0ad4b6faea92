package snippets

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe/memstore"
	"github.com/onceq/onceq/schedule"
)

// TestScheduler: three processes run the page's scheduler for a day, and each instant is one
// message.
func TestScheduler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, err := memstore.New(nil)
		require.NoError(t, err)
		queue, err := membroker.New(nil)
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 3)
		for range 3 {
			go func() { ended <- scheduler(ctx, store, queue) }()
		}
		<-time.After(24*time.Hour + time.Minute)
		cancel()
		for range 3 {
			require.NoError(t, <-ended)
		}
		depth, err := queue.Depth(t.Context())
		require.NoError(t, err)
		require.EqualValues(t, 24*4+1, depth.Visible)
	})
}

// TestReports: what one tenant has written wrongly is left out, and a table that is away keeps the
// last list.
func TestReports(t *testing.T) {
	queue, err := membroker.New(nil)
	require.NoError(t, err)
	rows := []reportRow{{"a", "0 7 * * 1", "Europe/Berlin"}, {"b", "0 25 * * *", "Europe/Berlin"}, {"c", "0 7 * * *", "UTC"}, {"d\n", "0 7 * * *", "UTC"}}
	list, err := reports(queue, func(context.Context) ([]reportRow, error) { return rows, nil })(t.Context())
	require.NoError(t, err)
	require.Len(t, list, 2)
	m, err := list[1].Message(time.Now())
	require.NoError(t, err)
	require.Equal(t, "c", string(m.Body))
	away := errors.New("away")
	_, err = reports(queue, func(context.Context) ([]reportRow, error) { return nil, away })(t.Context())
	require.ErrorIs(t, err, away)
}

// TestOtherSchedulers: what EventBridge Scheduler and Cloud Scheduler deliver twice has one key,
// and it is the key that schedule.Run would give.
func TestOtherSchedulers(t *testing.T) {
	at := time.Date(2022, 3, 22, 18, 59, 43, 0, time.UTC)
	k, err := scheduledKey(&broker.Message{Body: []byte(`{"schedule": "invoices", "at": "2022-03-22T18:59:43Z"}`)})
	require.NoError(t, err)
	require.Equal(t, schedule.Key("invoices", at), k.Key)
	_, err = scheduledKey(&broker.Message{Body: []byte(`{"at": "yesterday"}`)})
	require.Error(t, err)

	queue, err := membroker.New(nil)
	require.NoError(t, err)
	for _, when := range []string{"2022-03-22T18:59:43Z", "2022-03-22T19:59:43+01:00", ""} {
		r := httptest.NewRequest(http.MethodPost, "/invoices", nil)
		r.Header.Set("X-CloudScheduler-JobName", "invoices")
		r.Header.Set("X-CloudScheduler-ScheduleTime", when)
		w := httptest.NewRecorder()
		fromCloudScheduler(queue)(w, r)
		require.Equal(t, when == "", w.Code == http.StatusBadRequest)
	}
	ms, err := queue.Receive(t.Context(), broker.ReceiveOptions{Max: 10})
	require.NoError(t, err)
	require.Len(t, ms, 2)
	for _, m := range ms {
		require.Equal(t, k.Key, m.Meta.Key)
	}
}
