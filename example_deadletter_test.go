package onceq_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/broker"
)

// A dead letter is the message as it was, with the reason in its metadata. Sent back unchanged, it runs exactly that
// failure once more: a second copy of it finds the job done.
func Example_deadLetter() {
	ctx := context.Background()
	queue, dead, store := inMemory()
	repaired := false
	c := onceq.Config{
		ProcessorConfig: onceq.ProcessorConfig{
			Handler: onceq.HandlerFunc(func(ctx context.Context, j *onceq.Job) error {
				if !repaired {
					return onceq.Permanent(errors.New("no price for article 12"))
				}
				return nil
			}),
			Store: store, Scope: "invoices", DeadLetter: dead,
		},
		Broker: queue,
	}
	send(queue, "invoice-7", "article 12")
	work(c, 1)

	letter := letters(dead)[0]
	d := letter.Meta.Dead
	fmt.Printf("%s: %s: %s (attempts: %d, from %s)\n", letter.Body, d.Class, d.LastErr, d.Attempts, d.Source)

	repaired = true
	for range 2 {
		again := broker.Outgoing{Body: letter.Body, Attributes: letter.Attributes, Meta: letter.Meta, Group: letter.Group}
		if err := onceq.SendOne(ctx, queue, &again); err != nil {
			fmt.Println(err)
		}
		for _, r := range work(c, 1) {
			fmt.Println(r.Outcome)
		}
	}
	// Output:
	// article 12: permanent: no price for article 12 (attempts: 1, from invoices)
	// done
	// already-done
}

// A job that has failed does not run again by a duplicate of its message, but by its dead letter alone. The
// duplicate makes sure that there is one.
func Example_failedDuplicate() {
	queue, dead, store := inMemory()
	c := onceq.Config{
		ProcessorConfig: onceq.ProcessorConfig{
			Handler: onceq.HandlerFunc(func(ctx context.Context, j *onceq.Job) error {
				return onceq.Permanent(errors.New("no price for article 12"))
			}),
			Store: store, Scope: "invoices", DeadLetter: dead,
		},
		Broker: queue,
	}
	for range 2 {
		send(queue, "invoice-7", "article 12")
		for _, r := range work(c, 1) {
			fmt.Println(r.Outcome, r.ErrClass)
		}
	}
	ls := letters(dead)
	fmt.Println(len(ls), "letters of one failure:", ls[0].Meta.Dead.Fence == ls[1].Meta.Dead.Fence)
	// Output:
	// failed permanent
	// already-failed permanent
	// 2 letters of one failure: true
}

// KeepInQueue leaves what cannot be done to the queue's own redrive: it is given back for an hour at a
// time, and never acked.
func ExampleKeepInQueue() {
	queue, _, store := inMemory()
	send(queue, "invoice-7", "article 12")
	for _, r := range work(onceq.Config{
		ProcessorConfig: onceq.ProcessorConfig{
			Handler: onceq.HandlerFunc(func(ctx context.Context, j *onceq.Job) error {
				return onceq.Permanent(errors.New("no price for article 12"))
			}),
			Store: store, Scope: "invoices", DeadLetter: onceq.KeepInQueue,
		},
		Broker: queue,
	}, 1) {
		fmt.Println(r.Outcome, r.ErrClass)
	}
	fmt.Println("in the queue, hidden:", must(queue.Depth(context.Background())).Delayed)
	// Output:
	// retried permanent
	// in the queue, hidden: 1
}
