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
	"github.com/onceq/onceq/dedupe/memstore"
)

// A dead letter is the message as it was, with the reason in its metadata. Sent back unchanged, it
// runs exactly that failure once more. A second copy of it finds the job done.
func Example_deadLetter() {
	ctx := context.Background()
	queue, dead, store := inMemoryDeadletter()
	repaired := false
	c := onceq.ProcessorConfig{
		Handler: onceq.HandlerFunc(func(ctx context.Context, j *onceq.Job) error {
			if !repaired {
				return onceq.Permanent(errors.New("no price for article 12"))
			}
			return nil
		}),
		Store: store, Scope: "invoices",
	}
	sendDeadletter(queue, "invoice-7", "article 12")
	workDeadletter(c, queue, onceq.WorkerConfig{DeadLetter: dead}, 1)

	letter := lettersDeadletter(dead)[0]
	d := letter.Meta.Dead
	fmt.Printf("%s: %s: %s (attempts: %d, from %s)\n", letter.Body, d.Class, d.LastErr, d.Attempts, d.Source)

	repaired = true
	for range 2 {
		again := broker.Outgoing{Body: letter.Body, Attributes: letter.Attributes, Meta: letter.Meta, Group: letter.Group}
		if err := onceq.SendOne(ctx, queue, &again); err != nil {
			fmt.Println(err)
		}
		for _, r := range workDeadletter(c, queue, onceq.WorkerConfig{DeadLetter: dead}, 1) {
			fmt.Println(r.Outcome)
		}
	}
	// Output:
	// article 12: permanent: no price for article 12 (attempts: 1, from invoices)
	// done
	// already-done
}

// A job that has failed runs again only by its dead letter, not by a duplicate of its message. The
// duplicate makes sure that there is a letter.
func Example_failedDuplicate() {
	queue, dead, store := inMemoryDeadletter()
	c := onceq.ProcessorConfig{
		Handler: onceq.HandlerFunc(func(ctx context.Context, j *onceq.Job) error {
			return onceq.Permanent(errors.New("no price for article 12"))
		}),
		Store: store, Scope: "invoices",
	}
	for range 2 {
		sendDeadletter(queue, "invoice-7", "article 12")
		for _, r := range workDeadletter(c, queue, onceq.WorkerConfig{DeadLetter: dead}, 1) {
			fmt.Println(r.Outcome, r.ErrClass)
		}
	}
	ls := lettersDeadletter(dead)
	fmt.Println(len(ls), "letters of one failure:", ls[0].Meta.Dead.Fence == ls[1].Meta.Dead.Fence)
	// Output:
	// failed permanent
	// already-failed permanent
	// 2 letters of one failure: true
}

// KeepInQueue leaves what cannot be done to the queue's own redrive. The worker gives it back for
// an hour at a time, and never acks it.
func ExampleKeepInQueue() {
	queue, _, store := inMemoryDeadletter()
	sendDeadletter(queue, "invoice-7", "article 12")
	for _, r := range workDeadletter(onceq.ProcessorConfig{
		Handler: onceq.HandlerFunc(func(ctx context.Context, j *onceq.Job) error {
			return onceq.Permanent(errors.New("no price for article 12"))
		}),
		Store: store, Scope: "invoices",
	}, queue, onceq.WorkerConfig{DeadLetter: onceq.KeepInQueue}, 1) {
		fmt.Println(r.Outcome, r.ErrClass)
	}
	fmt.Println("in the queue, hidden:", mustDeadletter(queue.Depth(context.Background())).Delayed)
	// Output:
	// retried permanent
	// in the queue, hidden: 1
}

// inMemoryDeadletter makes what the examples run on: a queue, a queue for dead letters and a store.
func inMemoryDeadletter() (queue, dead *membroker.Broker, store *memstore.Store) {
	return mustDeadletter(membroker.New(nil)), mustDeadletter(membroker.New(nil)), mustDeadletter(memstore.New(nil))
}

func mustDeadletter[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}

// workDeadletter runs a worker with one slot until n deliveries have ended.
func workDeadletter(c onceq.ProcessorConfig, queue broker.Receiver, w onceq.WorkerConfig, n int) []onceq.TimingRecord {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	t := &tallyDeadletter{Observer: c.Observer, want: n, reached: stop}
	c.Observer, w.Concurrency = t, 1
	p := mustDeadletter(onceq.NewProcessor(c))
	if err := mustDeadletter(p.Worker(queue, w)).Run(ctx); err != nil {
		log.Fatal(err)
	}
	return t.records[:n]
}

// tallyDeadletter counts deliveries that have ended.
type tallyDeadletter struct {
	onceq.Observer // may be nil
	want           int
	reached        func()

	mu      sync.Mutex
	records []onceq.TimingRecord
}

func (t *tallyDeadletter) JobStarted(ctx context.Context, j *onceq.Job) context.Context {
	if t.Observer == nil {
		return ctx
	}
	return t.Observer.JobStarted(ctx, j)
}

func (t *tallyDeadletter) JobEnded(ctx context.Context, r *onceq.TimingRecord) {
	if t.Observer != nil {
		t.Observer.JobEnded(ctx, r)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.records = append(t.records, *r); len(t.records) == t.want {
		t.reached()
	}
}

// lettersDeadletter takes the dead letters out of their queue.
func lettersDeadletter(dead *membroker.Broker) []*broker.Message {
	ctx := context.Background()
	ms := mustDeadletter(dead.Receive(ctx, broker.ReceiveOptions{Max: 10}))
	for _, m := range ms {
		if err := dead.Ack(ctx, []broker.Receipt{m.Receipt}); err != nil {
			log.Fatal(err)
		}
	}
	return ms
}

// sendDeadletter puts one message with the key, or one without where the key is empty.
func sendDeadletter(queue broker.Sender, key, body string) {
	m := broker.Outgoing{Body: []byte(body), Meta: &broker.Meta{Key: key}}
	if err := onceq.SendOne(context.Background(), queue, &m); err != nil {
		log.Fatal(err)
	}
}
