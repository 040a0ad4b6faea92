package onceq_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe/memstore"
)

// Messages of one group run one after the other, in their order, however many slots there are; groups do not wait
// for each other. A message that has failed for good lets the rest of its group go on.
func Example_groups() {
	fifo := &membroker.Options{Preset: membroker.SQSFIFO}
	queue, dead, store := must(membroker.New(fifo)), must(membroker.New(fifo)), must(memstore.New(nil))
	var events []broker.Outgoing
	for _, e := range []string{"opened", "paid", "???", "shipped"} {
		events = append(events, broker.Outgoing{
			Body: []byte(e), Group: "order-7", DedupID: "order-7 " + e,
			Meta: &broker.Meta{Key: "order-7 " + e},
		})
	}
	if err := onceq.Send(context.Background(), queue, events); err != nil {
		fmt.Println(err)
	}
	for _, r := range work(onceq.Config{
		ProcessorConfig: onceq.ProcessorConfig{
			Handler: onceq.HandlerFunc(func(ctx context.Context, j *onceq.Job) error {
				if string(j.Message.Body) == "???" {
					return onceq.Permanent(errors.New("unknown event"))
				}
				return nil
			}),
			Store: store, Scope: "orders", DeadLetter: dead,
		},
		Broker: queue,
	}, 4) {
		fmt.Println(r.Key.Key, r.Outcome)
	}
	// Output:
	// order-7 opened done
	// order-7 paid done
	// order-7 ??? failed
	// order-7 shipped done
}

// HoldGroup is for groups whose order is sacred: nothing overtakes a message that cannot be done. It stays at the
// head of its group, and the others behind it.
func ExampleProcessorConfig_holdGroup() {
	fifo := &membroker.Options{Preset: membroker.SQSFIFO}
	queue, dead, store := must(membroker.New(fifo)), must(membroker.New(fifo)), must(memstore.New(nil))
	if err := onceq.Send(context.Background(), queue, []broker.Outgoing{
		{Body: []byte("???"), Group: "order-7", Meta: &broker.Meta{Key: "event-1"}},
		{Body: []byte("shipped"), Group: "order-7", Meta: &broker.Meta{Key: "event-2"}},
	}); err != nil {
		fmt.Println(err)
	}
	for _, r := range work(onceq.Config{
		ProcessorConfig: onceq.ProcessorConfig{
			Handler: onceq.HandlerFunc(func(ctx context.Context, j *onceq.Job) error {
				fmt.Printf("running %s\n", j.Message.Body)
				return onceq.Permanent(errors.New("unknown event"))
			}),
			Store: store, Scope: "orders", DeadLetter: dead, HoldGroup: true,
		},
		Broker: queue,
	}, 2) {
		fmt.Println(r.Outcome)
	}
	fmt.Println("dead letters:", len(letters(dead)))
	// Output:
	// running ???
	// retried
	// handed-back
	// dead letters: 0
}
