package snippets

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/stretchr/testify/require"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/gcppubsub"
	"github.com/onceq/onceq/adapters/gcppubsub/pubsubfake"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe/memstore"
)

// newOrders is a topic with its subscription, in the test's own process.
func newOrders(t testing.TB) *gcppubsub.Broker {
	t.Helper()
	const topic, subscription = "projects/acme/topics/orders", "projects/acme/subscriptions/orders-workers"
	server := pubsubfake.New(nil)
	t.Cleanup(func() { server.Close() })
	if _, err := server.CreateTopic(t.Context(), &pubsubpb.Topic{Name: topic}); err != nil {
		t.Fatal(err)
	}
	if _, err := server.CreateSubscription(t.Context(), &pubsubpb.Subscription{
		Name: subscription, Topic: topic, AckDeadlineSeconds: 30,
	}); err != nil {
		t.Fatal(err)
	}
	orders, err := gcppubsub.New(server, topic, subscription, nil)
	if err != nil {
		t.Fatal(err)
	}
	return orders
}

// A job of five minutes on the server of a test, in virtual time: it has its effect once.
func TestNewOrders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		orders := newOrders(t)
		store, err := memstore.New(nil)
		require.NoError(t, err)
		ran := 0
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		p, err := onceq.NewProcessor(onceq.ProcessorConfig{
			Store: store, Scope: "orders",
			Handler: onceq.HandlerFunc(func(context.Context, *onceq.Job) error {
				<-time.After(5 * time.Minute)
				ran++
				stop()
				return nil
			}),
		})
		require.NoError(t, err)
		w, err := p.Worker(orders, onceq.WorkerConfig{DeadLetter: onceq.KeepInQueue})
		require.NoError(t, err)
		require.NoError(t, onceq.SendOne(ctx, orders, &broker.Outgoing{Body: []byte("order"), Meta: &broker.Meta{Key: "A-1"}}))
		require.NoError(t, w.Run(ctx))
		require.Equal(t, 1, ran)
		require.EqualValues(t, 1, orders.Stats().Acked)
	})
}
