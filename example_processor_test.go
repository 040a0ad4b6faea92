package onceq_test

import (
	"context"
	"fmt"
	"log"
	"sync"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/memstore"
)

// One Processor serves two queues and an HTTP handler's calls. They share the keys: an order that
// was charged by a call is not charged again by a message. Each queue has its own limits and its
// own dead-letter queue.
func ExampleProcessor() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	store, err := memstore.New(nil)
	if err != nil {
		log.Fatal(err)
	}
	web, webDead := queueProcessor("web"), queueProcessor("web-dead")
	bulk, bulkDead := queueProcessor("bulk"), queueProcessor("bulk-dead")

	var left sync.WaitGroup
	left.Add(2)
	p, err := onceq.NewProcessor(onceq.ProcessorConfig{
		Handler: onceq.HandlerFunc(func(ctx context.Context, j *onceq.Job) error {
			left.Done()
			return nil
		}),
		Store: store, Scope: "charges",
	})
	if err != nil {
		log.Fatal(err)
	}
	fast, err := p.Worker(web, onceq.WorkerConfig{Name: "web", DeadLetter: webDead, Concurrency: 20})
	if err != nil {
		log.Fatal(err)
	}
	slow, err := p.Worker(bulk, onceq.WorkerConfig{Name: "bulk", DeadLetter: bulkDead, Concurrency: 2})
	if err != nil {
		log.Fatal(err)
	}

	// An HTTP handler charges order-1 while the queues are worked on.
	charge := func(context.Context, *onceq.Job) (string, error) { return "receipt 1", nil }
	receipt, err := onceq.Do(ctx, p, dedupe.Key{Key: "order-1"}, nil, charge)
	fmt.Println(receipt, err)

	sendProcessor(web, "order-1") // a duplicate of what the call has done
	sendProcessor(web, "order-2")
	sendProcessor(bulk, "order-3")
	go func() { left.Wait(); stop() }()
	var workers sync.WaitGroup
	for _, w := range []*onceq.Worker{fast, slow} {
		workers.Go(func() {
			if err := w.Run(ctx); err != nil {
				log.Fatal(err)
			}
		})
	}
	workers.Wait()
	for _, order := range []string{"order-1", "order-2", "order-3"} {
		_, status, err := onceq.Result[string](context.Background(), store, dedupe.Key{Scope: "charges", Key: order})
		fmt.Println(order, status, err)
	}
	// Output:
	// receipt 1 <nil>
	// order-1 done <nil>
	// order-2 done <nil>
	// order-3 done <nil>
}

func queueProcessor(name string) *membroker.Broker {
	q, err := membroker.New(&membroker.Options{Name: name})
	if err != nil {
		log.Fatal(err)
	}
	return q
}

func sendProcessor(queue broker.Sender, key string) {
	if err := onceq.SendOne(context.Background(), queue, &broker.Outgoing{Meta: &broker.Meta{Key: key}}); err != nil {
		log.Fatal(err)
	}
}
