package limit_test

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/memstore"
	"github.com/onceq/onceq/limit"
)

// The world of these tests: workers on a memory queue and a memory store, in virtual time. Its
// goroutine alone starts and ends workers; handlers and observers write under mu.

type world struct {
	*testing.T
	q, letters *membroker.Broker
	store      dedupe.Store

	mu      sync.Mutex
	starts  map[string][]time.Time // of handlers, by key
	reports []onceq.JobReport
	running int
	most    int // that ran at once
}

func newWorld(t *testing.T) *world {
	t.Helper()
	store, err := memstore.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	w := &world{T: t, store: store, starts: make(map[string][]time.Time)}
	for _, b := range []**membroker.Broker{&w.q, &w.letters} {
		if *b, err = membroker.New(nil); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

func (w *world) JobStarted(ctx context.Context, _ *onceq.Job) context.Context { return ctx }

func (w *world) JobEnded(_ context.Context, r *onceq.JobReport) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reports = append(w.reports, *r)
}

// begun is a handler that takes a time.
func (w *world) begun(takes time.Duration) onceq.HandlerFunc {
	return func(ctx context.Context, j *onceq.Job) error {
		w.mu.Lock()
		k := tenant(j)
		w.starts[k] = append(w.starts[k], time.Now())
		w.running++
		w.most = max(w.most, w.running)
		w.mu.Unlock()
		defer func() {
			w.mu.Lock()
			w.running--
			w.mu.Unlock()
		}()
		select {
		case <-time.After(takes + time.Nanosecond):
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func tenant(j *onceq.Job) string { return j.Message.Attributes["tenant"] }

// send puts n jobs of a tenant.
func (w *world) send(tenant string, n int) {
	w.Helper()
	ms := make([]broker.Outgoing, n)
	for i := range ms {
		ms[i] = broker.Outgoing{Body: []byte("x"), Attributes: map[string]string{"tenant": tenant}, Meta: &broker.Meta{}}
	}
	if err := onceq.Send(w.Context(), w.q, ms); err != nil {
		w.Fatal(err)
	}
}

type setup struct {
	onceq.ProcessorConfig
	onceq.WorkerConfig
}

// worker makes a worker of the handler.
func (w *world) worker(h onceq.Handler, set func(*setup)) *onceq.Worker {
	w.Helper()
	c := setup{
		ProcessorConfig: onceq.ProcessorConfig{Handler: h, Store: w.store, Scope: "s", Observer: w, Logger: slog.New(slog.DiscardHandler)},
		WorkerConfig:    onceq.WorkerConfig{DeadLetter: w.letters},
	}
	if set != nil {
		set(&c)
	}
	p, err := onceq.NewProcessor(c.ProcessorConfig)
	if err != nil {
		w.Fatal(err)
	}
	worker, err := p.Worker(w.q, c.WorkerConfig)
	if err != nil {
		w.Fatal(err)
	}
	return worker
}

// run has workers run, until the answer is called.
func (w *world) run(workers ...*onceq.Worker) (stop func()) {
	ctx, cancel := context.WithCancel(w.Context())
	var all sync.WaitGroup
	for _, worker := range workers {
		all.Go(func() {
			if err := worker.Run(ctx); err != nil {
				w.Error(err)
			}
		})
	}
	return func() {
		w.Helper()
		cancel()
		all.Wait()
		<-time.After(time.Minute) // beats that are in flight
		synctest.Wait()
	}
}

// ends counts the deliveries by their outcome.
func (w *world) ends(o onceq.Outcome) (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range w.reports {
		if w.reports[i].Outcome == o {
			n++
		}
	}
	return n
}

func (w *world) begins(tenant string) []time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.SortedFunc(slices.Values(w.starts[tenant]), time.Time.Compare)
}

// windowed is the most starts in any time of length per: half-open, so one at its end is the next
// one's.
func windowed(at []time.Time, per time.Duration) (most int) {
	first := 0
	for i := range at {
		for at[i].Sub(at[first]) >= per {
			first++
		}
		most = max(most, i-first+1)
	}
	return most
}

func must[T any](v T, err error) func(testing.TB) T {
	return func(tb testing.TB) T {
		tb.Helper()
		if err != nil {
			tb.Fatal(err)
		}
		return v
	}
}

func pass(d time.Duration) { <-time.After(d) }

var _ limit.Limiter = limiterFunc(nil)

type limiterFunc func(ctx context.Context, a limit.Ask) (time.Duration, error)

func (f limiterFunc) Reserve(ctx context.Context, a limit.Ask) (time.Duration, error) {
	return f(ctx, a)
}

// all are the reports so far.
func (w *world) all() []onceq.JobReport {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.reports)
}

// atOnce is how many handlers ran at once, at most.
func (w *world) atOnce() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.most
}
