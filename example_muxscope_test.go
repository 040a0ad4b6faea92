package onceq_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
)

// A queue of bare messages, of a producer that does not use onceq, goes over from one handler to a
// Mux and a Kind. The Kind says whose place it takes: so order A-1, which the handler has charged,
// is not charged again, neither as a bare message nor as the Kind's.
func ExampleMux_Untyped() {
	queue, dead, store := inMemoryMux()
	type order struct{ OrderID string }
	charge := func(_ context.Context, j *onceq.Job, o order) error {
		fmt.Println("charge", o.OrderID, "under", j.Key())
		return nil
	}
	key := func(m *broker.Message) (dedupe.Key, error) {
		if m.Meta != nil && m.Meta.Key != "" {
			return dedupe.Key{Key: m.Meta.Key}, nil
		}
		var o order
		if err := json.Unmarshal(m.Body, &o); err != nil || o.OrderID == "" {
			return dedupe.Key{}, errors.New("no OrderID in the body")
		}
		return dedupe.Key{Key: o.OrderID}, nil
	}
	bare := func(id string) {
		if _, err := queue.Send(context.Background(), []broker.Outgoing{{Body: []byte(`{"OrderID":"` + id + `"}`)}}); err != nil {
			log.Fatal(err)
		}
	}

	bare("A-1")
	workMux(onceq.ProcessorConfig{Handler: onceq.JSON(charge), Key: key, Store: store, Scope: "orders"}, queue, onceq.WorkerConfig{DeadLetter: dead}, 1)

	orders := onceq.Kind[order]{
		Type: "order", Key: func(o order) string { return o.OrderID },
		Options: onceq.JobOptions{Was: onceq.OneHandler},
	}
	var mux onceq.Mux
	orders.On(&mux, charge)
	mux.Untyped("order") // bare messages are orders
	bare("A-1")
	bare("A-2")
	if err := orders.Send(context.Background(), queue, order{"A-1"}, order{"A-2"}); err != nil {
		log.Fatal(err)
	}
	workMux(onceq.ProcessorConfig{Handler: &mux, Key: key, Store: store, Scope: "orders"}, queue, onceq.WorkerConfig{DeadLetter: dead}, 4)
	// Output:
	// charge A-1 under orders/A-1
	// charge A-2 under orders/A-2
}

// Types that were one handler's share its scope, so their keys must tell them apart.
func ExampleMux_OneScope() {
	queue, dead, store := inMemoryMux()
	var mux onceq.Mux
	for _, typ := range []string{"charge", "mail"} {
		mux.On(typ, onceq.HandlerFunc(func(_ context.Context, j *onceq.Job) error {
			fmt.Println(j.Type(), "under", j.Key())
			return nil
		}), nil)
	}
	mux.OneScope()
	for _, m := range []broker.Outgoing{onceq.Message("charge", "charge/7", nil), onceq.Message("mail", "mail/7", nil)} {
		if err := onceq.SendOne(context.Background(), queue, &m); err != nil {
			log.Fatal(err)
		}
		workMux(onceq.ProcessorConfig{Handler: &mux, Store: store, Scope: "orders"}, queue, onceq.WorkerConfig{DeadLetter: dead}, 1)
	}
	// Output:
	// charge under orders/charge/7
	// mail under orders/mail/7
}
