package onceq_test

import (
	"context"
	"fmt"
	"log"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/dedupe/memstore"
)

// Refund is the payload of a kind of job.
type Refund struct {
	Order string
	Cents int
}

// Refunds is that kind: what producers and workers agree on.
var Refunds = onceq.Kind[Refund]{
	Type: "refund",
	Key:  func(r Refund) string { return r.Order }, // one refund for an order, whoever asks for it
}

// A Kind is one declaration for producers and workers. Here two clicks on a button send two
// messages, and they are one job.
func ExampleKind() {
	queue, err := membroker.New(nil)
	if err != nil {
		log.Fatal(err)
	}
	dead, err := membroker.New(nil)
	if err != nil {
		log.Fatal(err)
	}
	store, err := memstore.New(nil)
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()

	// The producer.
	for range 2 {
		if err := Refunds.Send(ctx, queue, Refund{Order: "A-1", Cents: 995}); err != nil {
			log.Fatal(err)
		}
	}

	// The worker.
	var mux onceq.Mux
	Refunds.On(&mux, func(ctx context.Context, j *onceq.Job, r Refund) error {
		fmt.Printf("refunding %d cents of order %s\n", r.Cents, r.Order)
		stop() // a real one goes on; Run drains when its context ends
		return nil
	})
	p, err := onceq.NewProcessor(onceq.ProcessorConfig{Handler: &mux, Store: store, Scope: "shop"})
	if err != nil {
		log.Fatal(err)
	}
	w, err := p.Worker(queue, onceq.WorkerConfig{DeadLetter: dead})
	if err != nil {
		log.Fatal(err)
	}
	if err := w.Run(ctx); err != nil {
		log.Fatal(err)
	}
	// Output:
	// refunding 995 cents of order A-1
}
