package pgstore_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/dedupe/pgstore"
	"github.com/onceq/onceq/internal/must"
	"github.com/onceq/onceq/internal/storetest"
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
		if err == nil && run%11 == 1 { // the loop beside us may meet nobody at work
			_, err = tx.Exec(ctx, "SELECT pg_terminate_backend(pg_backend_pid())")
		}
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
		c := must.Get(pgxpool.ParseConfig(url))
		c.MaxConns, c.ConnConfig.RuntimeParams["application_name"] = 4, name
		pool := must.Get(pgxpool.NewWithConfig(ctx, c))
		t.Cleanup(pool.Close)
		store := must.Get(pgstore.New(pool, nil))
		return pool, store
	}
	pool, store := open("workers")
	if err := store.Migrate(ctx); err != nil {
		t.Fatal(err)
	}
	const pieces = 100
	if _, err := pool.Exec(ctx, "CREATE TABLE stock (item text PRIMARY KEY, pieces integer NOT NULL)"); err != nil {
		t.Fatal(err)
	}
	if _, err := pool.Exec(ctx, "INSERT INTO stock SELECT 'item-' || n, $1 FROM generate_series(0, $2 - 1) n", pieces, storetest.Items); err != nil {
		t.Fatal(err)
	}
	theirs, own := open("handlers")
	h := &stock{pool: theirs, store: own, complete: complete}
	killed := 0
	storetest.Workers(ctx, t, store, h, func(run context.Context) {
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
	rows, err := pool.Query(t.Context(), "SELECT pieces FROM stock")
	if err != nil {
		t.Fatal(err)
	}
	left, err := pgx.CollectRows(rows, pgx.RowTo[int])
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range left {
		if n != pieces-storetest.Orders/storetest.Items {
			t.Errorf("the items have %v pieces left, want %d each", left, pieces-storetest.Orders/storetest.Items)
			break
		}
	}
	t.Logf("%d runs, %d processes killed beside those of the handlers", h.runs.Load(), killed)
	if n := h.runs.Load(); n < storetest.Orders {
		t.Errorf("the handler ran %d times", n)
	}
}
