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

// Where an effect can neither be repeated nor looked up, a job that was interrupted after its start
// is parked: it is never run again by itself. A person finds out what happened, and resolves the
// dead letter.
func ExampleJobOptions_interrupted() {
	queue, dead, store := inMemoryInterrupted()
	sendInterrupted(queue, "wire-7", "1,000,000")
	for _, r := range workInterrupted(onceq.ProcessorConfig{
		Handler: onceq.HandlerFunc(func(ctx context.Context, j *onceq.Job) error {
			fmt.Println("telex: wire", string(j.Message.Body))
			return onceq.Unknown(errors.New("paper jam")) // sent, or not?
		}),
		Store: store, Scope: "wires",
		Defaults: onceq.JobOptions{Interrupted: dedupe.Park},
	}, queue, onceq.WorkerConfig{DeadLetter: dead}, 1) {
		fmt.Println(r.Outcome, r.ErrClass)
	}
	_, status, err := onceq.Result[string](context.Background(), store, dedupe.Key{Scope: "wires", Key: "wire-7"})
	fmt.Println(status, err)
	fmt.Println("dead letters:", len(lettersInterrupted(dead)))
	// Output:
	// telex: wire 1,000,000
	// parked interrupted
	// parked <nil>
	// dead letters: 1
}

// A plain error is the handler's word that nothing has happened, under Park as well: the job is
// tried again.
func ExampleJobOptions_interruptedRetry() {
	queue, dead, store := inMemoryInterrupted()
	sendInterrupted(queue, "wire-7", "1,000,000")
	for _, r := range workInterrupted(onceq.ProcessorConfig{
		Handler: onceq.HandlerFunc(func(ctx context.Context, j *onceq.Job) error {
			if j.Attempt == 1 {
				return onceq.RetryAfter(0, errors.New("no dial tone"))
			}
			fmt.Println("telex: wire", string(j.Message.Body))
			return nil
		}),
		Store: store, Scope: "wires",
		Defaults: onceq.JobOptions{Interrupted: dedupe.Park},
	}, queue, onceq.WorkerConfig{DeadLetter: dead}, 2) {
		fmt.Println(r.Outcome, r.Err)
	}
	// Output:
	// telex: wire 1,000,000
	// retried no dial tone
	// done
}

// inMemoryInterrupted makes what the examples run on: a queue, a queue for dead letters and a
// store.
func inMemoryInterrupted() (queue, dead *membroker.Broker, store *memstore.Store) {
	return mustInterrupted(membroker.New(nil)), mustInterrupted(membroker.New(nil)), mustInterrupted(memstore.New(nil))
}

func mustInterrupted[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}

// workInterrupted runs a worker with one slot until n deliveries have ended.
func workInterrupted(c onceq.ProcessorConfig, queue broker.Receiver, w onceq.WorkerConfig, n int) []onceq.TimingRecord {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	t := &tallyInterrupted{Observer: c.Observer, want: n, reached: stop}
	c.Observer, w.Concurrency = t, 1
	p := mustInterrupted(onceq.NewProcessor(c))
	if err := mustInterrupted(p.Worker(queue, w)).Run(ctx); err != nil {
		log.Fatal(err)
	}
	return t.records[:n]
}

// tallyInterrupted counts deliveries that have ended.
type tallyInterrupted struct {
	onceq.Observer // may be nil
	want           int
	reached        func()

	mu      sync.Mutex
	records []onceq.TimingRecord
}

func (t *tallyInterrupted) JobStarted(ctx context.Context, j *onceq.Job) context.Context {
	if t.Observer == nil {
		return ctx
	}
	return t.Observer.JobStarted(ctx, j)
}

func (t *tallyInterrupted) JobEnded(ctx context.Context, r *onceq.TimingRecord) {
	if t.Observer != nil {
		t.Observer.JobEnded(ctx, r)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.records = append(t.records, *r); len(t.records) == t.want {
		t.reached()
	}
}

// lettersInterrupted takes the dead letters out of their queue.
func lettersInterrupted(dead *membroker.Broker) []*broker.Message {
	ctx := context.Background()
	ms := mustInterrupted(dead.Receive(ctx, broker.ReceiveOptions{Max: 10}))
	for _, m := range ms {
		if err := dead.Ack(ctx, []broker.Receipt{m.Receipt}); err != nil {
			log.Fatal(err)
		}
	}
	return ms
}

// sendInterrupted puts one message with the key, or one without where the key is empty.
func sendInterrupted(queue broker.Sender, key, body string) {
	m := broker.Outgoing{Body: []byte(body), Meta: &broker.Meta{Key: key}}
	if err := onceq.SendOne(context.Background(), queue, &m); err != nil {
		log.Fatal(err)
	}
}
