package membroker_test

import (
	"context"
	"fmt"
	"log"

	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker"
)

// A message that is not acked comes back, here at once by a nack, and after two receives
// goes to the dead-letter queue.
func ExampleNew() {
	ctx := context.Background()
	dead, err := membroker.New(&membroker.Options{Name: "orders-dead"})
	if err != nil {
		log.Fatal(err)
	}
	orders, err := membroker.New(&membroker.Options{
		Name:    "orders",
		Redrive: &membroker.Redrive{MaxReceives: 2, To: dead},
	})
	if err != nil {
		log.Fatal(err)
	}
	if _, err := orders.Send(ctx, []broker.Outgoing{{Body: []byte("order 1")}}); err != nil {
		log.Fatal(err)
	}
	for range 2 {
		ms, err := orders.Receive(ctx, broker.ReceiveOptions{Max: 10})
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s, delivery %d\n", ms[0].Body, ms[0].Attempt)
		if err := orders.Nack(ctx, []broker.Hold{{Receipt: ms[0].Receipt}}); err != nil {
			log.Fatal(err)
		}
	}
	ms, err := dead.Receive(ctx, broker.ReceiveOptions{Max: 10})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s is a dead letter\n", ms[0].Body)
	// Output:
	// order 1, delivery 1
	// order 1, delivery 2
	// order 1 is a dead letter
}
