package pgbroker_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/pgbroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe/pgstore"
	"github.com/onceq/onceq/internal/must"
	"github.com/onceq/onceq/internal/testserver/testpg"
)

// TestWorker: queue, store and business in one database. Each order is written with its job, or
// neither is; the job pays, completes and sends the next job in one transaction, while connections
// of the queue, the store and the handlers are killed all the while. Each committed order is paid
// once and shipped once, and no order that was rolled back is.
func TestWorker(t *testing.T) {
	const orders = 120
	ctx, stop := context.WithTimeout(t.Context(), 4*time.Minute)
	defer stop()
	url := testpg.New(t).URL
	open := func(name string) *pgxpool.Pool {
		c := must.Get(pgxpool.ParseConfig(url))
		c.MaxConns, c.ConnConfig.RuntimeParams["application_name"] = 6, name
		pool := must.Get(pgxpool.NewWithConfig(ctx, c))
		t.Cleanup(pool.Close)
		return pool
	}
	admin := open("admin")
	if _, err := admin.Exec(ctx, `CREATE TABLE orders (n int PRIMARY KEY); CREATE TABLE ledger (what text, n int)`); err != nil {
		t.Fatal(err)
	}
	queueOn := func(pool *pgxpool.Pool) *pgbroker.Queue {
		q, err := pgbroker.New(pool, "orders", &pgbroker.Options{Visibility: 5 * time.Second, Poll: 20 * time.Millisecond})
		if err == nil {
			err = q.Migrate(ctx)
		}
		if err != nil {
			t.Fatal(err)
		}
		return q
	}
	storeOn := func(pool *pgxpool.Pool) *pgstore.Store {
		s, err := pgstore.New(pool, nil)
		if err == nil {
			err = s.Migrate(ctx)
		}
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	producer := queueOn(admin)
	var workers sync.WaitGroup
	working, finish := context.WithCancel(ctx)
	defer finish()
	for i := range 2 {
		theirs := open("handlers")
		queue, store := queueOn(open("queue")), storeOn(open("store"))
		inTx, commits := queueOn(theirs), storeOn(theirs)
		mux := new(onceq.Mux)
		mux.On("pay", onceq.HandlerFunc(func(ctx context.Context, j *onceq.Job) error {
			return commits.Commit(ctx, j, func(tx pgx.Tx) (any, error) {
				if _, err := tx.Exec(ctx, "INSERT INTO ledger VALUES ('pay', $1::text::int)", string(j.Message.Body)); err != nil {
					return nil, err
				}
				next := onceq.Message("ship", "", j.Message.Body)
				return nil, onceq.SendOne(ctx, inTx.Tx(tx), &next)
			})
		}), nil)
		mux.On("ship", onceq.HandlerFunc(func(ctx context.Context, j *onceq.Job) error {
			return pgx.BeginFunc(ctx, theirs, func(tx pgx.Tx) error {
				if err := commits.CompleteTx(ctx, tx, j, nil); err != nil {
					return err
				}
				_, err := tx.Exec(ctx, "INSERT INTO ledger VALUES ('ship', $1::text::int)", string(j.Message.Body))
				return err
			})
		}), nil)
		p := must.Get(onceq.NewProcessor(onceq.ProcessorConfig{
			Handler: mux, Store: store, Scope: "orders", Lease: 5 * time.Second, Logger: slog.New(slog.DiscardHandler),
			Defaults: onceq.JobOptions{Backoff: func(int, error) time.Duration { return 10 * time.Millisecond }, MaxAttempts: -1},
		}))
		w := must.Get(p.Worker(queue, onceq.WorkerConfig{DeadLetter: onceq.KeepInQueue, Concurrency: 20, Visibility: 5 * time.Second}))
		workers.Go(func() {
			if err := w.Run(working); err != nil {
				t.Errorf("worker %d: %v", i, err)
			}
		})
	}
	killed := int64(0)
	workers.Go(func() { // each process at whatever it is doing
		for working.Err() == nil {
			tag, err := admin.Exec(working, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() "+
				"AND application_name IN ('handlers', 'queue', 'store') AND state <> 'idle' ORDER BY random() LIMIT 1")
			if err != nil && working.Err() == nil {
				t.Error(err)
			}
			killed += tag.RowsAffected()
			select {
			case <-working.Done():
			case <-time.After(10 * time.Millisecond):
			}
		}
	})
	committed := map[int]bool{}
	rolledBack := errors.New("no stock")
	for n := range orders {
		err := pgx.BeginFunc(ctx, admin, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, "INSERT INTO orders VALUES ($1)", n); err != nil {
				return err
			}
			m := onceq.Message("pay", fmt.Sprint("order-", n), fmt.Append(nil, n))
			if n%10 == 0 {
				m.Group = "vip"
			}
			if err := onceq.Send(ctx, producer.Tx(tx), []broker.Outgoing{m}); err != nil {
				return err
			}
			if n%7 == 3 {
				return rolledBack
			}
			return nil
		})
		if err != nil && !errors.Is(err, rolledBack) {
			t.Fatal(err)
		}
		committed[n] = err == nil
	}
	count := func(sql string) (n int) {
		if err := admin.QueryRow(ctx, sql).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for ; count("SELECT count(*) FROM onceq_messages") > 0; <-tick.C {
		if ctx.Err() != nil {
			t.Fatalf("%d messages are left", count("SELECT count(*) FROM onceq_messages"))
		}
	}
	finish()
	workers.Wait()
	if t.Logf("%d connections were killed", killed); killed == 0 {
		t.Error("no connection was killed: the test shows less than it should")
	}
	rows, err := admin.Query(t.Context(), "SELECT what, n FROM ledger")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]int{}
	var what string
	var n int
	if _, err := pgx.ForEachRow(rows, []any{&what, &n}, func() error { seen[fmt.Sprint(what, " ", n)]++; return nil }); err != nil {
		t.Fatal(err)
	}
	var wrong []string
	for n, is := range committed {
		for _, what := range []string{"pay", "ship"} {
			if got := seen[fmt.Sprint(what, " ", n)]; got != 1 && is || got != 0 && !is {
				wrong = append(wrong, fmt.Sprintf("order %d, committed %v: %s %d times", n, is, what, got))
			}
		}
	}
	if len(wrong) > 0 {
		t.Error(strings.Join(wrong, "\n"))
	}
}
