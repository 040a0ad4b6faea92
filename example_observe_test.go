package onceq_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe/memstore"
	"github.com/onceq/onceq/dlq"
)

// meter is an Observer: the seam for metrics and traces. JobStarted may put a span into the
// context; JobEnded gets that context, and is told of every delivery, also of those whose handler
// never started.
type meter struct{ outcomes map[onceq.Outcome]int }

func (m *meter) JobStarted(ctx context.Context, j *onceq.Job) context.Context {
	return context.WithValue(ctx, spanKey{}, "span of "+j.Key().Key)
}

func (m *meter) JobEnded(ctx context.Context, r *onceq.JobReport) {
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
func ExampleJobReport() {
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
func workObserve(c onceq.ProcessorConfig, queue broker.Receiver, w onceq.WorkerConfig, n int) []onceq.JobReport {
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
	records []onceq.JobReport
}

func (t *tallyObserve) JobStarted(ctx context.Context, j *onceq.Job) context.Context {
	if t.Observer == nil {
		return ctx
	}
	return t.Observer.JobStarted(ctx, j)
}

func (t *tallyObserve) JobEnded(ctx context.Context, r *onceq.JobReport) {
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
			MaxAttempts: 2, Timeout: time.Minute,
			Ceilings: onceq.Ceilings{Attempts: 3, Timeout: time.Hour, NotBefore: 24 * time.Hour},
			Backoff:  func(int, error) time.Duration { return 0 },
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
func ExampleJobReport_printable() {
	r := onceq.JobReport{JobID: "order-7\x1b[2J\rorder-8", Outcome: "done"}
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
func workTrust(c onceq.ProcessorConfig, queue broker.Receiver, w onceq.WorkerConfig, n int) []onceq.JobReport {
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
	records []onceq.JobReport
}

func (t *tallyTrust) JobStarted(ctx context.Context, j *onceq.Job) context.Context {
	if t.Observer == nil {
		return ctx
	}
	return t.Observer.JobStarted(ctx, j)
}

func (t *tallyTrust) JobEnded(ctx context.Context, r *onceq.JobReport) {
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

// A statement that cannot tell which row is bad fails for all of them. With Divide the function is
// called again with halves, so that the bad row fails alone.
func ExampleBulk_divide() {
	queue, dead := mustBatched(membroker.New(nil)), mustBatched(membroker.New(nil))
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	var ms []broker.Outgoing
	for _, row := range []string{"1", "2", "?", "4", "5", "6", "7", "8"} {
		ms = append(ms, onceq.Message("", "row-"+row, []byte(row)))
	}
	if err := onceq.Send(ctx, queue, ms); err != nil {
		log.Fatal(err)
	}
	stored := 0
	store := func(_ context.Context, js []*onceq.Job) []error {
		errs := make([]error, len(js))
		for _, j := range js {
			if bytes.Equal(j.Message.Body, []byte("?")) {
				for i := range errs {
					errs[i] = errors.New("invalid input syntax for type integer")
				}
				return errs
			}
		}
		stored += len(js)
		if stored == 7 {
			stop()
		}
		return errs
	}
	p := mustBatched(onceq.NewProcessor(onceq.ProcessorConfig{
		Handler: onceq.Bulk(onceq.BulkOptions{Max: 8, Linger: 10 * time.Second, Divide: true}, store),
		Store:   mustBatched(memstore.New(nil)), Scope: "rows",
		Defaults: onceq.JobOptions{MaxAttempts: 1},
	}))
	w := mustBatched(p.Worker(queue, onceq.WorkerConfig{DeadLetter: dead, Concurrency: 16}))
	if err := w.Run(ctx); err != nil {
		log.Fatal(err)
	}
	d, err := dead.Depth(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(stored, "rows stored,", d.Visible, "dead letter")
	// Output:
	// 7 rows stored, 1 dead letter
}

func mustBatched[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}
