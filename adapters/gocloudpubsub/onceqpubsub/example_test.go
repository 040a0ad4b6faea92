package onceqpubsub_test

import (
	"context"
	"fmt"
	"log"

	"gocloud.dev/pubsub"

	"github.com/onceq/onceq/adapters/gocloudpubsub/onceqpubsub"
	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker"
)

// A program that knows gocloud alone sends and receives through a queue of onceq. The key makes it
// one job to a onceq Worker, however often it is sent.
func ExampleOpenTopic() {
	ctx := context.Background()
	queue, err := membroker.New(nil) // mostly awssqs.New or gcppubsub.New
	if err != nil {
		log.Fatal(err)
	}
	topic, err := onceqpubsub.OpenTopic(queue, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer topic.Shutdown(ctx)
	err = topic.Send(ctx, &pubsub.Message{
		Body:     []byte("ship"),
		Metadata: map[string]string{onceqpubsub.KeyMetadata: "order-7", "shop": "north"},
	})
	if err != nil {
		log.Fatal(err)
	}
	ms, err := queue.Receive(ctx, broker.ReceiveOptions{Max: 1})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s %s, key %s\n", ms[0].Body, ms[0].Attributes["shop"], ms[0].Meta.Key)
	// Output: ship north, key order-7
}

// Heartbeats keep the message hidden until its Ack. As reaches what gocloud has no word for.
func ExampleOpenSubscription() {
	ctx := context.Background()
	queue, err := membroker.New(nil)
	if err != nil {
		log.Fatal(err)
	}
	if _, err := queue.Send(ctx, []broker.Outgoing{{Body: []byte("ship")}}); err != nil {
		log.Fatal(err)
	}
	orders, err := onceqpubsub.OpenSubscription(queue, nil)
	if err != nil {
		log.Fatal(err)
	}
	m, err := orders.Receive(ctx)
	if err != nil {
		log.Fatal(err)
	}
	var lease context.Context // ends when the lease is lost
	var delivery *broker.Message
	fmt.Println(string(m.Body), m.As(&lease), m.As(&delivery), delivery.Attempt)
	m.Ack()
	if err := orders.Shutdown(ctx); err != nil {
		log.Fatal(err)
	}
	depth, err := queue.Depth(ctx)
	fmt.Println(depth.Visible+depth.InFlight, err)
	// Output:
	// ship true true 1
	// 0 <nil>
}
