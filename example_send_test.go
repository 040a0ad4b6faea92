package onceq_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"sync"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe/memstore"
	"github.com/onceq/onceq/onceqtest"
)

// Send fills in what is missing, in the caller's own slice. So a caller that sends the slice once
// more after an error sends the same jobs.
func ExampleSend() {
	ctx := context.Background()
	queue, dead, store := inMemorySend()
	var producer onceqtest.Process // whose first send is taken, and its answer lost
	producer.At(onceqtest.Fault{Op: onceqtest.Send, Kind: onceqtest.LoseReply})
	to := producer.Producer(queue)
	ms := []broker.Outgoing{{Body: []byte("order 1")}, {Body: []byte("order 2")}}
	fmt.Println(onceq.Send(ctx, to, ms) != nil)
	id := ms[0].Meta.ID
	fmt.Println(onceq.Send(ctx, to, ms) != nil)
	fmt.Println("the same job:", ms[0].Meta.ID == id && ms[0].Meta.Key == id)
	fmt.Println("in the queue:", mustSend(queue.Depth(ctx)).Visible)

	runs := 0
	workSend(onceq.ProcessorConfig{
		Handler: onceq.HandlerFunc(func(context.Context, *onceq.Job) error { runs++; return nil }),
		Store:   store, Scope: "orders",
	}, queue, onceq.WorkerConfig{DeadLetter: dead}, 4)
	fmt.Println("runs:", runs)
	// Output:
	// true
	// false
	// the same job: true
	// in the queue: 4
	// runs: 2
}

// The key says which messages are one job. Take it from what the job is about. Then it also finds
// duplicates that the producer does not know of, such as two clicks on a button.
func ExampleSend_key() {
	queue, dead, store := inMemorySend()
	c := onceq.ProcessorConfig{
		Handler: onceq.HandlerFunc(func(ctx context.Context, j *onceq.Job) error {
			fmt.Println("refunding", j.Key().Key)
			return nil
		}),
		Store: store, Scope: "refunds",
	}
	for range 2 {
		if err := onceq.Send(context.Background(), queue, []broker.Outgoing{{
			Meta: &broker.Meta{Key: "order-7", CorrelationID: "request-12"},
		}}); err != nil {
			fmt.Println(err)
		}
		workSend(c, queue, onceq.WorkerConfig{DeadLetter: dead}, 1)
	}
	// Output:
	// refunding order-7
}

// A delay hides the message at first. How long it may be is the broker's limit.
func ExampleSendOne() {
	ctx := context.Background()
	queue := mustSend(membroker.New(&membroker.Options{Preset: membroker.SQSStandard}))
	reminder := broker.Outgoing{Body: []byte("order 7"), Delay: 10 * time.Minute}
	if err := onceq.SendOne(ctx, queue, &reminder); err != nil {
		fmt.Println(err)
	}
	fmt.Println("delayed:", mustSend(queue.Depth(ctx)).Delayed)

	reminder.Delay = 24 * time.Hour
	err := onceq.SendOne(ctx, queue, &reminder)
	fmt.Println(errors.Is(err, broker.ErrUnsupported), "the limit is", queue.Limits().MaxDelay)
	// Output:
	// delayed: 1
	// true the limit is 15m0s
}

// NotBefore reaches further than a broker's delays. A message that comes early is given back, as
// often as needed. It is not claimed, and no attempt is counted.
func ExampleSend_notBefore() {
	queue, dead, store := inMemorySend()
	tomorrow := time.Now().Add(24 * time.Hour)
	_ = onceq.SendOne(context.Background(), queue, &broker.Outgoing{Meta: &broker.Meta{Key: "order-7", NotBefore: tomorrow}})
	for _, r := range workSend(onceq.ProcessorConfig{
		Handler: onceq.HandlerFunc(func(context.Context, *onceq.Job) error { return nil }),
		Store:   store, Scope: "reminders",
	}, queue, onceq.WorkerConfig{DeadLetter: dead}, 1) {
		fmt.Println(r.Outcome, r.Attempt)
	}
	// Output:
	// early 0
}

// A job with Expires does not start when it is late. It is not dropped: it becomes a dead letter.
func ExampleSend_expires() {
	queue, dead, store := inMemorySend()
	_ = onceq.SendOne(context.Background(), queue, &broker.Outgoing{
		Body: []byte("your taxi is here"),
		Meta: &broker.Meta{Key: "ride-7", Expires: time.Now().Add(-time.Second)},
	})
	for _, r := range workSend(onceq.ProcessorConfig{
		Handler: onceq.HandlerFunc(func(context.Context, *onceq.Job) error { return nil }),
		Store:   store, Scope: "pushes",
	}, queue, onceq.WorkerConfig{DeadLetter: dead}, 1) {
		fmt.Println(r.Outcome, r.ErrClass)
	}
	// Output:
	// expired expired
}

// inMemorySend makes what the examples run on: a queue, a queue for dead letters and a store.
func inMemorySend() (queue, dead *membroker.Broker, store *memstore.Store) {
	return mustSend(membroker.New(nil)), mustSend(membroker.New(nil)), mustSend(memstore.New(nil))
}

func mustSend[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}

// workSend runs a worker with one slot until n deliveries have ended.
func workSend(c onceq.ProcessorConfig, queue broker.Receiver, w onceq.WorkerConfig, n int) []onceq.TimingRecord {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	t := &tallySend{Observer: c.Observer, want: n, reached: stop}
	c.Observer, w.Concurrency = t, 1
	p := mustSend(onceq.NewProcessor(c))
	if err := mustSend(p.Worker(queue, w)).Run(ctx); err != nil {
		log.Fatal(err)
	}
	return t.records[:n]
}

// tallySend counts deliveries that have ended.
type tallySend struct {
	onceq.Observer // may be nil
	want           int
	reached        func()

	mu      sync.Mutex
	records []onceq.TimingRecord
}

func (t *tallySend) JobStarted(ctx context.Context, j *onceq.Job) context.Context {
	if t.Observer == nil {
		return ctx
	}
	return t.Observer.JobStarted(ctx, j)
}

func (t *tallySend) JobEnded(ctx context.Context, r *onceq.TimingRecord) {
	if t.Observer != nil {
		t.Observer.JobEnded(ctx, r)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.records = append(t.records, *r); len(t.records) == t.want {
		t.reached()
	}
}
