package onceq_test

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"log"
	"sync"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/memstore"
)

// A producer that does not use onceq sends no key. ProcessorConfig.Key finds one, in the body or in
// an attribute. Never use the message's id, because the producer's retry has another.
func ExampleProcessorConfig_key() {
	ctx := context.Background()
	queue, dead, store := inMemoryKeys()
	c := onceq.ProcessorConfig{
		Handler: onceq.HandlerFunc(func(ctx context.Context, j *onceq.Job) error {
			fmt.Println("running", j.Key())
			return nil
		}),
		Key: func(m *broker.Message) (dedupe.Key, error) {
			var upload struct{ Object, Version string }
			if err := json.Unmarshal(m.Body, &upload); err != nil {
				return dedupe.Key{}, err
			}
			return dedupe.Key{Key: upload.Object + "@" + upload.Version}, nil
		},
		Store: store, Scope: "uploads",
	}
	for _, body := range []string{
		`{"Object":"a.png","Version":"3"}`,
		`{"Object":"a.png","Version":"3"}`, // the bucket tells it twice
		`{"Object":"a.png","Version":"4"}`,
		`hello`,
	} {
		if err := queue.SendRaw(ctx, []byte(body), nil); err != nil {
			fmt.Println(err)
		}
		for _, r := range workKeys(c, queue, onceq.WorkerConfig{DeadLetter: dead}, 1) {
			fmt.Println(r.Outcome)
		}
	}
	// Output:
	// running uploads/a.png@3
	// done
	// already-done
	// running uploads/a.png@4
	// done
	// no-key
}

// A fingerprint finds two jobs that share a key by mistake. The second one becomes a dead letter.
// Without a fingerprint it would count as a duplicate, and nobody would see that it is lost.
func ExampleProcessorConfig_fingerprint() {
	queue, dead, store := inMemoryKeys()
	c := onceq.ProcessorConfig{
		Handler: onceq.HandlerFunc(func(context.Context, *onceq.Job) error { return nil }),
		Fingerprint: func(m *broker.Message) []byte {
			sum := sha256.Sum256(m.Body)
			return sum[:]
		},
		Store: store, Scope: "payments",
	}
	for _, body := range []string{"995 cents", "995 cents", "450 cents"} {
		sendKeys(queue, "order-7", body)
		for _, r := range workKeys(c, queue, onceq.WorkerConfig{DeadLetter: dead}, 1) {
			fmt.Println(body, r.Outcome)
		}
	}
	// Output:
	// 995 cents done
	// 995 cents already-done
	// 450 cents mismatch
}

// Scopes keep kinds of work apart in one store: the same key in two scopes is two jobs.
func ExampleJob_Key() {
	queue, dead, store := inMemoryKeys()
	for _, scope := range []string{"payments", "mails"} {
		sendKeys(queue, "order-7", "")
		workKeys(onceq.ProcessorConfig{
			Handler: onceq.HandlerFunc(func(ctx context.Context, j *onceq.Job) error {
				fmt.Println("running", j.Key())
				return nil
			}),
			Store: store, Scope: scope,
		}, queue, onceq.WorkerConfig{DeadLetter: dead}, 1)
	}
	// Output:
	// running payments/order-7
	// running mails/order-7
}

// inMemoryKeys makes what the examples run on: a queue, a queue for dead letters and a store.
func inMemoryKeys() (queue, dead *membroker.Broker, store *memstore.Store) {
	return mustKeys(membroker.New(nil)), mustKeys(membroker.New(nil)), mustKeys(memstore.New(nil))
}

func mustKeys[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}

// workKeys runs a worker with one slot until n deliveries have ended.
func workKeys(c onceq.ProcessorConfig, queue broker.Receiver, w onceq.WorkerConfig, n int) []onceq.TimingRecord {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	t := &tallyKeys{Observer: c.Observer, want: n, reached: stop}
	c.Observer, w.Concurrency = t, 1
	p := mustKeys(onceq.NewProcessor(c))
	if err := mustKeys(p.Worker(queue, w)).Run(ctx); err != nil {
		log.Fatal(err)
	}
	return t.records[:n]
}

// tallyKeys counts deliveries that have ended.
type tallyKeys struct {
	onceq.Observer // may be nil
	want           int
	reached        func()

	mu      sync.Mutex
	records []onceq.TimingRecord
}

func (t *tallyKeys) JobStarted(ctx context.Context, j *onceq.Job) context.Context {
	if t.Observer == nil {
		return ctx
	}
	return t.Observer.JobStarted(ctx, j)
}

func (t *tallyKeys) JobEnded(ctx context.Context, r *onceq.TimingRecord) {
	if t.Observer != nil {
		t.Observer.JobEnded(ctx, r)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.records = append(t.records, *r); len(t.records) == t.want {
		t.reached()
	}
}

// sendKeys puts one message with the key, or one without where the key is empty.
func sendKeys(queue broker.Sender, key, body string) {
	m := broker.Outgoing{Body: []byte(body), Meta: &broker.Meta{Key: key}}
	if err := onceq.SendOne(context.Background(), queue, &m); err != nil {
		log.Fatal(err)
	}
}
