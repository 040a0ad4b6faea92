package onceq_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"sync"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/memstore"
)

// JSON decodes the body. One that does not decode is a dead letter at once: repeating would not
// change it.
func ExampleJSON() {
	type mail struct{ To string }
	queue, dead, store := inMemoryTyped()
	sendTyped(queue, "mail-7", `{"To":"ada@example.com"}`)
	sendTyped(queue, "mail-8", `{"To":`)
	for _, r := range workTyped(onceq.ProcessorConfig{
		Handler: onceq.JSON(func(ctx context.Context, j *onceq.Job, m mail) error {
			fmt.Println("to", m.To)
			return nil
		}),
		Store: store, Scope: "mails",
	}, queue, onceq.WorkerConfig{DeadLetter: dead}, 2) {
		fmt.Printf("%s: %s %q\n", r.Key.Key, r.Outcome, r.ErrClass)
	}
	// Output:
	// to ada@example.com
	// mail-7: done ""
	// mail-8: failed "decode"
}

// JSONResult keeps what the handler returns with the key, for whoever asks later.
func ExampleJSONResult() {
	type order struct{ Cents int }
	type receipt struct{ Number string }
	queue, dead, store := inMemoryTyped()
	c := onceq.ProcessorConfig{
		Handler: onceq.JSONResult(func(ctx context.Context, j *onceq.Job, o order) (receipt, error) {
			fmt.Println("charging", o.Cents)
			return receipt{"R-1"}, nil
		}),
		Store: store, Scope: "payments",
	}
	for range 2 { // the second time, the producer tries again
		sendTyped(queue, "order-7", `{"Cents":995}`)
		for _, r := range workTyped(c, queue, onceq.WorkerConfig{DeadLetter: dead}, 1) {
			fmt.Printf("%s %s\n", r.Outcome, r.Result)
		}
	}
	// Output:
	// charging 995
	// done {"Number":"R-1"}
	// already-done {"Number":"R-1"}
}

// Result reads what became of a job: here, a web page that polls for its receipt.
func ExampleResult() {
	type receipt struct{ Number string }
	ctx := context.Background()
	queue, dead, store := inMemoryTyped()
	key := dedupe.Key{Scope: "payments", Key: "order-7"}

	_, status, err := onceq.Result[receipt](ctx, store, key)
	fmt.Println(status, err)

	sendTyped(queue, "order-7", `{}`)
	workTyped(onceq.ProcessorConfig{
		Handler: onceq.JSONResult(func(context.Context, *onceq.Job, struct{}) (receipt, error) {
			return receipt{"R-1"}, nil
		}),
		Store: store, Scope: "payments",
	}, queue, onceq.WorkerConfig{DeadLetter: dead}, 1)
	r, status, err := onceq.Result[receipt](ctx, store, key)
	fmt.Println(status, r.Number, err)
	// Output:
	// none <nil>
	// done R-1 <nil>
}

// SetResult keeps any bytes with the key.
func ExampleJob_SetResult() {
	queue, dead, store := inMemoryTyped()
	sendTyped(queue, "thumb-7", "")
	for _, r := range workTyped(onceq.ProcessorConfig{
		Handler: onceq.HandlerFunc(func(ctx context.Context, j *onceq.Job) error {
			return j.SetResult([]byte("s3://thumbs/7.png"))
		}),
		Store: store, Scope: "thumbs",
	}, queue, onceq.WorkerConfig{DeadLetter: dead}, 1) {
		fmt.Printf("%s %s\n", r.Outcome, r.Result)
	}
	// Output:
	// done s3://thumbs/7.png
}

// NoStore says aloud that there is no store: each job runs at least once, and what needs a record
// fails.
func ExampleNoStore() {
	queue, dead, _ := inMemoryTyped()
	c := onceq.ProcessorConfig{
		Handler: onceq.HandlerFunc(func(ctx context.Context, j *onceq.Job) error {
			fmt.Println("cache warmed, fence", j.Fence())
			return nil
		}),
		Store: onceq.NoStore, Scope: "cache",
	}
	for range 2 {
		sendTyped(queue, "page-7", "")
		workTyped(c, queue, onceq.WorkerConfig{DeadLetter: dead}, 1)
	}
	_, _, err := onceq.Result[string](context.Background(), onceq.NoStore, dedupe.Key{Scope: "cache", Key: "page-7"})
	fmt.Println(errors.Is(err, onceq.ErrNoStore))
	// Output:
	// cache warmed, fence 0
	// cache warmed, fence 0
	// true
}

// inMemoryTyped makes what the examples run on: a queue, a queue for dead letters and a store.
func inMemoryTyped() (queue, dead *membroker.Broker, store *memstore.Store) {
	return mustTyped(membroker.New(nil)), mustTyped(membroker.New(nil)), mustTyped(memstore.New(nil))
}

func mustTyped[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}

// workTyped runs a worker with one slot until n deliveries have ended.
func workTyped(c onceq.ProcessorConfig, queue broker.Receiver, w onceq.WorkerConfig, n int) []onceq.TimingRecord {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	t := &tallyTyped{Observer: c.Observer, want: n, reached: stop}
	c.Observer, w.Concurrency = t, 1
	p := mustTyped(onceq.NewProcessor(c))
	if err := mustTyped(p.Worker(queue, w)).Run(ctx); err != nil {
		log.Fatal(err)
	}
	return t.records[:n]
}

// tallyTyped counts deliveries that have ended.
type tallyTyped struct {
	onceq.Observer // may be nil
	want           int
	reached        func()

	mu      sync.Mutex
	records []onceq.TimingRecord
}

func (t *tallyTyped) JobStarted(ctx context.Context, j *onceq.Job) context.Context {
	if t.Observer == nil {
		return ctx
	}
	return t.Observer.JobStarted(ctx, j)
}

func (t *tallyTyped) JobEnded(ctx context.Context, r *onceq.TimingRecord) {
	if t.Observer != nil {
		t.Observer.JobEnded(ctx, r)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.records = append(t.records, *r); len(t.records) == t.want {
		t.reached()
	}
}

// sendTyped puts one message with the key, or one without where the key is empty.
func sendTyped(queue broker.Sender, key, body string) {
	m := broker.Outgoing{Body: []byte(body), Meta: &broker.Meta{Key: key}}
	if err := onceq.SendOne(context.Background(), queue, &m); err != nil {
		log.Fatal(err)
	}
}
