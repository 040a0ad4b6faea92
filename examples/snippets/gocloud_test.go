package snippets

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"gocloud.dev/pubsub"
	"gocloud.dev/pubsub/mempubsub"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/gocloudpubsub"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/memstore"
)

// counted counts the claims.
type counted struct {
	dedupe.Store
	claims *atomic.Int32
}

func (s counted) Claim(ctx context.Context, rs []dedupe.ClaimRequest) ([]dedupe.Claim, error) {
	cs, err := s.Store.Claim(ctx, rs)
	s.claims.Add(int32(len(rs)))
	return cs, err
}

// The old loop and the new worker share a store: what both get is shipped once.
func TestOldLoopBesideNewWorker(t *testing.T) {
	topic := mempubsub.NewTopic()
	orders, others := mempubsub.NewSubscription(topic, time.Minute), mempubsub.NewSubscription(topic, time.Minute)
	for range 2 {
		require.NoError(t, topic.Send(t.Context(), &pubsub.Message{Body: []byte("A-1"), Metadata: map[string]string{"onceq-key": "A-1"}}))
	}
	st, err := memstore.New(nil)
	require.NoError(t, err)
	var shipped, asked atomic.Int32
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	ship := onceq.HandlerFunc(func(context.Context, *onceq.Job) error { shipped.Add(1); return nil })
	p, err := onceq.NewProcessor(onceq.ProcessorConfig{Store: st, Scope: "orders", Handler: ship, Key: gocloudpubsub.KeyOf})
	require.NoError(t, err)
	work, end := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() {
		done <- fromGoCloud(work, orders, counted{st, &asked}, ship, gocloudpubsub.Options{
			Visibility: time.Minute, Reopen: func(context.Context) (*pubsub.Subscription, error) { return nil, errors.ErrUnsupported },
		})
	}()
	loop, endLoop := context.WithCancel(ctx)
	taken := make(chan error, 1)
	go func() {
		taken <- oldLoop(loop, others, p, func(context.Context, []byte) error { shipped.Add(1); return nil })
	}()
	require.Eventually(t, func() bool { return asked.Load() >= 2 }, time.Minute, time.Millisecond)
	end()
	require.NoError(t, <-done)
	endLoop()
	require.ErrorIs(t, <-taken, context.Canceled)
	require.EqualValues(t, 1, shipped.Load())
}

func TestKeyOfEither(t *testing.T) {
	for _, c := range []struct {
		m    broker.Message
		want string
	}{
		{broker.Message{Attributes: map[string]string{"onceq-key": "k"}, Body: []byte(`{"OrderID":"7"}`)}, "k"},
		{broker.Message{Body: []byte(`{"OrderID":"7"}`)}, "7"},
		{broker.Message{Body: []byte(`{}`)}, ""},
	} {
		key, err := keyOfEither(&c.m)
		require.Equal(t, c.want, key.Key)
		require.Equal(t, c.want == "", err != nil)
	}
}

func TestPublishByGoCloud(t *testing.T) {
	queue := newQueue(t)
	require.NoError(t, publish(t.Context(), queue, "A-1", []byte("ship")))
	ms, err := queue.Receive(t.Context(), broker.ReceiveOptions{Max: 1})
	require.NoError(t, err)
	require.Equal(t, "A-1", ms[0].Meta.Key)
}
