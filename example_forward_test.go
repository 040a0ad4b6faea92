package onceq_test

import (
	"context"
	"fmt"
	"log"
	"sync"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe/memstore"
)

// A relay is a Worker whose Handler sends on. Here the outbox is a queue in memory; it does its
// work where it is a table of the business's own database.
func ExampleForward() {
	outbox, queue := mustForward(membroker.New(nil)), mustForward(membroker.New(nil))
	ctx, stop := context.WithCancel(context.Background())
	defer stop()

	// The producer, in the transaction that stores the order.
	if err := onceq.Send(ctx, outbox, []broker.Outgoing{
		onceq.Message("mail", "A-1", []byte("thank you")), onceq.Message("ship", "A-1", []byte("to Ada")),
	}); err != nil {
		log.Fatal(err)
	}

	// The relay, in any process, and in any number of them.
	relay := mustForward(onceq.NewProcessor(onceq.ProcessorConfig{
		Handler: onceq.Forward(queue), Store: onceq.NoStore, Scope: "outbox",
	}))
	relays := mustForward(relay.Worker(outbox, onceq.WorkerConfig{DeadLetter: onceq.KeepInQueue, Concurrency: 100}))

	// The worker, which knows nothing of the outbox.
	var mux onceq.Mux
	var done sync.WaitGroup
	done.Add(2)
	for _, typ := range []string{"mail", "ship"} {
		mux.On(typ, onceq.HandlerFunc(func(_ context.Context, j *onceq.Job) error {
			defer done.Done()
			return nil
		}), nil)
	}
	seen := new(forwardedKeys)
	jobs := mustForward(onceq.NewProcessor(onceq.ProcessorConfig{
		Handler: &mux, Store: mustForward(memstore.New(nil)), Scope: "orders", Observer: seen,
	}))
	worker := mustForward(jobs.Worker(queue, onceq.WorkerConfig{DeadLetter: mustForward(membroker.New(nil))}))

	var all sync.WaitGroup
	for _, w := range []*onceq.Worker{relays, worker} {
		all.Go(func() {
			if err := w.Run(ctx); err != nil {
				log.Fatal(err)
			}
		})
	}
	done.Wait()
	stop()
	all.Wait()
	fmt.Println(seen.mail, seen.ship)
	// Output:
	// orders:mail/A-1 is done orders:ship/A-1 is done
}

// forwardedKeys notes how the jobs of the example ended.
type forwardedKeys struct {
	mu         sync.Mutex
	mail, ship string
}

func (k *forwardedKeys) JobStarted(ctx context.Context, _ *onceq.Job) context.Context { return ctx }

func (k *forwardedKeys) JobEnded(_ context.Context, r *onceq.TimingRecord) {
	k.mu.Lock()
	defer k.mu.Unlock()
	text := fmt.Sprintf("%v is %v", r.Key, r.Outcome)
	if r.Type == "mail" {
		k.mail = text
	} else {
		k.ship = text
	}
}

// A function that stores rows does a batch in one call. One bad row fails alone.
func ExampleBatched() {
	queue, dead := mustForward(membroker.New(nil)), mustForward(membroker.New(nil))
	ctx, stop := context.WithCancel(context.Background())
	var ms []broker.Outgoing
	for _, row := range []string{"1", "2", "?", "4"} {
		ms = append(ms, onceq.Message("", "row-"+row, []byte(row)))
	}
	if err := onceq.Send(ctx, queue, ms); err != nil {
		log.Fatal(err)
	}
	store := func(_ context.Context, js []*onceq.Job) []error {
		defer stop()
		errs := make([]error, len(js))
		stored := 0
		for i, j := range js {
			if string(j.Message.Body) == "?" {
				errs[i] = onceq.Permanent(fmt.Errorf("%q is no number", j.Message.Body))
				continue
			}
			stored++
		}
		fmt.Println(len(js), "jobs,", stored, "rows stored in one statement")
		return errs
	}
	p := mustForward(onceq.NewProcessor(onceq.ProcessorConfig{
		Handler: onceq.Batched(onceq.BatchedOptions{Max: 4, Linger: 10 * time.Second}, store),
		Store:   mustForward(memstore.New(nil)), Scope: "rows",
	}))
	w := mustForward(p.Worker(queue, onceq.WorkerConfig{DeadLetter: dead, Concurrency: 8}))
	if err := w.Run(ctx); err != nil {
		log.Fatal(err)
	}
	d, err := dead.Depth(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(d.Visible, "dead letter")
	// Output:
	// 4 jobs, 3 rows stored in one statement
	// 1 dead letter
}

// Where one message can never be sent, and holds its group, a middleware skips it.
func ExampleForward_skip() {
	outbox, queue := mustForward(membroker.New(nil)), mustForward(membroker.New(&membroker.Options{Preset: membroker.SQSStandard}))
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	ms := []broker.Outgoing{
		{Body: make([]byte, 2<<20), Group: "order-7", Meta: &broker.Meta{ID: "too-large"}},
		{Body: []byte("paid"), Group: "order-7", Meta: &broker.Meta{ID: "next"}},
	}
	if err := onceq.Send(ctx, outbox, ms); err != nil {
		log.Fatal(err)
	}
	skip := func(next onceq.Handler) onceq.Handler {
		return onceq.HandlerFunc(func(ctx context.Context, j *onceq.Job) error {
			if j.ID() == "too-large" {
				fmt.Println("skipped", j.ID())
				return nil
			}
			defer stop()
			return next.Handle(ctx, j)
		})
	}
	p := mustForward(onceq.NewProcessor(onceq.ProcessorConfig{
		Handler: onceq.Chain(onceq.Forward(queue), skip), Store: onceq.NoStore, Scope: "outbox",
	}))
	if err := mustForward(p.Worker(outbox, onceq.WorkerConfig{DeadLetter: onceq.KeepInQueue})).Run(ctx); err != nil {
		log.Fatal(err)
	}
	got, err := queue.Receive(context.Background(), broker.ReceiveOptions{Max: 1})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("sent", got[0].Meta.ID)
	// Output:
	// skipped too-large
	// sent next
}

func mustForward[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}
