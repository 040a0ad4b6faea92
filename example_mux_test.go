package onceq_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"sync"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/memstore"
)

// One queue carries jobs of several types. Each type has its own handler, options and scope of
// keys.
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

	queue, dead, store := inMemoryMux()
	if err := onceq.Send(context.Background(), queue, []broker.Outgoing{
		{Meta: &broker.Meta{Type: "mail", Key: "order-7"}},
		{Meta: &broker.Meta{Type: "charge", Key: "order-7"}},
	}); err != nil {
		fmt.Println(err)
	}
	workMux(onceq.ProcessorConfig{Handler: mux, Store: store, Scope: "shop"}, queue, onceq.WorkerConfig{DeadLetter: dead}, 2)
	// Output:
	// [charge mail]
	// mail shop:mail/order-7
	// charge shop:charge/order-7 with a deadline: true
}

// A type that this worker does not know is given back: during a rolling deploy another worker may
// know it.
func ExampleMux_Handle() {
	mux := new(onceq.Mux)
	mux.On("mail", onceq.HandlerFunc(func(context.Context, *onceq.Job) error { return nil }), nil)

	queue, dead, store := inMemoryMux()
	_ = onceq.SendOne(context.Background(), queue, &broker.Outgoing{Meta: &broker.Meta{Type: "invoice", Key: "order-7"}})
	for _, r := range workMux(onceq.ProcessorConfig{Handler: mux, Store: store, Scope: "shop"}, queue, onceq.WorkerConfig{DeadLetter: dead}, 1) {
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

	queue, dead, store := inMemoryMux()
	_ = onceq.SendOne(context.Background(), queue, &broker.Outgoing{Meta: &broker.Meta{Type: "mail", Key: "mail-7"}})
	workMux(onceq.ProcessorConfig{Handler: mux, Store: store, Scope: "shop"}, queue, onceq.WorkerConfig{DeadLetter: dead}, 1)
	// Output:
	// outer begins mail-7
	// inner begins mail-7
	// inner ends: <nil>
	// outer ends: <nil>
}

// Chain wraps one handler. The first middleware is the outermost.
func ExampleChain() {
	queue, dead, store := inMemoryMux()
	handler := onceq.HandlerFunc(func(ctx context.Context, j *onceq.Job) error { return nil })
	sendMux(queue, "mail-7", "")
	workMux(onceq.ProcessorConfig{
		Handler: onceq.Chain(handler, noted("timer")),
		Store:   store, Scope: "mails",
	}, queue, onceq.WorkerConfig{DeadLetter: dead}, 1)
	// Output:
	// timer begins mail-7
	// timer ends: <nil>
}

// inMemoryMux makes what the examples run on: a queue, a queue for dead letters and a store.
func inMemoryMux() (queue, dead *membroker.Broker, store *memstore.Store) {
	return mustMux(membroker.New(nil)), mustMux(membroker.New(nil)), mustMux(memstore.New(nil))
}

func mustMux[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}

// workMux runs a worker with one slot until n deliveries have ended.
func workMux(c onceq.ProcessorConfig, queue broker.Receiver, w onceq.WorkerConfig, n int) []onceq.TimingRecord {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	t := &tallyMux{Observer: c.Observer, want: n, reached: stop}
	c.Observer, w.Concurrency = t, 1
	p := mustMux(onceq.NewProcessor(c))
	if err := mustMux(p.Worker(queue, w)).Run(ctx); err != nil {
		log.Fatal(err)
	}
	return t.records[:n]
}

// tallyMux counts deliveries that have ended.
type tallyMux struct {
	onceq.Observer // may be nil
	want           int
	reached        func()

	mu      sync.Mutex
	records []onceq.TimingRecord
}

func (t *tallyMux) JobStarted(ctx context.Context, j *onceq.Job) context.Context {
	if t.Observer == nil {
		return ctx
	}
	return t.Observer.JobStarted(ctx, j)
}

func (t *tallyMux) JobEnded(ctx context.Context, r *onceq.TimingRecord) {
	if t.Observer != nil {
		t.Observer.JobEnded(ctx, r)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.records = append(t.records, *r); len(t.records) == t.want {
		t.reached()
	}
}

// sendMux puts one message with the key, or one without where the key is empty.
func sendMux(queue broker.Sender, key, body string) {
	m := broker.Outgoing{Body: []byte(body), Meta: &broker.Meta{Key: key}}
	if err := onceq.SendOne(context.Background(), queue, &m); err != nil {
		log.Fatal(err)
	}
}

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
