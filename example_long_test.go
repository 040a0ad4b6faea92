package onceq_test

import (
	"context"
	"flag"
	"fmt"
	"log"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe/memstore"
)

// A job may take much longer than the visibility timeout: the heartbeat keeps its message hidden
// and its key claimed, without any configuration. Here the ten minutes are virtual.
func Example_longJob() {
	inBubble(func() {
		queue, dead, store := inMemoryLong()
		sendLong(queue, "video-7", "")
		for _, r := range workLong(onceq.ProcessorConfig{
			Handler: onceq.HandlerFunc(func(ctx context.Context, j *onceq.Job) error {
				<-time.After(10 * time.Minute) // transcoding
				return ctx.Err()
			}),
			Store: store, Scope: "videos",
		}, queue, onceq.WorkerConfig{DeadLetter: dead}, 1) {
			fmt.Println(r.Outcome, "after", r.Process, "with a timeout of", r.Visibility)
			fmt.Println("deliveries:", r.Receives)
			fmt.Println("heartbeat:", r.Beats > 20)
		}
	})
	// Output:
	// done after 10m0s with a timeout of 30s
	// deliveries: 1
	// heartbeat: true
}

// inBubble runs f in virtual time. A test needs only synctest.Test for that; an example has no
// *testing.T. The flags -v, -count and -cpu are set aside meanwhile, because they would show in the
// example's output.
func inBubble(f func()) {
	verbose := flag.Lookup("test.v").Value
	defer func(was string) { _ = verbose.Set(was) }(verbose.String())
	_ = verbose.Set("false")
	var once sync.Once
	testing.RunTests(func(_, _ string) (bool, error) { return true, nil }, []testing.InternalTest{{
		Name: "example", F: func(t *testing.T) {
			t.Helper()
			once.Do(func() { synctest.Test(t, func(*testing.T) { f() }) })
		},
	}})
}

// inMemoryLong makes what the examples run on: a queue, a queue for dead letters and a store.
func inMemoryLong() (queue, dead *membroker.Broker, store *memstore.Store) {
	return mustLong(membroker.New(nil)), mustLong(membroker.New(nil)), mustLong(memstore.New(nil))
}

func mustLong[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}

// workLong runs a worker with one slot until n deliveries have ended.
func workLong(c onceq.ProcessorConfig, queue broker.Receiver, w onceq.WorkerConfig, n int) []onceq.TimingRecord {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	t := &tallyLong{Observer: c.Observer, want: n, reached: stop}
	c.Observer, w.Concurrency = t, 1
	p := mustLong(onceq.NewProcessor(c))
	if err := mustLong(p.Worker(queue, w)).Run(ctx); err != nil {
		log.Fatal(err)
	}
	return t.records[:n]
}

// tallyLong counts deliveries that have ended.
type tallyLong struct {
	onceq.Observer // may be nil
	want           int
	reached        func()

	mu      sync.Mutex
	records []onceq.TimingRecord
}

func (t *tallyLong) JobStarted(ctx context.Context, j *onceq.Job) context.Context {
	if t.Observer == nil {
		return ctx
	}
	return t.Observer.JobStarted(ctx, j)
}

func (t *tallyLong) JobEnded(ctx context.Context, r *onceq.TimingRecord) {
	if t.Observer != nil {
		t.Observer.JobEnded(ctx, r)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.records = append(t.records, *r); len(t.records) == t.want {
		t.reached()
	}
}

// sendLong puts one message with the key, or one without where the key is empty.
func sendLong(queue broker.Sender, key, body string) {
	m := broker.Outgoing{Body: []byte(body), Meta: &broker.Meta{Key: key}}
	if err := onceq.SendOne(context.Background(), queue, &m); err != nil {
		log.Fatal(err)
	}
}
