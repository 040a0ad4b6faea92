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

// A producer that got no answer sends its job again. The second message is acked without a run.
func ExampleWorker() {
	queue, dead, store := inMemoryWorker()
	c := onceq.ProcessorConfig{
		Handler: onceq.HandlerFunc(func(ctx context.Context, j *onceq.Job) error {
			fmt.Printf("mail about %s\n", j.Message.Body)
			return nil
		}),
		Store: store, Scope: "mails",
	}
	for range 2 {
		sendWorker(queue, "mail-7", "order 7")
		for _, r := range workWorker(c, queue, onceq.WorkerConfig{DeadLetter: dead}, 1) {
			fmt.Println(r.Key.Key, r.Outcome)
		}
	}
	// Output:
	// mail about order 7
	// mail-7 done
	// mail-7 already-done
}

// When its context ends, Run receives nothing more, and lets the running handlers end. It settles
// and acks what they have done before it returns.
func ExampleWorker_Run() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	queue, dead, store := inMemoryWorker()
	p := mustWorker(onceq.NewProcessor(onceq.ProcessorConfig{
		Handler: onceq.HandlerFunc(func(ctx context.Context, j *onceq.Job) error {
			stop() // such as SIGTERM, in the middle of a job
			fmt.Println("goes on:", ctx.Err() == nil)
			return nil
		}),
		Store: store, Scope: "mails",
	}))
	worker := mustWorker(p.Worker(queue, onceq.WorkerConfig{DeadLetter: dead, DrainTimeout: time.Minute}))
	sendWorker(queue, "mail-7", "order 7")
	fmt.Println("Run:", worker.Run(ctx))
	depth := mustWorker(queue.Depth(context.Background()))
	fmt.Println("left in the queue:", depth.Visible+depth.InFlight)
	// Output:
	// goes on: true
	// Run: <nil>
	// left in the queue: 0
}

// A handler that runs on after DrainTimeout is told by its context. The worker hands back what the
// handler has not done, and counts no attempt.
func ExampleWorkerConfig_drainTimeout() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	queue, dead, store := inMemoryWorker()
	p := mustWorker(onceq.NewProcessor(onceq.ProcessorConfig{
		Handler: onceq.HandlerFunc(func(ctx context.Context, j *onceq.Job) error {
			stop()
			<-ctx.Done()
			fmt.Println(context.Cause(ctx))
			return context.Cause(ctx)
		}),
		Store: store, Scope: "exports",
	}))
	worker := mustWorker(p.Worker(queue, onceq.WorkerConfig{
		DeadLetter:   dead,
		DrainTimeout: -1, // no time at all
	}))
	sendWorker(queue, "export-1", "")
	fmt.Println("Run:", worker.Run(ctx))
	depth := mustWorker(queue.Depth(context.Background()))
	fmt.Println("for the next worker:", depth.Visible)
	// Output:
	// onceq: worker is draining
	// Run: <nil>
	// for the next worker: 1
}

// A handler that does not listen to its context is abandoned at the hard end. Run names its job,
// which will be delivered again when its leases have run out.
func ExampleDrainError() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	queue, dead, store := inMemoryWorker()
	forever := make(chan struct{})
	defer close(forever)
	p := mustWorker(onceq.NewProcessor(onceq.ProcessorConfig{
		Handler: onceq.HandlerFunc(func(ctx context.Context, j *onceq.Job) error {
			stop()
			<-forever
			return nil
		}),
		Store: store, Scope: "exports",
		SettleTimeout: 10 * time.Millisecond,
	}))
	worker := mustWorker(p.Worker(queue, onceq.WorkerConfig{DeadLetter: dead, DrainTimeout: -1}))
	m := broker.Outgoing{Meta: &broker.Meta{ID: "export-1"}}
	_ = onceq.SendOne(ctx, queue, &m)

	err := worker.Run(ctx)
	if late, ok := errors.AsType[*onceq.DrainError](err); ok {
		fmt.Println("unfinished:", late.Jobs)
	}
	// Output:
	// unfinished: [export-1]
}

// During a pause running handlers go on, and nothing new starts. What was received goes back to
// the queue.
func ExampleWorker_Pause() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	queue, dead, store := inMemoryWorker()
	p := mustWorker(onceq.NewProcessor(onceq.ProcessorConfig{
		Handler: onceq.HandlerFunc(func(ctx context.Context, j *onceq.Job) error {
			fmt.Println("done:", j.Key().Key)
			stop()
			return nil
		}),
		Store: store, Scope: "mails",
	}))
	worker := mustWorker(p.Worker(queue, onceq.WorkerConfig{DeadLetter: dead}))
	worker.Pause() // such as while the mail server is down; Run may be under way
	ended := make(chan error)
	go func() { ended <- worker.Run(ctx) }()
	sendWorker(queue, "mail-7", "order 7")
	fmt.Println("paused, and in the queue:", mustWorker(queue.Depth(ctx)).Visible)

	worker.Resume()
	fmt.Println("Run:", <-ended)
	// Output:
	// paused, and in the queue: 1
	// done: mail-7
	// Run: <nil>
}

// inMemoryWorker makes what the examples run on: a queue, a queue for dead letters and a store.
func inMemoryWorker() (queue, dead *membroker.Broker, store *memstore.Store) {
	return mustWorker(membroker.New(nil)), mustWorker(membroker.New(nil)), mustWorker(memstore.New(nil))
}

func mustWorker[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}

// workWorker runs a worker with one slot until n deliveries have ended.
func workWorker(c onceq.ProcessorConfig, queue broker.Receiver, w onceq.WorkerConfig, n int) []onceq.TimingRecord {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	t := &tallyWorker{Observer: c.Observer, want: n, reached: stop}
	c.Observer, w.Concurrency = t, 1
	p := mustWorker(onceq.NewProcessor(c))
	if err := mustWorker(p.Worker(queue, w)).Run(ctx); err != nil {
		log.Fatal(err)
	}
	return t.records[:n]
}

// tallyWorker counts deliveries that have ended.
type tallyWorker struct {
	onceq.Observer // may be nil
	want           int
	reached        func()

	mu      sync.Mutex
	records []onceq.TimingRecord
}

func (t *tallyWorker) JobStarted(ctx context.Context, j *onceq.Job) context.Context {
	if t.Observer == nil {
		return ctx
	}
	return t.Observer.JobStarted(ctx, j)
}

func (t *tallyWorker) JobEnded(ctx context.Context, r *onceq.TimingRecord) {
	if t.Observer != nil {
		t.Observer.JobEnded(ctx, r)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.records = append(t.records, *r); len(t.records) == t.want {
		t.reached()
	}
}

// sendWorker puts one message with the key, or one without where the key is empty.
func sendWorker(queue broker.Sender, key, body string) {
	m := broker.Outgoing{Body: []byte(body), Meta: &broker.Meta{Key: key}}
	if err := onceq.SendOne(context.Background(), queue, &m); err != nil {
		log.Fatal(err)
	}
}
