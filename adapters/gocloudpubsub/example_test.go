package gocloudpubsub_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"gocloud.dev/pubsub"
	"gocloud.dev/pubsub/mempubsub"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/gocloudpubsub"
	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe/memstore"
)

// A worker on a topic and a subscription of gocloud.
func ExampleNew() {
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	topic := mempubsub.NewTopic()
	subscribe := func(context.Context) (*pubsub.Subscription, error) {
		return mempubsub.NewSubscriptionWithOptions(topic, 30*time.Second, &mempubsub.SubscriptionOptions{
			ReceiveBatcherOptions: gocloudpubsub.NoPrefetch(),
		}), nil
	}
	subscription, err := subscribe(ctx)
	if err != nil {
		log.Fatal(err)
	}
	orders, err := gocloudpubsub.New(topic, subscription, gocloudpubsub.Options{
		Reopen: subscribe, Visibility: 30 * time.Second,
	})
	if err != nil {
		log.Fatal(err)
	}
	letters, err := membroker.New(nil)
	if err != nil {
		log.Fatal(err)
	}
	store, err := memstore.New(nil)
	if err != nil {
		log.Fatal(err)
	}

	m := broker.Outgoing{Body: []byte("42 cents"), Meta: &broker.Meta{Key: "order-7"}}
	if err := onceq.SendOne(ctx, orders, &m); err != nil {
		log.Fatal(err)
	}
	p, err := onceq.NewProcessor(onceq.ProcessorConfig{
		Handler: onceq.HandlerFunc(func(_ context.Context, j *onceq.Job) error {
			fmt.Printf("charged %s for %s\n", j.Message.Body, j.Key().Key)
			return nil
		}),
		Store: store, Scope: "orders",
	})
	if err != nil {
		log.Fatal(err)
	}
	worker, err := p.Worker(orders, onceq.WorkerConfig{DeadLetter: letters})
	if err != nil {
		log.Fatal(err)
	}
	running, cancel := context.WithCancel(ctx)
	go func() { // until the message is acked
		for orders.Stats().Acked < 1 && ctx.Err() == nil {
			<-time.After(10 * time.Millisecond)
		}
		cancel()
	}()
	if err := worker.Run(running); err != nil {
		log.Fatal(err)
	}
	if err := orders.Close(); err != nil {
		log.Fatal(err)
	}
	fmt.Println("messages acked:", orders.Stats().Acked)
	// Output:
	// charged 42 cents for order-7
	// messages acked: 1
}
