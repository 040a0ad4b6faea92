package onceq_test

import (
	"bytes"
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
	"github.com/onceq/onceq/dlq"
)

// With LetterKeys a failed job runs again only by a letter that one of the keys has signed. No
// message that somebody else has written runs it: not another body with the job's key, and not one
// that names its failure.
func ExampleProcessorConfig_letterKeys() {
	queue, dead, store := inMemoryTrust()
	keys := dlq.Keys{bytes.Repeat([]byte{7}, 32)} // of the program's secrets: 32 random bytes or more
	down := true
	c := onceq.ProcessorConfig{
		Handler: onceq.HandlerFunc(func(ctx context.Context, j *onceq.Job) error {
			if down {
				return onceq.Permanent(errors.New("the bank is closed"))
			}
			fmt.Printf("pays %s\n", j.Message.Body)
			return nil
		}),
		Store: store, Scope: "payments", LetterKeys: keys,
	}
	sendTrust(queue, "order-7", "9 EUR to Ann")
	fence := workTrust(c, queue, onceq.WorkerConfig{DeadLetter: dead}, 1)[0].Fence
	down = false

	_ = onceq.SendOne(context.Background(), queue, &broker.Outgoing{
		Body: []byte("900 EUR to Eve"), Meta: &broker.Meta{Key: "order-7", Dead: &broker.Letter{Fence: fence}},
	})
	fmt.Println(workTrust(c, queue, onceq.WorkerConfig{DeadLetter: dead}, 1)[0].ErrClass)

	letters := mustTrust(dlq.New(dead, &dlq.Options{Wait: time.Millisecond, LetterKeys: keys}))
	fmt.Println(mustTrust(letters.Replay(context.Background(), dlq.ReplayOptions{
		Filter: dlq.Filter{Class: onceq.ClassPermanent}, To: queue,
	})))
	workTrust(c, queue, onceq.WorkerConfig{DeadLetter: dead}, 1)
	// Output:
	// duplicate
	// 2 seen, 1 replayed, 1 not chosen
	// pays 9 EUR to Ann
}

// A job's Meta lowers what the worker allows. It raises that only up to the ceilings, because
// whoever may send messages writes the Meta.
func ExampleJobOptions_ceilings() {
	queue, dead, store := inMemoryTrust()
	c := onceq.ProcessorConfig{
		Handler: onceq.HandlerFunc(func(ctx context.Context, j *onceq.Job) error {
			at, _ := ctx.Deadline()
			fmt.Printf("attempt %d, has %v\n", j.Attempt, time.Until(at).Round(time.Minute))
			return errors.New("not yet")
		}),
		Store: store, Scope: "reports",
		Defaults: onceq.JobOptions{
			MaxAttempts: 2, MostAttempts: 3,
			Timeout: time.Minute, MostTimeout: time.Hour,
			MostNotBefore: 24 * time.Hour,
			Backoff:       func(int, error) time.Duration { return 0 },
		},
	}
	for _, m := range []broker.Meta{
		{Key: "r-1", MaxAttempts: -1, Timeout: 1000 * time.Hour},
		{Key: "r-2", NotBefore: time.Now().Add(30 * 24 * time.Hour)},
	} {
		_ = onceq.SendOne(context.Background(), queue, &broker.Outgoing{Meta: &m})
	}
	for _, r := range workTrust(c, queue, onceq.WorkerConfig{DeadLetter: dead}, 4) {
		if r.ErrClass == onceq.ClassTooEarly {
			fmt.Println(r.Key.Key, r.Outcome)
		}
	}
	// Output:
	// attempt 1, has 1h0m0s
	// attempt 2, has 1h0m0s
	// attempt 3, has 1h0m0s
	// r-2 too-early
}

// What a message has brought is printed through Printable: an operator's terminal does what is in
// it otherwise.
func ExampleTimingRecord_printable() {
	r := onceq.TimingRecord{JobID: "order-7\x1b[2J\rorder-8", Outcome: "done"}
	fmt.Println(dlq.Printable(r.JobID), r.Outcome)
	// Output: order-7\x1b[2J\x0dorder-8 done
}

// inMemoryTrust makes what the examples run on: a queue, a queue for dead letters and a store.
func inMemoryTrust() (queue, dead *membroker.Broker, store *memstore.Store) {
	return mustTrust(membroker.New(nil)), mustTrust(membroker.New(nil)), mustTrust(memstore.New(nil))
}

func mustTrust[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}

// workTrust runs a worker with one slot until n deliveries have ended.
func workTrust(c onceq.ProcessorConfig, queue broker.Receiver, w onceq.WorkerConfig, n int) []onceq.TimingRecord {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	t := &tallyTrust{Observer: c.Observer, want: n, reached: stop}
	c.Observer, w.Concurrency = t, 1
	p := mustTrust(onceq.NewProcessor(c))
	if err := mustTrust(p.Worker(queue, w)).Run(ctx); err != nil {
		log.Fatal(err)
	}
	return t.records[:n]
}

// tallyTrust counts deliveries that have ended.
type tallyTrust struct {
	onceq.Observer // may be nil
	want           int
	reached        func()

	mu      sync.Mutex
	records []onceq.TimingRecord
}

func (t *tallyTrust) JobStarted(ctx context.Context, j *onceq.Job) context.Context {
	if t.Observer == nil {
		return ctx
	}
	return t.Observer.JobStarted(ctx, j)
}

func (t *tallyTrust) JobEnded(ctx context.Context, r *onceq.TimingRecord) {
	if t.Observer != nil {
		t.Observer.JobEnded(ctx, r)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.records = append(t.records, *r); len(t.records) == t.want {
		t.reached()
	}
}

// sendTrust puts one message with the key, or one without where the key is empty.
func sendTrust(queue broker.Sender, key, body string) {
	m := broker.Outgoing{Body: []byte(body), Meta: &broker.Meta{Key: key}}
	if err := onceq.SendOne(context.Background(), queue, &m); err != nil {
		log.Fatal(err)
	}
}
