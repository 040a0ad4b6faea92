package bench

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

type riverArgs struct {
	Order int `json:"order"`
}

func (riverArgs) Kind() string { return "bench" }

type riverWorker struct {
	river.WorkerDefaults[riverArgs]
	work func(ctx context.Context, j *river.Job[riverArgs]) error // nil = nothing is to be done
	left atomic.Int64
	done chan struct{}
}

func (w *riverWorker) Work(ctx context.Context, j *river.Job[riverArgs]) error {
	if w.work != nil {
		if err := w.work(ctx, j); err != nil {
			return err
		}
	}
	if w.left.Add(-1) == 0 {
		close(w.done)
	}
	return nil
}

// openRiver makes River's tables and returns the variant that runs its jobs, of which there is
// nothing to do.
func openRiver(tb testing.TB, pool *pgxpool.Pool, settings ...func(*river.Config)) func(ctx context.Context, tb testing.TB, n int) (run, after func()) {
	tb.Helper()
	return openRiverWork(tb, pool, nil, settings...)
}

func openRiverWork(tb testing.TB, pool *pgxpool.Pool, work func(ctx context.Context, j *river.Job[riverArgs]) error,
	settings ...func(*river.Config),
) func(ctx context.Context, tb testing.TB, n int) (run, after func()) {
	tb.Helper()
	driver := riverpgxv5.New(pool)
	m, err := rivermigrate.New(driver, nil)
	if err != nil {
		tb.Fatal(err)
	}
	if _, err := m.Migrate(tb.Context(), rivermigrate.DirectionUp, nil); err != nil {
		tb.Fatal(err)
	}
	return func(ctx context.Context, tb testing.TB, n int) (run, after func()) {
		tb.Helper()
		w := &riverWorker{work: work, done: make(chan struct{})}
		w.left.Store(int64(n))
		ws := river.NewWorkers()
		river.AddWorker(ws, w)
		config := &river.Config{
			Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 500}}, Workers: ws,
		}
		for _, set := range settings {
			set(config)
		}
		c, err := river.NewClient(driver, config)
		if err != nil {
			tb.Fatal(err)
		}
		ms := make([]river.InsertManyParams, n)
		for i := range ms {
			ms[i].Args = riverArgs{i}
		}
		for len(ms) > 0 {
			k := min(len(ms), 5000)
			if _, err := c.InsertManyFast(ctx, ms[:k]); err != nil {
				tb.Fatal(err)
			}
			ms = ms[k:]
		}
		return func() {
			if err := c.Start(ctx); err != nil {
				tb.Fatal(err)
			}
			<-w.done
			if err := c.Stop(ctx); err != nil {
				tb.Fatal(err)
			}
		}, nil
	}
}
