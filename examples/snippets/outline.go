package snippets

import (
	"context"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
)

// What follows is the outline in onceq's package comment, to the letter.

type Order struct {
	ID    string
	Cents int
}

// Producers and workers share the kind: its type, its payload, its key.
var Orders = onceq.Kind[Order]{Type: "order", Key: func(o Order) string { return o.ID }}

// The producer. An order that is sent twice is charged once.
func place(ctx context.Context, queue broker.Sender, o Order) error {
	return Orders.Send(ctx, queue, o)
}

// The worker. It runs until ctx ends, and then lets its handlers finish.
func work(ctx context.Context, queue, dead broker.Broker, store dedupe.Store, b bank) error {
	var mux onceq.Mux
	Orders.On(&mux, func(ctx context.Context, j *onceq.Job, o Order) error {
		_, err := b.Charge(ctx, j.EffectKey("charge"), o.Cents)
		return err // nil = done for good; an error = tried again later
	})
	p, err := onceq.NewProcessor(onceq.ProcessorConfig{
		Handler: &mux, Store: store, Scope: "shop",
	})
	if err != nil {
		return err
	}
	worker, err := p.Worker(queue, onceq.WorkerConfig{DeadLetter: dead})
	if err != nil {
		return err
	}
	return worker.Run(ctx)
}
