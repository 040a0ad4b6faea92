package onceq_test

import (
	"context"
	"log"
	"sync"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe/memstore"
)

// inMemory makes what the examples run on: a queue, a queue for dead letters and a store.
func inMemory() (queue, dead *membroker.Broker, store *memstore.Store) {
	return must(membroker.New(nil)), must(membroker.New(nil)), must(memstore.New(nil))
}

func must[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}

// work runs a worker until n deliveries have ended, and gives the record of each. The worker has one slot, so that
// an example prints the same each time.
func work(c onceq.Config, n int) []onceq.TimingRecord {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	t := &tally{Observer: c.Observer, want: n, reached: stop}
	c.Observer, c.Concurrency = t, 1
	if err := must(onceq.New(c)).Run(ctx); err != nil {
		log.Fatal(err)
	}
	return t.records[:n]
}

// tally counts deliveries that have ended.
type tally struct {
	onceq.Observer // may be nil
	want           int
	reached        func()

	mu      sync.Mutex
	records []onceq.TimingRecord
}

func (t *tally) JobStarted(ctx context.Context, j *onceq.Job) context.Context {
	if t.Observer == nil {
		return ctx
	}
	return t.Observer.JobStarted(ctx, j)
}

func (t *tally) JobEnded(ctx context.Context, r *onceq.TimingRecord) {
	if t.Observer != nil {
		t.Observer.JobEnded(ctx, r)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.records = append(t.records, *r); len(t.records) == t.want {
		t.reached()
	}
}

// letters takes the dead letters out of their queue.
func letters(dead *membroker.Broker) []*broker.Message {
	ctx := context.Background()
	ms := must(dead.Receive(ctx, broker.ReceiveOptions{Max: 10}))
	for _, m := range ms {
		if err := dead.Ack(ctx, []broker.Receipt{m.Receipt}); err != nil {
			log.Fatal(err)
		}
	}
	return ms
}

// send puts one message with the key, or one without where the key is empty.
func send(queue broker.Sender, key, body string) {
	m := broker.Outgoing{Body: []byte(body), Meta: &broker.Meta{Key: key}}
	if err := onceq.SendOne(context.Background(), queue, &m); err != nil {
		log.Fatal(err)
	}
}
