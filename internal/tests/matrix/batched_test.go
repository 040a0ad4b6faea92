package matrix

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/sqlitestore"
	"github.com/onceq/onceq/internal/retry"
	"github.com/onceq/onceq/onceqtest"
)

// A batch of jobs with their completions in one transaction: whatever goes wrong with a statement,
// with the commit, or with a call of the worker's, each job has its row once.
func TestBatchInOneTransaction(t *testing.T) {
	kinds := []onceqtest.FaultKind{onceqtest.CrashBefore, onceqtest.CrashAfter, onceqtest.Fail, onceqtest.LoseReply, onceqtest.Cancel}
	ops := []onceqtest.Op{"", onceqtest.Claim, complete, commit, onceqtest.Settle, onceqtest.Ack}
	for _, op := range ops {
		for _, kind := range kinds {
			for _, n := range []int{1, 2} {
				if op == "" && (kind != onceqtest.Fail || n != 1) {
					continue // one world without a fault
				}
				t.Run(fmt.Sprintf("%v of %s %d", kind, op, n), func(t *testing.T) {
					t.Parallel()
					synctest.Test(t, func(t *testing.T) {
						w := newBatchWorld(t)
						var fs []onceqtest.Fault
						if op != "" {
							fs = append(fs, onceqtest.Fault{Op: op, N: n, Kind: kind})
						}
						first := w.start(fs...)
						w.rest(30 * time.Second)
						second := w.start()
						w.rest(10 * time.Minute)
						first()
						second()
						w.check()
						if n == 1 && len(w.first.Missed()) > 0 {
							t.Errorf("nothing went wrong: %v", w.first.Missed())
						}
						w.rest(time.Minute)
					})
				})
			}
		}
	}
}

// One job of the batch was taken by somebody else: its row is left out, the others' are committed.
func TestBatchWithALostLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newBatchWorld(t)
		w.steals = "k3"
		stop := w.start()
		w.rest(10 * time.Minute)
		stop()
		w.check()
		if w.lost != 1 {
			t.Errorf("%d leases were lost, want the one", w.lost)
		}
		w.rest(time.Minute)
	})
}

const inBatch = 10

type batchWorld struct {
	*testing.T
	queue, dead *membroker.Broker
	path        string
	db          *sql.DB
	store       *sqlitestore.Store

	first *onceqtest.Process

	mu     sync.Mutex
	steals string
	lost   int
}

func newBatchWorld(t *testing.T) *batchWorld {
	w := &batchWorld{T: t, path: filepath.Join(t.TempDir(), "jobs.db")}
	var err error
	for _, q := range []**membroker.Broker{&w.queue, &w.dead} {
		if *q, err = membroker.New(nil); err != nil {
			t.Fatal(err)
		}
	}
	w.db, w.store = w.open()
	if err := w.store.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := w.db.ExecContext(t.Context(), "CREATE TABLE effects (key TEXT NOT NULL)"); err != nil {
		t.Fatal(err)
	}
	var ms []broker.Outgoing
	for i := range inBatch {
		ms = append(ms, onceq.Message("", fmt.Sprintf("k%d", i), nil))
	}
	if err := onceq.Send(t.Context(), w.queue, ms); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *batchWorld) open() (*sql.DB, *sqlitestore.Store) {
	w.Helper()
	db, err := sql.Open("sqlite", sqlitestore.DSN(w.path))
	if err != nil {
		w.Fatal(err)
	}
	s, err := sqlitestore.New(db, nil)
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { _, _ = s.Close(), db.Close() })
	return db, s
}

func (w *batchWorld) rest(d time.Duration) { retry.Rest(context.Background(), d) }

// start runs a worker in a process of its own.
func (w *batchWorld) start(fs ...onceqtest.Fault) (stop func()) {
	w.Helper()
	p := new(onceqtest.Process)
	p.At(fs...)
	if w.first == nil {
		w.first = p
	}
	_, store := w.open()
	h := onceq.Bulk(onceq.BulkOptions{Max: inBatch}, func(ctx context.Context, js []*onceq.Job) []error {
		errs := make([]error, len(js))
		if err := w.effects(p.Context(ctx), p, store, js, errs); err != nil {
			for i := range errs {
				errs[i] = err
			}
		}
		return errs
	})
	jobs, err := onceq.NewProcessor(onceq.ProcessorConfig{
		Handler: h, Store: p.Store(store), Scope: scope, Logger: slog.New(slog.DiscardHandler),
		Defaults: onceq.JobOptions{Backoff: func(int, error) time.Duration { return time.Second }},
	})
	if err != nil {
		w.Fatal(err)
	}
	run, err := jobs.Worker(p.Receiver(w.queue), onceq.WorkerConfig{DeadLetter: p.Sender(w.dead), Concurrency: 2 * inBatch, SweepEvery: -1})
	if err != nil {
		w.Fatal(err)
	}
	ctx, cancel := context.WithCancel(p.Context(w.Context()))
	done := make(chan struct{})
	go func() { defer close(done); _ = run.Run(ctx) }()
	return func() { cancel(); <-done }
}

// effects writes a row for each job of the batch, with its completion, in one transaction.
func (w *batchWorld) effects(ctx context.Context, p *onceqtest.Process, store *sqlitestore.Store, js []*onceq.Job, errs []error) error {
	w.steal(js)
	tx, err := w.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	for i, j := range js {
		err := p.Call(ctx, complete, func(ctx context.Context) error { return store.CompleteTx(ctx, tx, j, nil) })
		if errors.Is(err, dedupe.ErrLeaseLost) {
			w.mu.Lock()
			w.lost++
			w.mu.Unlock()
			errs[i] = err
			continue
		}
		if err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, "INSERT INTO effects (key) VALUES (?)", j.Key().Key); err != nil {
			return err
		}
	}
	return p.Call(ctx, commit, func(context.Context) error { return tx.Commit() })
}

// steal takes the key of one job of the batch, once, as an operator would who forces it free.
func (w *batchWorld) steal(js []*onceq.Job) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, j := range js {
		if w.steals == "" || j.Key().Key != w.steals {
			continue
		}
		w.steals = ""
		if _, err := w.store.Forget(context.Background(), []dedupe.Forgotten{{Key: j.Key(), Fence: j.Fence(), Force: true}}); err != nil {
			w.Error(err)
		}
	}
}

func (w *batchWorld) check() {
	w.Helper()
	rows, err := w.db.QueryContext(w.Context(), "SELECT key, count(*) FROM effects GROUP BY key")
	if err != nil {
		w.Fatal(err)
	}
	defer rows.Close()
	keys := 0
	for rows.Next() {
		var k string
		var n int
		if err := rows.Scan(&k, &n); err != nil {
			w.Fatal(err)
		}
		if keys++; n != 1 {
			w.Errorf("%s has %d rows, want one", k, n)
		}
	}
	if err := rows.Err(); err != nil || keys != inBatch {
		w.Errorf("%d jobs have a row, want %d (%v)", keys, inBatch, err)
	}
	if d, err := w.queue.Depth(w.Context()); err != nil || d != (broker.Depth{}) {
		w.Errorf("the queue holds %+v, %v", d, err)
	}
	if d, err := w.dead.Depth(w.Context()); err != nil || d != (broker.Depth{}) {
		w.Errorf("the dead-letter queue holds %+v, %v", d, err)
	}
}
