package onceq_test

import (
	"context"
	"fmt"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
)

// One queue carries jobs of several types. Each type has its own handler, options and scope of keys.
func ExampleMux() {
	mux := new(onceq.Mux)
	mux.On("mail", onceq.HandlerFunc(func(ctx context.Context, j *onceq.Job) error {
		fmt.Println("mail", j.Key())
		return nil
	}), nil)
	mux.On("charge", onceq.HandlerFunc(func(ctx context.Context, j *onceq.Job) error {
		deadline, _ := ctx.Deadline()
		fmt.Println("charge", j.Key(), "with a deadline:", !deadline.IsZero())
		return nil
	}), &onceq.JobOptions{
		MaxAttempts: 3,
		Timeout:     time.Minute,
		Interrupted: dedupe.Park, // a charge in doubt is for a person to decide
	})
	fmt.Println(mux.Types())

	queue, dead, store := inMemory()
	if err := onceq.Send(context.Background(), queue, []broker.Outgoing{
		{Meta: &broker.Meta{Type: "mail", Key: "order-7"}},
		{Meta: &broker.Meta{Type: "charge", Key: "order-7"}},
	}); err != nil {
		fmt.Println(err)
	}
	work(onceq.Config{
		ProcessorConfig: onceq.ProcessorConfig{Handler: mux, Store: store, Scope: "shop", DeadLetter: dead},
		Broker:          queue,
	}, 2)
	// Output:
	// [charge mail]
	// mail shop:mail/order-7
	// charge shop:charge/order-7 with a deadline: true
}

// A type that this worker does not know is given back: during a rolling deploy another worker may know it.
func ExampleMux_Handle() {
	mux := new(onceq.Mux)
	mux.On("mail", onceq.HandlerFunc(func(context.Context, *onceq.Job) error { return nil }), nil)

	queue, dead, store := inMemory()
	_ = onceq.SendOne(context.Background(), queue, &broker.Outgoing{Meta: &broker.Meta{Type: "invoice", Key: "order-7"}})
	for _, r := range work(onceq.Config{
		ProcessorConfig: onceq.ProcessorConfig{Handler: mux, Store: store, Scope: "shop", DeadLetter: dead},
		Broker:          queue,
	}, 1) {
		fmt.Println(r.Outcome, r.ErrClass)
		fmt.Println(r.Err)
	}
	// Output:
	// retried no-handler
	// onceq: no handler for type "invoice"
}

// noted is a middleware: it gets the handler to wrap and answers the wrapped one.
func noted(name string) onceq.Middleware {
	return func(next onceq.Handler) onceq.Handler {
		return onceq.HandlerFunc(func(ctx context.Context, j *onceq.Job) error {
			fmt.Println(name, "begins", j.Key().Key)
			err := next.Handle(ctx, j)
			fmt.Println(name, "ends:", err)
			return err
		})
	}
}

// Use puts middleware around all handlers of a Mux, those that were set before included.
func ExampleMux_Use() {
	mux := new(onceq.Mux)
	mux.On("mail", onceq.HandlerFunc(func(context.Context, *onceq.Job) error { return nil }), nil)
	mux.Use(noted("outer"), noted("inner"))

	queue, dead, store := inMemory()
	_ = onceq.SendOne(context.Background(), queue, &broker.Outgoing{Meta: &broker.Meta{Type: "mail", Key: "mail-7"}})
	work(onceq.Config{
		ProcessorConfig: onceq.ProcessorConfig{Handler: mux, Store: store, Scope: "shop", DeadLetter: dead},
		Broker:          queue,
	}, 1)
	// Output:
	// outer begins mail-7
	// inner begins mail-7
	// inner ends: <nil>
	// outer ends: <nil>
}

// Chain wraps one handler. The first middleware is the outermost.
func ExampleChain() {
	queue, dead, store := inMemory()
	handler := onceq.HandlerFunc(func(ctx context.Context, j *onceq.Job) error { return nil })
	send(queue, "mail-7", "")
	work(onceq.Config{
		ProcessorConfig: onceq.ProcessorConfig{
			Handler: onceq.Chain(handler, noted("timer")),
			Store:   store, Scope: "mails", DeadLetter: dead,
		},
		Broker: queue,
	}, 1)
	// Output:
	// timer begins mail-7
	// timer ends: <nil>
}
