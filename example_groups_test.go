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

// Messages of one group run one after the other, in their order, however many slots there are;
// groups do not wait for each other. A message that has failed for good lets the rest of its group
// go on.
func Example_groups() {
	fifo := &membroker.Options{Preset: membroker.SQSFIFO}
	queue, dead, store := mustGroups(membroker.New(fifo)), mustGroups(membroker.New(fifo)), mustGroups(memstore.New(nil))
	var events []broker.Outgoing
	for _, e := range []string{"opened", "paid", "???", "shipped"} {
		events = append(events, broker.Outgoing{
			Body: []byte(e), Group: "order-7", DedupID: "order-7 " + e,
			Meta: &broker.Meta{Key: "order-7 " + e},
		})
	}
	if err := onceq.Send(context.Background(), queue, events); err != nil {
		fmt.Println(err)
	}
	for _, r := range workGroups(onceq.ProcessorConfig{
		Handler: onceq.HandlerFunc(func(ctx context.Context, j *onceq.Job) error {
			if string(j.Message.Body) == "???" {
				return onceq.Permanent(errors.New("unknown event"))
			}
			return nil
		}),
		Store: store, Scope: "orders",
	}, queue, onceq.WorkerConfig{DeadLetter: dead}, 4) {
		fmt.Println(r.Key.Key, r.Outcome)
	}
	// Output:
	// order-7 opened done
	// order-7 paid done
	// order-7 ??? failed
	// order-7 shipped done
}

// HoldGroup is for groups whose order is sacred: nothing overtakes a message that cannot be done.
// It stays at the head of its group, and the others behind it.
func ExampleWorkerConfig_holdGroup() {
	fifo := &membroker.Options{Preset: membroker.SQSFIFO}
	queue, dead, store := mustGroups(membroker.New(fifo)), mustGroups(membroker.New(fifo)), mustGroups(memstore.New(nil))
	if err := onceq.Send(context.Background(), queue, []broker.Outgoing{
		{Body: []byte("???"), Group: "order-7", Meta: &broker.Meta{Key: "event-1"}},
		{Body: []byte("shipped"), Group: "order-7", Meta: &broker.Meta{Key: "event-2"}},
	}); err != nil {
		fmt.Println(err)
	}
	for _, r := range workGroups(onceq.ProcessorConfig{
		Handler: onceq.HandlerFunc(func(ctx context.Context, j *onceq.Job) error {
			fmt.Printf("running %s\n", j.Message.Body)
			return onceq.Permanent(errors.New("unknown event"))
		}),
		Store: store, Scope: "orders",
	}, queue, onceq.WorkerConfig{DeadLetter: dead, HoldGroup: true}, 2) {
		fmt.Println(r.Outcome)
	}
	fmt.Println("dead letters:", len(lettersGroups(dead)))
	// Output:
	// running ???
	// retried
	// handed-back
	// dead letters: 0
}

func mustGroups[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}

// workGroups runs a worker with one slot until n deliveries have ended.
func workGroups(c onceq.ProcessorConfig, queue broker.Receiver, w onceq.WorkerConfig, n int) []onceq.TimingRecord {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	t := &tallyGroups{Observer: c.Observer, want: n, reached: stop}
	c.Observer, w.Concurrency = t, 1
	p := mustGroups(onceq.NewProcessor(c))
	if err := mustGroups(p.Worker(queue, w)).Run(ctx); err != nil {
		log.Fatal(err)
	}
	return t.records[:n]
}

// tallyGroups counts deliveries that have ended.
type tallyGroups struct {
	onceq.Observer // may be nil
	want           int
	reached        func()

	mu      sync.Mutex
	records []onceq.TimingRecord
}

func (t *tallyGroups) JobStarted(ctx context.Context, j *onceq.Job) context.Context {
	if t.Observer == nil {
		return ctx
	}
	return t.Observer.JobStarted(ctx, j)
}

func (t *tallyGroups) JobEnded(ctx context.Context, r *onceq.TimingRecord) {
	if t.Observer != nil {
		t.Observer.JobEnded(ctx, r)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.records = append(t.records, *r); len(t.records) == t.want {
		t.reached()
	}
}

// lettersGroups takes the dead letters out of their queue.
func lettersGroups(dead *membroker.Broker) []*broker.Message {
	ctx := context.Background()
	ms := mustGroups(dead.Receive(ctx, broker.ReceiveOptions{Max: 10}))
	for _, m := range ms {
		if err := dead.Ack(ctx, []broker.Receipt{m.Receipt}); err != nil {
			log.Fatal(err)
		}
	}
	return ms
}
