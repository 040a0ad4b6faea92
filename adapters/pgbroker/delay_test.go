package pgbroker

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/dedupe/memstore"
	"github.com/onceq/onceq/internal/must"
)

// TestDelayBeyondRetention: a job that was delayed beyond its worker's Retention runs when it is
// due. Nobody waits 40 days for it here: the message was made so long ago, and its row says now.
func TestDelayBeyondRetention(t *testing.T) {
	pool := openPool(t)
	q, dead := newQueue(t, pool, newName(), nil), newQueue(t, pool, newName(), nil)
	const delay = 40 * 24 * time.Hour
	m := onceq.Message("pay", "A-1", nil)
	m.Delay, m.Meta.Created = delay, time.Now().Add(-delay)
	if err := onceq.SendOne(t.Context(), q, &m); err != nil {
		t.Fatal(err)
	}
	none(t, q, "before it is due")
	exec(t, pool, "UPDATE onceq_messages SET due = clock_timestamp() WHERE queue = $1", q.name)
	store := must.Get(memstore.New(nil))
	ctx, ran := context.WithCancel(t.Context())
	defer ran()
	runs := 0
	p := must.Get(onceq.NewProcessor(onceq.ProcessorConfig{
		Handler: onceq.HandlerFunc(func(context.Context, *onceq.Job) error { runs++; ran(); return nil }),
		Observer: ends(func(r *onceq.JobReport) {
			if r.Outcome != onceq.OutcomeDone {
				t.Errorf("it ended as %s: %s", r.Outcome, r.Err)
				ran()
			}
		}),
		Store: store, Scope: "test", Logger: slog.New(slog.DiscardHandler),
	}))
	w := must.Get(p.Worker(q, onceq.WorkerConfig{DeadLetter: dead}))
	if err := w.Run(ctx); err != nil || runs != 1 {
		t.Errorf("%d runs, %v", runs, err)
	}
}

// ends is an Observer of ends.
type ends func(*onceq.JobReport)

func (f ends) JobStarted(ctx context.Context, _ *onceq.Job) context.Context { return ctx }
func (f ends) JobEnded(_ context.Context, r *onceq.JobReport)               { f(r) }
