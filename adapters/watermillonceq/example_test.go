package watermillonceq_test

import (
	"context"
	"fmt"
	"log"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/adapters/watermillonceq"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/memstore"
)

func must[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}

func exampleProcessor() *onceq.Processor {
	store := must(memstore.New(nil)) // a service that restarts has a durable one
	return must(onceq.NewProcessor(onceq.ProcessorConfig{Store: store, Scope: "orders"}))
}

// orderKey is the order's number, which is the same whoever sends the order, and how often.
func orderKey(msg *message.Message) (dedupe.Key, error) {
	return dedupe.Key{Key: msg.Metadata.Get("order")}, nil
}

// A message comes twice. The handler runs once, and the payment API gets a key of its own.
func Example() {
	once := must(watermillonceq.NewMiddleware(exampleProcessor(), &watermillonceq.Options{Key: orderKey}))

	pubsub := gochannel.NewGoChannel(gochannel.Config{BlockPublishUntilSubscriberAck: true}, nil)
	router := must(message.NewRouter(message.RouterConfig{}, watermill.NopLogger{}))
	router.AddMiddleware(once)
	router.AddConsumerHandler("charge", "orders", pubsub, func(msg *message.Message) error {
		key := watermillonceq.Job(msg.Context()).EffectKey("charge")
		fmt.Printf("charging %s with a key of %d digits\n", msg.Payload, len(key))
		return nil
	})
	ended := make(chan error)
	go func() { ended <- router.Run(context.Background()) }()
	<-router.Running()

	for range 2 {
		msg := message.NewMessage(watermill.NewUUID(), []byte("995 cents"))
		msg.Metadata.Set("order", "7")
		if err := pubsub.Publish("orders", msg); err != nil {
			log.Fatal(err)
		}
	}
	if err := router.Close(); err != nil {
		log.Fatal(err)
	}
	if err := <-ended; err != nil {
		log.Fatal(err)
	}
	// Output: charging 995 cents with a key of 32 digits
}

// What no delivery will ever do goes to a poison queue, and all other errors are nacked.
func ExampleIsFinal() {
	pubsub := gochannel.NewGoChannel(gochannel.Config{Persistent: true}, nil)
	poison := must(middleware.PoisonQueueWithFilter(pubsub, "poison", watermillonceq.IsFinal))
	once := must(watermillonceq.NewMiddleware(exampleProcessor(), &watermillonceq.Options{Key: orderKey}))
	handle := poison(once(func(*message.Message) ([]*message.Message, error) {
		return nil, onceq.Permanent(fmt.Errorf("the card is stolen"))
	}))

	msg := message.NewMessage("m-1", nil)
	msg.Metadata.Set("order", "7")
	_, err := handle(msg)
	fmt.Println("the handler's error:", err)
	letters := must(pubsub.Subscribe(context.Background(), "poison"))
	fmt.Println((<-letters).Metadata.Get(middleware.ReasonForPoisonedKey))
	// Output:
	// the handler's error: <nil>
	// watermillonceq: no delivery will run orders/7: the card is stolen
}

// What a handler produced is given again to a delivery that comes after its end.
func ExampleNewMiddleware() {
	once := must(watermillonceq.NewMiddleware(exampleProcessor(), &watermillonceq.Options{Key: orderKey}))
	handle := once(func(msg *message.Message) ([]*message.Message, error) {
		fmt.Println("working")
		return []*message.Message{message.NewMessage("receipt-1", []byte("paid"))}, nil
	})
	for range 2 {
		msg := message.NewMessage(watermill.NewUUID(), nil)
		msg.Metadata.Set("order", "7")
		for _, produced := range must(handle(msg)) {
			fmt.Printf("publish %s: %s\n", produced.UUID, produced.Payload)
		}
	}
	// Output:
	// working
	// publish receipt-1: paid
	// publish receipt-1: paid
}

// Messages of a subscription, without a Router: each is under a claim until its Ack.
func ExampleNewDecorator() {
	decorate := must(watermillonceq.NewDecorator(exampleProcessor(), &watermillonceq.Options{Key: orderKey}))
	pubsub := gochannel.NewGoChannel(gochannel.Config{}, nil)
	sub := must(decorate(pubsub))
	messages := must(sub.Subscribe(context.Background(), "orders"))

	for _, order := range []string{"7", "7", "8"} {
		msg := message.NewMessage(watermill.NewUUID(), nil)
		msg.Metadata.Set("order", order)
		if err := pubsub.Publish("orders", msg); err != nil {
			log.Fatal(err)
		}
	}
	orders := map[string]int{}
	for range 2 {
		msg := <-messages
		orders[msg.Metadata.Get("order")]++
		msg.Ack()
	}
	if err := sub.Close(); err != nil {
		log.Fatal(err)
	}
	fmt.Println(orders)
	// Output: map[7:1 8:1]
}

// A queue of onceq's as Watermill's Pub/Sub.
func ExampleNewSubscriber() {
	orders := must(membroker.New(nil)) // or awssqs.New, or gcppubsub.New
	open := func(topic string) (broker.Broker, error) {
		if topic != "orders" {
			return nil, fmt.Errorf("no such queue")
		}
		return orders, nil
	}
	pub := must(watermillonceq.NewPublisher(open, nil))
	sub := must(watermillonceq.NewSubscriber(open, &watermillonceq.SubscriberOptions{Concurrency: 1}))
	messages := must(sub.Subscribe(context.Background(), "orders"))

	if err := pub.Publish("orders", message.NewMessage("m-1", []byte("hello"))); err != nil {
		log.Fatal(err)
	}
	msg := <-messages
	fmt.Printf("%s %s\n", msg.UUID, msg.Payload)
	msg.Ack()
	if err := sub.Close(); err != nil {
		log.Fatal(err)
	}
	depth := must(orders.Depth(context.Background()))
	fmt.Println("left:", depth.Visible+depth.InFlight+depth.Delayed)
	// Output:
	// m-1 hello
	// left: 0
}
