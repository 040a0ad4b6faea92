package snippets

import (
	"testing"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"

	"github.com/onceq/onceq/adapters/gcppubsub"
	"github.com/onceq/onceq/pubsubfake"
)

// newOrders is a topic with its subscription, in the test's own process.
func newOrders(t testing.TB) *gcppubsub.Broker {
	t.Helper()
	const topic, subscription = "projects/acme/topics/orders", "projects/acme/subscriptions/orders-workers"
	server := pubsubfake.New(pubsubfake.Options{})
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
