// Command watermill charges orders with a handler of Watermill's.
//
// The trap: a message comes twice. Here the producer has lost an answer and publishes its order
// again, while the first message is worked on; a broker that sees an ack too late does the same.
// Watermill hands both on, and the card is charged twice. Its Deduplicator drops the second
// message before the first one has succeeded, and knows nothing of other processes or of a crash.
//
// The answer: three lines more. The handler, its router and its Pub/Sub stay as they are.
//
//	go run ./examples/watermill
//	go run ./examples/watermill -no-onceq
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/watermillonceq"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/memstore"
)

// bank stands for a payment API without idempotency keys.
type bank struct {
	mu      sync.Mutex
	charges map[string]int // by order
}

func (b *bank) charge(order string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.charges[order]++
}

// handle is the handler, as it was before.
func (b *bank) handle(msg *message.Message) ([]*message.Message, error) {
	order := msg.Metadata.Get("order")
	<-time.After(50 * time.Millisecond) // the payment API is slow
	b.charge(order)
	return []*message.Message{message.NewMessage(watermill.NewUUID(), []byte("a receipt for "+order))}, nil
}

// orderNumber is what tells one order from another, whoever sends it, and however often.
func orderNumber(msg *message.Message) (dedupe.Key, error) {
	order := msg.Metadata.Get("order")
	if order == "" {
		return dedupe.Key{}, errors.New("the message has no order")
	}
	return dedupe.Key{Key: order}, nil
}

// run charges three orders, each of which is published twice, and prints the bank's books.
func run(ctx context.Context, out io.Writer, withOnceq bool) {
	b := &bank{charges: make(map[string]int)}
	pubsub := gochannel.NewGoChannel(gochannel.Config{BlockPublishUntilSubscriberAck: true}, watermill.NopLogger{})
	router := must(message.NewRouter(message.RouterConfig{}, watermill.NopLogger{}))
	router.AddHandler("charge", "orders", pubsub, "receipts", pubsub, b.handle)

	if withOnceq {
		// These three lines are all that is new. A service that restarts has a durable store.
		p := must(onceq.NewProcessor(onceq.ProcessorConfig{Store: must(memstore.New(nil)), Scope: "shop"}))
		once := must(watermillonceq.NewMiddleware(p, &watermillonceq.Options{Key: orderNumber}))
		router.AddMiddleware(once)
	}

	ended := make(chan error)
	go func() { ended <- router.Run(ctx) }()
	<-router.Running()
	var acked sync.WaitGroup
	for _, order := range []string{"order-1", "order-2", "order-3"} {
		for range 2 { // the answer was lost, so the producer publishes again
			msg := message.NewMessage(watermill.NewUUID(), nil)
			msg.Metadata.Set("order", order)
			acked.Go(func() { check(pubsub.Publish("orders", msg)) })
		}
	}
	acked.Wait()
	check(router.Close())
	check(<-ended)
	for _, order := range slices.Sorted(maps.Keys(b.charges)) {
		fmt.Fprintf(out, "%s was charged %d times\n", order, b.charges[order])
	}
}

func main() {
	without := flag.Bool("no-onceq", false, "run the program as it was before")
	flag.Parse()
	run(context.Background(), os.Stdout, !*without)
}

func must[T any](v T, err error) T {
	check(err)
	return v
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
