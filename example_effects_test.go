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
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/memstore"
)

// payments stands for a payment API that takes an idempotency key, as most do. For a key that it
// has seen, it gives the first answer again.
type payments struct{ seen map[string]string }

func (p *payments) charge(key string, cents int) string {
	if id, ok := p.seen[key]; ok {
		return id
	}
	id := fmt.Sprintf("charge-%d", len(p.seen)+1)
	fmt.Printf("%s: %d cents\n", id, cents)
	p.seen[key] = id
	return id
}

// EffectKey is equal over all attempts of a job. So the API charges once, although the worker does
// not know, after a crash or an error, whether it had charged.
func ExampleJob_EffectKey() {
	api := &payments{seen: make(map[string]string)}
	queue, dead, store := inMemoryEffects()
	sendEffects(queue, "order-7", "")
	for _, r := range workEffects(onceq.ProcessorConfig{
		Handler: onceq.HandlerFunc(func(ctx context.Context, j *onceq.Job) error {
			id := api.charge(j.EffectKey("charge"), 995)
			if j.Attempt == 1 {
				return onceq.RetryAfter(0, errors.New("no answer"))
			}
			fmt.Println("attempt", j.Attempt, "has", id)
			return nil
		}),
		Store: store, Scope: "payments",
	}, queue, onceq.WorkerConfig{DeadLetter: dead}, 2) {
		fmt.Println(r.Outcome)
	}
	// Output:
	// charge-1: 995 cents
	// attempt 2 has charge-1
	// retried
	// done
}

// The key of an effect can be made without the job, for example in a support tool that looks up a
// charge. It depends on the step, so that a job can have several effects. Its value never changes.
func ExampleEffectKey() {
	k := dedupe.Key{Scope: "payments", Key: "order-7"}
	fmt.Println(onceq.EffectKey(k, "charge"))
	fmt.Println(onceq.EffectKey(k, "mail"))
	// Output:
	// bfcb27719bfae15e86d71f9bbd3be95a
	// dd06b802a42137e15a1b17a3504fc664
}

// A fence rises with every claim of a key. Where the effect's own database can compare fences, a
// worker that was overtaken changes nothing, although it does not know that it was.
func ExampleJob_Fence() {
	var row struct {
		fence uint64
		state string
	}
	// This does what UPDATE orders SET state = $1, fence = $2 WHERE id = $3 AND fence <= $2 does.
	update := func(state string, fence uint64) {
		if fence >= row.fence {
			row.state, row.fence = state, fence
		}
	}
	queue, dead, store := inMemoryEffects()
	sendEffects(queue, "order-7", "")
	var first uint64
	workEffects(onceq.ProcessorConfig{
		Handler: onceq.HandlerFunc(func(ctx context.Context, j *onceq.Job) error {
			if j.Attempt == 1 {
				first = j.Fence()
				return onceq.RetryAfter(0, errors.New("interrupted"))
			}
			update("shipped", j.Fence())
			update("packed", first) // a late write of the first attempt
			return nil
		}),
		Store: store, Scope: "orders",
	}, queue, onceq.WorkerConfig{DeadLetter: dead}, 2)
	fmt.Println(row.state)
	// Output:
	// shipped
}

// A timeout ends the handler's context. context.Cause answers which end it was.
func ExampleErrTimeout() {
	queue, dead, store := inMemoryEffects()
	sendEffects(queue, "report-7", "")
	for _, r := range workEffects(onceq.ProcessorConfig{
		Handler: onceq.HandlerFunc(func(ctx context.Context, j *onceq.Job) error {
			<-ctx.Done() // a query that takes too long
			switch cause := context.Cause(ctx); {
			case errors.Is(cause, onceq.ErrTimeout):
				fmt.Println("too slow")
			case errors.Is(cause, onceq.ErrLeaseLost):
				fmt.Println("somebody else may work on this job now")
			case errors.Is(cause, onceq.ErrDraining):
				fmt.Println("the worker stops")
			}
			return ctx.Err()
		}),
		Store: store, Scope: "reports",
		Defaults: onceq.JobOptions{Timeout: 10 * time.Millisecond, MaxAttempts: 1},
	}, queue, onceq.WorkerConfig{DeadLetter: dead}, 1) {
		fmt.Println(r.Outcome, r.ErrClass)
		fmt.Println(r.Err)
	}
	// Output:
	// too slow
	// failed timeout
	// context canceled (cut off: onceq: job timeout)
}

// inMemoryEffects makes what the examples run on: a queue, a queue for dead letters and a store.
func inMemoryEffects() (queue, dead *membroker.Broker, store *memstore.Store) {
	return mustEffects(membroker.New(nil)), mustEffects(membroker.New(nil)), mustEffects(memstore.New(nil))
}

func mustEffects[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}

// workEffects runs a worker with one slot until n deliveries have ended.
func workEffects(c onceq.ProcessorConfig, queue broker.Receiver, w onceq.WorkerConfig, n int) []onceq.TimingRecord {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	t := &tallyEffects{Observer: c.Observer, want: n, reached: stop}
	c.Observer, w.Concurrency = t, 1
	p := mustEffects(onceq.NewProcessor(c))
	if err := mustEffects(p.Worker(queue, w)).Run(ctx); err != nil {
		log.Fatal(err)
	}
	return t.records[:n]
}

// tallyEffects counts deliveries that have ended.
type tallyEffects struct {
	onceq.Observer // may be nil
	want           int
	reached        func()

	mu      sync.Mutex
	records []onceq.TimingRecord
}

func (t *tallyEffects) JobStarted(ctx context.Context, j *onceq.Job) context.Context {
	if t.Observer == nil {
		return ctx
	}
	return t.Observer.JobStarted(ctx, j)
}

func (t *tallyEffects) JobEnded(ctx context.Context, r *onceq.TimingRecord) {
	if t.Observer != nil {
		t.Observer.JobEnded(ctx, r)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.records = append(t.records, *r); len(t.records) == t.want {
		t.reached()
	}
}

// sendEffects puts one message with the key, or one without where the key is empty.
func sendEffects(queue broker.Sender, key, body string) {
	m := broker.Outgoing{Body: []byte(body), Meta: &broker.Meta{Key: key}}
	if err := onceq.SendOne(context.Background(), queue, &m); err != nil {
		log.Fatal(err)
	}
}
