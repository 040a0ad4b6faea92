package onceq_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/onceqtest"
)

// Send fills in what is missing, in the caller's own slice: sent once more after an error, these are the same jobs.
func ExampleSend() {
	ctx := context.Background()
	queue, dead, store := inMemory()
	var producer onceqtest.Process // whose first send is taken, and its answer lost
	producer.At(onceqtest.Fault{Op: onceqtest.Send, Kind: onceqtest.LoseReply})
	to := producer.Producer(queue)
	ms := []broker.Outgoing{{Body: []byte("order 1")}, {Body: []byte("order 2")}}
	fmt.Println(onceq.Send(ctx, to, ms) != nil)
	id := ms[0].Meta.ID
	fmt.Println(onceq.Send(ctx, to, ms) != nil)
	fmt.Println("the same job:", ms[0].Meta.ID == id && ms[0].Meta.Key == id)
	fmt.Println("in the queue:", must(queue.Depth(ctx)).Visible)

	runs := 0
	work(onceq.Config{
		ProcessorConfig: onceq.ProcessorConfig{
			Handler: onceq.HandlerFunc(func(context.Context, *onceq.Job) error { runs++; return nil }),
			Store:   store, Scope: "orders", DeadLetter: dead,
		},
		Broker: queue,
	}, 4)
	fmt.Println("runs:", runs)
	// Output:
	// true
	// false
	// the same job: true
	// in the queue: 4
	// runs: 2
}

// The key says which messages are one job. Take it from what the job is about, and duplicates that the producer does
// not know of are found as well: here, two clicks on a button.
func ExampleSend_key() {
	queue, dead, store := inMemory()
	c := onceq.Config{
		ProcessorConfig: onceq.ProcessorConfig{
			Handler: onceq.HandlerFunc(func(ctx context.Context, j *onceq.Job) error {
				fmt.Println("refunding", j.Key().Key)
				return nil
			}),
			Store: store, Scope: "refunds", DeadLetter: dead,
		},
		Broker: queue,
	}
	for range 2 {
		if err := onceq.Send(context.Background(), queue, []broker.Outgoing{{
			Meta: &broker.Meta{Key: "order-7", CorrelationID: "request-12"},
		}}); err != nil {
			fmt.Println(err)
		}
		work(c, 1)
	}
	// Output:
	// refunding order-7
}

// A delay hides the message at first. How long it may be is the broker's limit.
func ExampleSendOne() {
	ctx := context.Background()
	queue := must(membroker.New(&membroker.Options{Preset: membroker.SQSStandard}))
	reminder := broker.Outgoing{Body: []byte("order 7"), Delay: 10 * time.Minute}
	if err := onceq.SendOne(ctx, queue, &reminder); err != nil {
		fmt.Println(err)
	}
	fmt.Println("delayed:", must(queue.Depth(ctx)).Delayed)

	reminder.Delay = 24 * time.Hour
	err := onceq.SendOne(ctx, queue, &reminder)
	fmt.Println(errors.Is(err, broker.ErrUnsupported), "the limit is", queue.Limits().MaxDelay)
	// Output:
	// delayed: 1
	// true the limit is 15m0s
}

// NotBefore reaches further than a broker's delays: a message that comes early is given back, as often as need be.
// It is not claimed, and that is not an attempt.
func ExampleSend_notBefore() {
	queue, dead, store := inMemory()
	tomorrow := time.Now().Add(24 * time.Hour)
	_ = onceq.SendOne(context.Background(), queue, &broker.Outgoing{Meta: &broker.Meta{Key: "order-7", NotBefore: tomorrow}})
	for _, r := range work(onceq.Config{
		ProcessorConfig: onceq.ProcessorConfig{
			Handler: onceq.HandlerFunc(func(context.Context, *onceq.Job) error { return nil }),
			Store:   store, Scope: "reminders", DeadLetter: dead,
		},
		Broker: queue,
	}, 1) {
		fmt.Println(r.Outcome, r.Attempt)
	}
	// Output:
	// early 0
}

// A job that is late is not worth starting. It is not dropped, but a dead letter.
func ExampleSend_expires() {
	queue, dead, store := inMemory()
	_ = onceq.SendOne(context.Background(), queue, &broker.Outgoing{
		Body: []byte("your taxi is here"),
		Meta: &broker.Meta{Key: "ride-7", Expires: time.Now().Add(-time.Second)},
	})
	for _, r := range work(onceq.Config{
		ProcessorConfig: onceq.ProcessorConfig{
			Handler: onceq.HandlerFunc(func(context.Context, *onceq.Job) error { return nil }),
			Store:   store, Scope: "pushes", DeadLetter: dead,
		},
		Broker: queue,
	}, 1) {
		fmt.Println(r.Outcome, r.ErrClass)
	}
	// Output:
	// expired expired
}
