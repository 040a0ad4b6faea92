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
)

// An error means that the job is tried again later: after a backoff that doubles, until MaxAttempts
// are used up.
func ExampleJobOptions() {
	queue, dead, store := inMemoryErrors()
	sendErrors(queue, "mail-7", "")
	for _, r := range workErrors(onceq.ProcessorConfig{
		Handler: onceq.HandlerFunc(func(ctx context.Context, j *onceq.Job) error {
			return errors.New("the mail server is down")
		}),
		Store: store, Scope: "mails",
		Defaults: onceq.JobOptions{
			MaxAttempts: 3,
			Backoff:     func(attempt int, err error) time.Duration { return time.Duration(attempt) * time.Millisecond },
		},
	}, queue, onceq.WorkerConfig{DeadLetter: dead}, 3) {
		fmt.Printf("attempt %d: %s: %s\n", r.Attempt, r.Outcome, r.Err)
	}
	fmt.Println("dead letters:", len(lettersErrors(dead)))
	// Output:
	// attempt 1: retried: the mail server is down
	// attempt 2: retried: the mail server is down
	// attempt 3: failed: the mail server is down
	// dead letters: 1
}

// Permanent says that repeating cannot help: the message becomes a dead letter at once.
func ExamplePermanent() {
	queue, dead, store := inMemoryErrors()
	sendErrors(queue, "mail-7", "nobody@example.com")
	for _, r := range workErrors(onceq.ProcessorConfig{
		Handler: onceq.HandlerFunc(func(ctx context.Context, j *onceq.Job) error {
			return onceq.Permanent(fmt.Errorf("%s: no such mailbox", j.Message.Body))
		}),
		Store: store, Scope: "mails",
	}, queue, onceq.WorkerConfig{DeadLetter: dead}, 1) {
		fmt.Println(r.Outcome, r.ErrClass)
	}
	for _, m := range lettersErrors(dead) {
		fmt.Println(m.Meta.Dead.LastErr)
	}
	// Output:
	// failed permanent
	// nobody@example.com: no such mailbox
}

// RetryAfter says when to try again, as an HTTP API does with its Retry-After header.
func ExampleRetryAfter() {
	queue, dead, store := inMemoryErrors()
	sendErrors(queue, "order-7", "")
	for _, r := range workErrors(onceq.ProcessorConfig{
		Handler: onceq.HandlerFunc(func(ctx context.Context, j *onceq.Job) error {
			if j.Attempt == 1 {
				return onceq.RetryAfter(5*time.Millisecond, errors.New("429 Too Many Requests"))
			}
			return nil
		}),
		Store: store, Scope: "payments",
	}, queue, onceq.WorkerConfig{DeadLetter: dead}, 2) {
		fmt.Println("attempt", r.Attempt, r.Outcome, r.Err)
	}
	// Output:
	// attempt 1 retried 429 Too Many Requests
	// attempt 2 done
}

// declined is an error of the program's own. Its class goes into records, logs and dead letters, so
// that these can be counted and searched by class.
type declined struct{ reason string }

func (e declined) Error() string      { return "card declined: " + e.reason }
func (e declined) ErrorClass() string { return "declined" }

// An error with a method ErrorClass brings a class of its own, also when it is wrapped.
func ExampleClassOf() {
	fmt.Println(onceq.ClassOf(errors.New("timeout")))
	fmt.Println(onceq.ClassOf(onceq.Permanent(errors.New("no such account"))))
	fmt.Println(onceq.ClassOf(onceq.Permanent(fmt.Errorf("order 7: %w", declined{"no funds"}))))
	// Output:
	// error
	// permanent
	// declined
}

// A mistake is answered before anything runs: the error names the field that cannot be, and the
// limit.
func ExampleConfigError() {
	_, err := onceq.NewProcessor(onceq.ProcessorConfig{
		Handler: onceq.HandlerFunc(func(context.Context, *onceq.Job) error { return nil }),
		Store:   onceq.NoStore, Scope: "payments",
		Lease: 24 * time.Hour,
	})
	if bad, ok := errors.AsType[*onceq.ConfigError](err); ok {
		fmt.Println(bad.Field)
	}
	fmt.Println(err)
	// Output:
	// ProcessorConfig.Lease
	// onceq: ProcessorConfig.Lease: 24h0m0s is not within 100ms and 12h0m0s
}

// inMemoryErrors makes what the examples run on: a queue, a queue for dead letters and a store.
func inMemoryErrors() (queue, dead *membroker.Broker, store *memstore.Store) {
	return mustErrors(membroker.New(nil)), mustErrors(membroker.New(nil)), mustErrors(memstore.New(nil))
}

func mustErrors[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}

// workErrors runs a worker with one slot until n deliveries have ended.
func workErrors(c onceq.ProcessorConfig, queue broker.Receiver, w onceq.WorkerConfig, n int) []onceq.TimingRecord {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	t := &tallyErrors{Observer: c.Observer, want: n, reached: stop}
	c.Observer, w.Concurrency = t, 1
	p := mustErrors(onceq.NewProcessor(c))
	if err := mustErrors(p.Worker(queue, w)).Run(ctx); err != nil {
		log.Fatal(err)
	}
	return t.records[:n]
}

// tallyErrors counts deliveries that have ended.
type tallyErrors struct {
	onceq.Observer // may be nil
	want           int
	reached        func()

	mu      sync.Mutex
	records []onceq.TimingRecord
}

func (t *tallyErrors) JobStarted(ctx context.Context, j *onceq.Job) context.Context {
	if t.Observer == nil {
		return ctx
	}
	return t.Observer.JobStarted(ctx, j)
}

func (t *tallyErrors) JobEnded(ctx context.Context, r *onceq.TimingRecord) {
	if t.Observer != nil {
		t.Observer.JobEnded(ctx, r)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.records = append(t.records, *r); len(t.records) == t.want {
		t.reached()
	}
}

// lettersErrors takes the dead letters out of their queue.
func lettersErrors(dead *membroker.Broker) []*broker.Message {
	ctx := context.Background()
	ms := mustErrors(dead.Receive(ctx, broker.ReceiveOptions{Max: 10}))
	for _, m := range ms {
		if err := dead.Ack(ctx, []broker.Receipt{m.Receipt}); err != nil {
			log.Fatal(err)
		}
	}
	return ms
}

// sendErrors puts one message with the key, or one without where the key is empty.
func sendErrors(queue broker.Sender, key, body string) {
	m := broker.Outgoing{Body: []byte(body), Meta: &broker.Meta{Key: key}}
	if err := onceq.SendOne(context.Background(), queue, &m); err != nil {
		log.Fatal(err)
	}
}
