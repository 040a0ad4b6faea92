package onceq_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"os"
	"sync"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe/memstore"
)

// meter is an Observer: the seam for metrics and traces. JobStarted may put a span into the
// context; JobEnded gets that context, and is told of every delivery, also of those whose handler
// never started.
type meter struct{ outcomes map[onceq.Outcome]int }

func (m *meter) JobStarted(ctx context.Context, j *onceq.Job) context.Context {
	return context.WithValue(ctx, spanKey{}, "span of "+j.Key().Key)
}

func (m *meter) JobEnded(ctx context.Context, r *onceq.TimingRecord) {
	m.outcomes[r.Outcome]++ // a real one locks: it is called from many goroutines
	if span := ctx.Value(spanKey{}); span != nil {
		fmt.Println(span, "ends")
	}
}

type spanKey struct{}

// An Observer counts what becomes of the deliveries.
func ExampleObserver() {
	m := &meter{outcomes: make(map[onceq.Outcome]int)}
	queue, dead, store := inMemoryObserve()
	c := onceq.ProcessorConfig{
		Handler: onceq.HandlerFunc(func(ctx context.Context, j *onceq.Job) error {
			fmt.Println(ctx.Value(spanKey{}))
			return nil
		}),
		Observer: m,
		Store:    store, Scope: "mails",
	}
	for range 3 {
		sendObserve(queue, "mail-7", "")
		workObserve(c, queue, onceq.WorkerConfig{DeadLetter: dead}, 1)
	}
	fmt.Println(m.outcomes)
	// Output:
	// span of mail-7
	// span of mail-7 ends
	// map[already-done:2 done:1]
}

// jobLines leaves out what a worker logs of itself: that it starts, and drains.
type jobLines struct{ slog.Handler }

func (h jobLines) Handle(ctx context.Context, r slog.Record) error {
	if r.Message != "job" {
		return nil
	}
	return h.Handler.Handle(ctx, r)
}

// A Logger gets one record for each delivery: a warning where there was a failure. Among its
// attributes are the waiting and working times, and whether the heartbeat was on.
func ExampleTimingRecord() {
	logger := slog.New(jobLines{slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			switch a.Key {
			case "time", "job", "fence", "queue_wait", "process": // they differ from run to run
				return slog.Attr{}
			}
			return a
		},
	})})
	queue, dead, store := inMemoryObserve()
	sendObserve(queue, "mail-7", "")
	workObserve(onceq.ProcessorConfig{
		Handler: onceq.HandlerFunc(func(ctx context.Context, j *onceq.Job) error {
			if j.Attempt == 1 {
				return onceq.RetryAfter(0, errors.New("greylisted"))
			}
			return nil
		}),
		Logger: logger,
		Store:  store, Scope: "mails",
	}, queue, onceq.WorkerConfig{DeadLetter: dead}, 2)
	// Output:
	// level=WARN msg=job outcome=retried scope=mails key=mail-7 attempt=1 visibility=30s heartbeat=true beats=0 receives=1 class=error error=greylisted
	// level=INFO msg=job outcome=done scope=mails key=mail-7 attempt=2 visibility=30s heartbeat=true beats=0 receives=2
}

// inMemoryObserve makes what the examples run on: a queue, a queue for dead letters and a store.
func inMemoryObserve() (queue, dead *membroker.Broker, store *memstore.Store) {
	return mustObserve(membroker.New(nil)), mustObserve(membroker.New(nil)), mustObserve(memstore.New(nil))
}

func mustObserve[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}

// workObserve runs a worker with one slot until n deliveries have ended.
func workObserve(c onceq.ProcessorConfig, queue broker.Receiver, w onceq.WorkerConfig, n int) []onceq.TimingRecord {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	t := &tallyObserve{Observer: c.Observer, want: n, reached: stop}
	c.Observer, w.Concurrency = t, 1
	p := mustObserve(onceq.NewProcessor(c))
	if err := mustObserve(p.Worker(queue, w)).Run(ctx); err != nil {
		log.Fatal(err)
	}
	return t.records[:n]
}

// tallyObserve counts deliveries that have ended.
type tallyObserve struct {
	onceq.Observer // may be nil
	want           int
	reached        func()

	mu      sync.Mutex
	records []onceq.TimingRecord
}

func (t *tallyObserve) JobStarted(ctx context.Context, j *onceq.Job) context.Context {
	if t.Observer == nil {
		return ctx
	}
	return t.Observer.JobStarted(ctx, j)
}

func (t *tallyObserve) JobEnded(ctx context.Context, r *onceq.TimingRecord) {
	if t.Observer != nil {
		t.Observer.JobEnded(ctx, r)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.records = append(t.records, *r); len(t.records) == t.want {
		t.reached()
	}
}

// sendObserve puts one message with the key, or one without where the key is empty.
func sendObserve(queue broker.Sender, key, body string) {
	m := broker.Outgoing{Body: []byte(body), Meta: &broker.Meta{Key: key}}
	if err := onceq.SendOne(context.Background(), queue, &m); err != nil {
		log.Fatal(err)
	}
}
