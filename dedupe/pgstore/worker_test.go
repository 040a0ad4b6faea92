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
	"github.com/onceq/onceq/internal/testserver/testpg"
)

// stock is the handler of doc.go: what a job does, and that it is done, are one transaction.
type stock struct {
	pool     *pgxpool.Pool
	store    *pgstore.Store
	runs     atomic.Int64
	complete completion
}

// completion runs work and then late in a transaction that completes the job.
type completion func(ctx context.Context, h *stock, job *onceq.Job, work func(tx pgx.Tx) error, late func() error) error

func (h *stock) Handle(ctx context.Context, job *onceq.Job) error {
	run := h.runs.Add(1)
	work := func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "UPDATE stock SET pieces = pieces - 1 WHERE item = $1", string(job.Message.Body))
		return err
	}
	err := h.complete(ctx, h, job, work, func() error {
		switch {
		case run%3 == 0:
			return errors.New("rolled back in the last moment")
		case run%7 == 0:
			panic("broken in the last moment")
		}
		return nil
	})
	if err == nil && run%5 == 0 {
		return errors.New("committed, but the answer was lost")
	}
	return err
}

func completeTx(ctx context.Context, h *stock, job *onceq.Job, work func(tx pgx.Tx) error, late func() error) error {
	return pgx.BeginFunc(ctx, h.pool, func(tx pgx.Tx) error {
		if err := work(tx); err != nil {
			return err
		}
		if err := h.store.CompleteTx(ctx, tx, job, string(job.Message.Body)); err != nil {
			return err
		}
		return late()
	})
}

func commit(ctx context.Context, h *stock, job *onceq.Job, work func(tx pgx.Tx) error, late func() error) error {
	return h.store.Commit(ctx, job, func(tx pgx.Tx) (any, error) {
		if err := work(tx); err != nil {
			return nil, err
		}
		return string(job.Message.Body), late()
	})
}

// counter is told of how each delivery ended.
type counter func(outcome string)

func (c counter) JobStarted(ctx context.Context, _ *onceq.Job) context.Context { return ctx }
func (c counter) JobEnded(_ context.Context, r *onceq.TimingRecord)            { c(string(r.Outcome)) }

// TestWorkers: two workers, each order sent twice, transactions that are rolled back, commits whose
// answers are lost, and a server whose processes are killed all the while: each order takes one
// piece.
func TestWorkers(t *testing.T) {
	t.Run("CompleteTx", func(t *testing.T) { workers(t, completeTx) })
	t.Run("Commit", func(t *testing.T) { workers(t, commit) })
}

func workers(t *testing.T, complete completion) {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), 5*time.Minute)
	defer stop()
	url := testpg.New(t).URL
	open := func(name string) (*pgxpool.Pool, *pgstore.Store) {
		c, err := pgxpool.ParseConfig(url)
		if err != nil {
			t.Fatal(err)
		}
		c.MaxConns, c.ConnConfig.RuntimeParams["application_name"] = 4, name
		pool, err := pgxpool.NewWithConfig(ctx, c)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(pool.Close)
		store, err := pgstore.New(pool, nil)
		if err != nil {
			t.Fatal(err)
		}
		return pool, store
	}
	pool, store := open("workers")
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
	// The second wave comes when the first is done: a duplicate that meets its job at work comes
	// back after a lease.
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
	theirs, own := open("handlers")
	h := &stock{pool: theirs, store: own, complete: complete}
	var over atomic.Int64
	run, end := context.WithCancel(ctx)
	var wg sync.WaitGroup
	killed := 0
	wg.Go(func() {
		for run.Err() == nil {
			// Each process at whatever it is doing: between two statements, or within the COMMIT.
			tag, err := pool.Exec(ctx, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "+
				"WHERE datname = current_database() AND application_name = 'handlers' AND state <> 'idle' ORDER BY random() LIMIT 1")
			if err != nil {
				t.Error(err)
				return
			}
			killed += int(tag.RowsAffected())
			<-time.After(5 * time.Millisecond)
		}
	})
	for range 2 {
		p, err := onceq.NewProcessor(onceq.ProcessorConfig{
			Handler: h, Store: store, Scope: "orders", Logger: slog.New(slog.DiscardHandler),
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
		})
		if err != nil {
			t.Fatal(err)
		}
		w, err := p.Worker(queue, onceq.WorkerConfig{DeadLetter: dead})
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
	t.Logf("%d runs, %d processes killed", h.runs.Load(), killed)
	if killed == 0 {
		t.Error("no process was killed")
	}
	if over.Load() < 2*orders || h.runs.Load() < orders {
		t.Errorf("%d messages have ended after %d runs", over.Load(), h.runs.Load())
	}
}
