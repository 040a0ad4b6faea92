package storetest

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/must"
)

// What Workers sends: each item is ordered by Orders/Items orders. The body of a message is its
// item, "item-0" to "item-5".
const (
	Orders = 60
	Items  = 6
)

// counter is told of how each delivery ended.
type counter func(outcome onceq.Outcome)

func (c counter) JobStarted(ctx context.Context, _ *onceq.Job) context.Context { return ctx }
func (c counter) JobEnded(_ context.Context, r *onceq.JobReport)               { c(r.Outcome) }

// Workers lets two workers run h on store until each order, sent twice, is done twice. The
// functions of beside run meanwhile, until their context ends.
func Workers(ctx context.Context, t *testing.T, store dedupe.Store, h onceq.Handler, beside ...func(context.Context)) {
	t.Helper()
	queue := must.Get(membroker.New(nil))
	dead := must.Get(membroker.New(nil))
	// The second wave comes when the first is done: a duplicate that meets its job at work comes
	// back after a lease.
	wave := func() {
		var out []broker.Outgoing
		for i := range Orders {
			out = append(out, broker.Outgoing{Body: fmt.Appendf(nil, "item-%d", i%Items), Meta: &broker.Meta{Key: fmt.Sprintf("order-%d", i)}})
		}
		for part := range slices.Chunk(out, queue.Limits().SendBatch) {
			if err := onceq.Send(ctx, queue, part); err != nil {
				t.Error(err)
			}
		}
	}
	wave()
	var over atomic.Int64
	run, end := context.WithCancel(ctx)
	defer end()
	var wg sync.WaitGroup
	for _, f := range beside {
		wg.Go(func() { f(run) })
	}
	for range 2 {
		w, err := worker(queue, dead, store, h, func(outcome onceq.Outcome) {
			if outcome != onceq.OutcomeDone && outcome != onceq.OutcomeAlreadyDone {
				return
			}
			switch over.Add(1) {
			case Orders:
				wave()
			case 2 * Orders:
				end()
			}
		})
		if err != nil {
			end()
			t.Error(err)
			break
		}
		wg.Go(func() {
			if err := w.Run(run); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := over.Load(); n < 2*Orders {
		t.Errorf("%d messages have ended, want %d", n, 2*Orders)
	}
}

func worker(queue, dead broker.Broker, store dedupe.Store, h onceq.Handler, ended counter) (*onceq.Worker, error) {
	p, err := onceq.NewProcessor(onceq.ProcessorConfig{
		Handler: h, Store: store, Scope: "orders", Logger: slog.New(slog.DiscardHandler),
		Defaults: onceq.JobOptions{Backoff: func(int, error) time.Duration { return time.Millisecond }, MaxAttempts: 1000},
		Observer: ended,
	})
	if err != nil {
		return nil, err
	}
	return p.Worker(queue, onceq.WorkerConfig{DeadLetter: dead})
}
