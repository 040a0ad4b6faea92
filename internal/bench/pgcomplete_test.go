package bench

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/pgbroker"
	"github.com/onceq/onceq/dedupe/pgstore"
	"github.com/onceq/onceq/internal/testserver/testpg"
)

// charge is the effect of a job: a row in the user's transaction.
func charge(ctx context.Context, tx pgx.Tx) error {
	_, err := tx.Exec(ctx, `INSERT INTO charges (cents) VALUES ($1)`, 995)
	return err
}

// BenchmarkPostgresQueueCompleteTx runs prefilled queues empty, on a server that waits for the
// disk. Each job's handler inserts a row and completes the job in one transaction. All have 500
// workers and one pool of 16 connections, which is what bounds them. CompleteTx and Commit are a
// whole onceq.Worker on pgbroker and pgstore, in one database:
//
//	river       River, JobCompleteTx, FetchCooldown as it comes (100 ms)
//	river tuned the same with a FetchCooldown of 1 ms, its shortest, and a poll of 5 ms
//	CompleteTx  CompleteTx in the handler's own transaction
//	Commit      in that of the store's Commit
func BenchmarkPostgresQueueCompleteTx(b *testing.B) {
	db := testpg.NewDurable(b)
	pool := openPool(b, db.URL)
	q, st := openPGQueue(b, pool, "bench"), openStore(b, pool, "bench_complete")
	if _, err := pool.Exec(b.Context(), `CREATE TABLE charges (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, cents bigint NOT NULL)`); err != nil {
		b.Fatal(err)
	}
	quick := func(c *river.Config) { c.FetchCooldown, c.FetchPollInterval = time.Millisecond, 5*time.Millisecond }
	inRiver := func(ctx context.Context, j *river.Job[riverArgs]) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			if err := charge(ctx, tx); err != nil {
				return err
			}
			_, err := river.JobCompleteTx[*riverpgxv5.Driver](ctx, tx, j)
			return err
		})
	}
	b.ResetTimer()
	const jobs = 2000
	cs := compare(b, rounds, jobs, []variant{
		{"river", openRiverWork(b, pool, inRiver)},
		{"river tuned", openRiverWork(b, pool, inRiver, quick)},
		{"CompleteTx", queueWorker(q, st, func(ctx context.Context, j *onceq.Job) error {
			return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
				if err := charge(ctx, tx); err != nil {
					return err
				}
				return st.CompleteTx(ctx, tx, j, nil)
			})
		})},
		{"Commit", queueWorker(q, st, func(ctx context.Context, j *onceq.Job) error {
			return st.Commit(ctx, j, func(tx pgx.Tx) (any, error) { return nil, charge(ctx, tx) })
		})},
	}, nil)
	if n := charges(b, pool); n != int64((rounds+1)*4*jobs) {
		b.Errorf("%d charges, want one for each job", n)
	}
	b.ReportMetric(0, "ns/op")
	for i, v := range []string{"river", "river-tuned", "completetx", "commit"} {
		b.ReportMetric(1e9/cs[i].wall, v+"-jobs/s")
		b.ReportMetric(1/cs[i].beside, v+"-x-river")
		b.ReportMetric(cs[1].wall/cs[i].wall, v+"-x-tuned")
	}
}

func charges(tb testing.TB, pool *pgxpool.Pool) (n int64) {
	tb.Helper()
	if err := pool.QueryRow(tb.Context(), `SELECT count(*) FROM charges`).Scan(&n); err != nil {
		tb.Fatal(err)
	}
	return n
}

// queueWorker fills the queue, and runs it empty by a worker with 500 handlers.
func queueWorker(q *pgbroker.Queue, st *pgstore.Store, work func(context.Context, *onceq.Job) error) func(context.Context, testing.TB, int) (run, after func()) {
	return func(ctx context.Context, tb testing.TB, n int) (run, after func()) {
		fillQueue(ctx, tb, q, n)
		var left atomic.Int64
		left.Store(int64(n))
		ctx, cancel := context.WithCancel(ctx)
		p, err := onceq.NewProcessor(onceq.ProcessorConfig{
			Handler: onceq.HandlerFunc(func(ctx context.Context, j *onceq.Job) error {
				if err := work(ctx, j); err != nil {
					return err
				}
				if left.Add(-1) == 0 {
					cancel() // the drain settles and acks
				}
				return nil
			}),
			Store: st, Scope: "bench",
		})
		if err != nil {
			tb.Fatal(err)
		}
		w, err := p.Worker(q, onceq.WorkerConfig{DeadLetter: onceq.KeepInQueue, Concurrency: 500})
		if err != nil {
			tb.Fatal(err)
		}
		return func() {
			defer cancel()
			if err := w.Run(ctx); err != nil {
				tb.Fatal(err)
			}
		}, nil
	}
}
