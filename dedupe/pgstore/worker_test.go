package pgstore_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe/pgstore"
	"github.com/onceq/onceq/localstack"
)

// stock is the handler of doc.go: what a job does, and that it is done, are one transaction.
type stock struct {
	pool  *pgxpool.Pool
	store *pgstore.Store
	runs  atomic.Int64
}

func (h *stock) Handle(ctx context.Context, job *onceq.Job) error {
	run := h.runs.Add(1)
	err := pgx.BeginFunc(ctx, h.pool, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "UPDATE stock SET pieces = pieces - 1 WHERE item = $1", string(job.Message.Body))
		if err != nil {
			return err
		}
		if err := h.store.CompleteTx(ctx, tx, job, map[string]string{"item": string(job.Message.Body)}); err != nil {
			return err
		}
		if run%3 == 0 {
			return errors.New("rolled back in the last moment")
		}
		return nil
	})
	if err == nil && run%5 == 0 {
		return errors.New("committed, but the answer was lost")
	}
	return err
}

// counter is told of how each delivery ended.
type counter func(outcome string)

func (c counter) JobStarted(ctx context.Context, _ *onceq.Job) context.Context { return ctx }
func (c counter) JobEnded(_ context.Context, r *onceq.TimingRecord)            { c(r.Outcome) }

// TestWorkers: two workers, each order sent twice, transactions that are rolled back, and commits whose answers are lost: each
// order takes one piece.
func TestWorkers(t *testing.T) {
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	pool, err := pgxpool.New(ctx, localstack.Postgres(t).URL)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	store, err := pgstore.New(pool, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Migrate(ctx); err != nil {
		t.Fatal(err)
	}
	const orders, pieces = 60, 100
	if _, err := pool.Exec(ctx, "CREATE TABLE stock (item text PRIMARY KEY, pieces integer NOT NULL)"); err != nil {
		t.Fatal(err)
	}
	if _, err := pool.Exec(ctx, "INSERT INTO stock SELECT 'item-' || n, $1 FROM generate_series(0, 5) n", pieces); err != nil {
		t.Fatal(err)
	}
	queue, err := membroker.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	dead, err := membroker.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	// The second wave comes when the first is done: a duplicate that meets its job at work comes back after a lease.
	wave := func() {
		var out []broker.Outgoing
		for i := range orders {
			out = append(out, broker.Outgoing{Body: fmt.Appendf(nil, "item-%d", i%6), Meta: &broker.Meta{Key: fmt.Sprintf("order-%d", i)}})
		}
		for part := range slices.Chunk(out, queue.Limits().SendBatch) {
			if err := onceq.Send(ctx, queue, part); err != nil {
				t.Error(err)
			}
		}
	}
	wave()
	h := &stock{pool: pool, store: store}
	var over atomic.Int64
	run, end := context.WithCancel(ctx)
	var wg sync.WaitGroup
	for range 2 {
		w, err := onceq.New(onceq.Config{
			ProcessorConfig: onceq.ProcessorConfig{
				Handler: h, Store: store, Scope: "orders", DeadLetter: dead, Logger: slog.New(slog.DiscardHandler),
				Defaults: onceq.JobOptions{Backoff: func(int, error) time.Duration { return time.Millisecond }, MaxAttempts: 1000},
				Observer: counter(func(outcome string) {
					if outcome != "done" && outcome != "already-done" {
						return
					}
					switch over.Add(1) {
					case orders:
						wave()
					case 2 * orders:
						end()
					}
				}),
			},
			Broker: queue,
		})
		if err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			if err := w.Run(run); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	end()
	rows, err := pool.Query(t.Context(), "SELECT pieces FROM stock")
	if err != nil {
		t.Fatal(err)
	}
	left, err := pgx.CollectRows(rows, pgx.RowTo[int])
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range left {
		if n != pieces-orders/6 {
			t.Errorf("the items have %v pieces left, want %d each", left, pieces-orders/6)
			break
		}
	}
	if over.Load() < 2*orders || h.runs.Load() < orders {
		t.Errorf("%d messages have ended after %d runs", over.Load(), h.runs.Load())
	}
}
