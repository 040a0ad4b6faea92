package onceq_test

import (
	"context"
	"fmt"
	"log"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe/memstore"
)

// payment is what the producer puts into a message's body, as JSON.
type payment struct {
	Order string
	Cents int
}

// A first program: one queue, one handler. A real program takes its context from
// signal.NotifyContext, its queue from a driver of a service, and a store that outlives the
// process.
func Example() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	queue, err := membroker.New(nil)
	if err != nil {
		log.Fatal(err)
	}
	dead, err := membroker.New(&membroker.Options{Name: "dead letters"})
	if err != nil {
		log.Fatal(err)
	}
	store, err := memstore.New(nil)
	if err != nil {
		log.Fatal(err)
	}

	charge := func(ctx context.Context, j *onceq.Job, p payment) error {
		fmt.Printf("%s: charged %d cents\n", p.Order, p.Cents)
		if p.Order == "order-2" {
			stop() // the last one: Run settles what it has, and returns
		}
		return nil
	}
	p, err := onceq.NewProcessor(onceq.ProcessorConfig{
		Handler: onceq.JSON(charge),
		Store:   store,
		Scope:   "payments",
	})
	if err != nil {
		log.Fatal(err)
	}
	worker, err := p.Worker(queue, onceq.WorkerConfig{
		DeadLetter:  dead,
		Concurrency: 1, // only so that the lines below come in order
	})
	if err != nil {
		log.Fatal(err)
	}

	if err := onceq.Send(ctx, queue, []broker.Outgoing{
		{Body: []byte(`{"Order":"order-1","Cents":995}`), Meta: &broker.Meta{Key: "order-1"}},
		{Body: []byte(`{"Order":"order-2","Cents":450}`), Meta: &broker.Meta{Key: "order-2"}},
	}); err != nil {
		log.Fatal(err)
	}
	if err := worker.Run(ctx); err != nil {
		log.Fatal(err)
	}
	// Output:
	// order-1: charged 995 cents
	// order-2: charged 450 cents
}
