package gcppubsub_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/gcppubsub"
	"github.com/onceq/onceq/adapters/gcppubsub/pubsubfake"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe/memstore"
)

// exampleServer stands for gcppubsub.Dial: the examples run on a server in memory.
func exampleServer(ctx context.Context, names ...string) *pubsubfake.Server {
	s := pubsubfake.New(nil)
	for _, name := range names {
		topic, err := s.CreateTopic(ctx, &pubsubpb.Topic{Name: "projects/acme/topics/" + name})
		if err != nil {
			log.Fatal(err)
		}
		sub := &pubsubpb.Subscription{
			Name: "projects/acme/subscriptions/" + name, Topic: topic.GetName(), AckDeadlineSeconds: 30,
			ExpirationPolicy: &pubsubpb.ExpirationPolicy{}, // never
		}
		if _, err := s.CreateSubscription(ctx, sub); err != nil {
			log.Fatal(err)
		}
	}
	return s
}

func open(api gcppubsub.API, name string, o *gcppubsub.Options) *gcppubsub.Broker {
	b, err := gcppubsub.New(api, "projects/acme/topics/"+name, "projects/acme/subscriptions/"+name, o)
	if err != nil {
		log.Fatal(err)
	}
	return b
}

// A worker on a subscription, with a dead-letter topic beside it.
func Example() {
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	clients := exampleServer(ctx, "orders", "orders-dead") // else gcppubsub.Dial(ctx)
	orders := open(clients, "orders", &gcppubsub.Options{LongPoll: time.Second})
	letters := open(clients, "orders-dead", nil)
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
	done, cancel := context.WithCancel(ctx)
	go func() { // until the message is acked
		for orders.Stats().Acked < 1 && ctx.Err() == nil {
			<-time.After(10 * time.Millisecond)
		}
		cancel()
	}()
	if err := worker.Run(done); err != nil {
		log.Fatal(err)
	}
	// Output: charged 42 cents for order-7
}

// Jobs of one ordering key run one after the other. The subscription must be made so, too.
func ExampleOptions_ordered() {
	orders := open(exampleServer(context.Background(), "orders"), "orders", &gcppubsub.Options{Ordered: true})
	fmt.Println(orders.Limits().OrderedGroups)
	_, err := orders.Send(context.Background(), []broker.Outgoing{
		{Body: []byte("created"), Group: "order-7"},
		{Body: []byte("paid"), Group: "order-7"},
	})
	fmt.Println(err)
	// Output:
	// true
	// <nil>
}

// What does not fit the way a subscription is used, in sentences for a start-up log.
func ExampleBroker_Check() {
	ctx := context.Background()
	orders := open(exampleServer(ctx, "orders"), "orders", &gcppubsub.Options{Attempts: true})
	_, problems, err := orders.Check(ctx, gcppubsub.CheckOptions{
		MaxAttempts: onceq.DefaultMaxAttempts, Retention: onceq.DefaultRetention, Visibility: onceq.DefaultVisibility,
	})
	if err != nil {
		log.Fatal(err)
	}
	for _, p := range problems {
		fmt.Println(p)
	}
	// Output: Options.Attempts is true, and Pub/Sub does not count: there is no dead-letter policy
}
