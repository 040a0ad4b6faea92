package sqlitebroker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/internal/must"
)

// TestWorker: two processes work on one file, some jobs fail, some messages are sent twice, and the
// pool of one process is closed half way, amid its jobs; it comes back later. Each job writes its
// row, sends the next job and completes in one transaction: each of these happens once, and what
// fails for good becomes a dead letter.
func TestWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const jobs = 300
		path := tempFile(t)
		admin := openFile(t, path)
		orders := admin.queue("orders", nil)
		admin.exec("CREATE TABLE ledger (n INTEGER) STRICT")
		for n := range jobs {
			for range 1 + (n%10)/9 { // each tenth twice
				m := onceq.Message("pay", fmt.Sprint("order-", n), fmt.Append(nil, n))
				if n%15 == 0 {
					m.Group = "vip"
				}
				send(t, orders, m)
			}
		}
		failed := errors.New("it fails")
		var mu sync.Mutex
		effects, half := 0, make(chan struct{})
		pay := func(f *file, ship *Queue) onceq.HandlerFunc {
			return func(ctx context.Context, j *onceq.Job) error {
				var n int
				if _, err := fmt.Sscan(string(j.Message.Body), &n); err != nil {
					return err
				}
				if n%50 == 49 || n%7 == 3 && j.Attempt == 1 {
					return failed
				}
				tx, err := f.db.BeginTx(ctx, nil)
				if err != nil {
					return err
				}
				defer tx.Rollback()
				if _, err := tx.ExecContext(ctx, "INSERT INTO ledger VALUES (?)", n); err != nil {
					return err
				}
				next := onceq.Message("ship", "", j.Message.Body)
				if err := onceq.SendOne(ctx, ship.Tx(tx), &next); err != nil {
					return err
				}
				if n%7 == 5 && j.Attempt == 1 { // what was written goes
					return failed
				}
				if err := f.store.CompleteTx(ctx, tx, j, nil); err != nil {
					return err
				}
				if err := tx.Commit(); err != nil {
					return err
				}
				mu.Lock()
				defer mu.Unlock()
				if effects++; effects == jobs/2 {
					close(half)
				}
				return nil
			}
		}
		working, finish := context.WithCancel(t.Context())
		defer finish()
		var workers sync.WaitGroup
		work := func(ctx context.Context, f *file) (ended chan error) {
			queue, letters := f.queue("orders", nil), f.queue("letters", nil)
			p := must.Get(onceq.NewProcessor(onceq.ProcessorConfig{
				Handler: pay(f, f.queue("ship", nil)), Store: f.store, Scope: "orders", Logger: slog.New(slog.DiscardHandler),
				Defaults: onceq.JobOptions{Backoff: func(int, error) time.Duration { return time.Second }},
			}))
			w := must.Get(p.Worker(queue, onceq.WorkerConfig{DeadLetter: letters, DrainTimeout: 5 * time.Second}))
			ended = make(chan error, 1)
			workers.Go(func() { ended <- w.Run(ctx) })
			return ended
		}
		steady := work(working, openFile(t, path))
		doomed := openFile(t, path)
		dying, kill := context.WithCancel(working)
		gone := work(dying, doomed)
		<-half
		doomed.db.Close() // under its handlers, its claims and its receives
		pass(t.Context(), time.Second)
		kill()
		t.Logf("the closed one: %v", <-gone)
		again := work(working, openFile(t, path))

		for deadline := time.Now().Add(time.Hour); scan[int](admin, "SELECT count(*) FROM onceq_messages WHERE queue = 'orders'") > 0; {
			if time.Now().After(deadline) {
				t.Fatal("messages are left after an hour")
			}
			pass(t.Context(), time.Second)
		}
		finish()
		workers.Wait()
		if err := errors.Join(<-steady, <-again); err != nil {
			t.Error(err)
		}
		const dead = jobs / 50
		for what, c := range map[string]struct {
			want  int
			query string
		}{
			"rows":             {jobs - dead, "SELECT count(*) FROM ledger"},
			"jobs with a row":  {jobs - dead, "SELECT count(DISTINCT n) FROM ledger"},
			"next jobs":        {jobs - dead, "SELECT count(*) FROM onceq_messages WHERE queue = 'ship'"},
			"other next jobs":  {jobs - dead, "SELECT count(DISTINCT body) FROM onceq_messages WHERE queue = 'ship'"},
			"rows that failed": {0, "SELECT count(*) FROM ledger WHERE n % 50 = 49"},
		} {
			if got := scan[int](admin, c.query); got != c.want {
				t.Errorf("%s: %d, want %d", what, got, c.want)
			}
		}
		bodies := scan[int](admin, "SELECT count(DISTINCT body) FROM onceq_messages WHERE queue = 'letters'")
		if bodies != dead {
			t.Errorf("%d jobs are dead letters, want %d", bodies, dead)
		}
	})
}

// A job that is delayed beyond its worker's Retention runs when it is due: the page promises delays
// of years.
func TestDelayBeyondRetention(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := openFile(t, tempFile(t))
		orders, dead := f.queue("orders", nil), f.queue("dead", nil)
		const delay = 40 * 24 * time.Hour
		m := onceq.Message("pay", "A-1", nil)
		m.Delay = delay
		if err := onceq.SendOne(t.Context(), orders, &m); err != nil {
			t.Fatal(err)
		}
		<-time.After(delay)
		ran := 0
		p := must.Get(onceq.NewProcessor(onceq.ProcessorConfig{
			Handler: onceq.HandlerFunc(func(context.Context, *onceq.Job) error { ran++; return nil }),
			Store:   f.store, Scope: "test", Logger: slog.New(slog.DiscardHandler),
		}))
		w := must.Get(p.Worker(orders, onceq.WorkerConfig{DeadLetter: dead}))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := w.Run(ctx); err != nil || ran != 1 {
			t.Errorf("%d runs, %v", ran, err)
		}
	})
}
