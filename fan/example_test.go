package fan_test

import (
	"context"
	"fmt"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe/memstore"
	"github.com/onceq/onceq/fan"
)

// A month's invoices are sent, each by a job of its own, and then added up.
func ExampleOut() {
	type bill struct{ Customer string }
	var (
		invoice = onceq.Kind[bill]{Type: "invoice"}
		month   = onceq.Kind[[]string]{Type: "month", Key: func([]string) string { return "2026-11" }}
		prices  = map[string]int{"ana": 4999, "ben": 1250, "cem": 300}
	)
	queue, _ := membroker.New(nil)
	letters, _ := membroker.New(nil)
	store, _ := memstore.New(nil)
	ctx, stop := context.WithCancel(context.Background())

	var mux onceq.Mux
	mux.On(invoice.Type, onceq.JSONResult(func(_ context.Context, _ *onceq.Job, b bill) (int, error) {
		return prices[b.Customer], nil // mail it with the key j.EffectKey("mail")
	}), nil)
	month.On(&mux, func(ctx context.Context, j *onceq.Job, customers []string) error {
		err := fan.Out(ctx, j, store, "invoices", fan.Children{
			To: queue, Scope: "billing:invoice", N: len(customers),
			Message: func(i int) (broker.Outgoing, error) { return invoice.Message(bill{customers[i]}) },
		})
		if err != nil {
			return err // not all are done
		}
		sum := 0
		for cents, err := range fan.Results[int](ctx, j, store, "invoices") {
			if err != nil {
				return err
			}
			sum += cents
		}
		fmt.Printf("%d invoices, %d cents\n", len(customers), sum)
		stop()
		return nil
	})
	p, err := onceq.NewProcessor(onceq.ProcessorConfig{Handler: &mux, Store: store, Scope: "billing"})
	if err != nil {
		fmt.Println(err)
		return
	}
	w, err := p.Worker(queue, onceq.WorkerConfig{DeadLetter: letters})
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := month.Send(ctx, queue, []string{"ana", "ben", "cem"}); err != nil {
		fmt.Println(err)
		return
	}
	if err := w.Run(ctx); err != nil {
		fmt.Println(err)
	}
	// Output: 3 invoices, 6549 cents
}
