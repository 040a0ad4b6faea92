package snippets

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/adapters/pgbroker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/memstore"
	"github.com/onceq/onceq/dedupe/pgstore"
	"github.com/onceq/onceq/localstack"
	"github.com/onceq/onceq/ops"
)

// The pages for users of River and asynq: what is sent twice runs once, what a handler says is what
// happens, steps are not repeated, and what an operator cancels does not run.
func TestComingFromJobs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		store, err := memstore.New(nil)
		require.NoError(t, err)
		queue, err := membroker.New(&membroker.Options{Name: "invoices"})
		require.NoError(t, err)
		dead, err := membroker.New(nil)
		require.NoError(t, err)
		var charges, mails, busy atomic.Int32
		steps := inSteps(
			func(context.Context, string) (string, error) { charges.Add(1); return "ch", nil },
			func(context.Context, string) (string, error) {
				if mails.Add(1) == 1 {
					return "", errors.New("no answer")
				}
				return "sent", nil
			},
		)
		w, err := invoiceWorker(store, queue, dead, func(ctx context.Context, j *onceq.Job, i Invoice) error {
			if i.Cents == http.StatusTooManyRequests && busy.Add(1) > 3 {
				i.Cents = http.StatusOK
			}
			if err := ending(i.Cents, time.Minute); err != nil || i.ID != "steps" {
				return err
			}
			return steps(ctx, j, i)
		})
		require.NoError(t, err)
		o, err := ops.New([]ops.Target{{Name: "invoices", Queue: queue, DeadLetters: dead, Store: store}}, &ops.Options{By: "ana"})
		require.NoError(t, err)
		_, err = o.Cancel(ctx, ops.CancelSpec{Key: dedupe.Key{Scope: "shop:invoice", Key: "withdrawn"}, Reason: "x"})
		require.NoError(t, err)
		for _, i := range []Invoice{{"steps", 200}, {"steps", 200}, {"busy", 429}, {"gone", 404}, {"withdrawn", 200}} {
			require.NoError(t, Invoices.Send(ctx, queue, i))
		}
		require.NoError(t, later(ctx, queue, Invoice{"later", 200}))
		done := make(chan error, 1)
		go func() { done <- w.Run(ctx) }()
		time.Sleep(time.Hour)
		status := func(id string) (s dedupe.Status, attempt int) {
			rs, err := store.Get(ctx, []dedupe.Key{{Scope: "shop:invoice", Key: id}})
			require.NoError(t, err)
			if rs[0] == nil {
				return 0, 0
			}
			return rs[0].Status, rs[0].Attempt
		}
		for id, want := range map[string]dedupe.Status{"steps": dedupe.Done, "busy": dedupe.Done, "gone": dedupe.Failed, "withdrawn": dedupe.Failed, "later": 0} {
			got, _ := status(id)
			require.Equal(t, want, got, id)
		}
		require.Equal(t, int32(1), charges.Load(), "a step that is saved runs again")
		require.Equal(t, int32(2), mails.Load())
		_, attempts := status("busy")
		require.Equal(t, 1, attempts, "a Postpone is no attempt")
		sent, err := unlessSent(ctx, store, queue, Invoice{"steps", 200})
		require.NoError(t, err)
		require.False(t, sent)
		time.Sleep(7 * 24 * time.Hour)
		got, _ := status("later")
		require.Equal(t, dedupe.Done, got)
		require.NoError(t, operate(ctx, o, "invoices", "new"))
		stop()
		require.NoError(t, <-done)
	})
}

func TestNightly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		store, err := memstore.New(nil)
		require.NoError(t, err)
		queue, err := membroker.New(nil)
		require.NoError(t, err)
		done := make(chan error, 2)
		for range 2 {
			go func() { done <- nightly(ctx, store, queue) }()
		}
		time.Sleep(3 * 24 * time.Hour)
		d, err := queue.Depth(ctx)
		require.NoError(t, err)
		require.Equal(t, int64(3), d.Visible, "each night is sent by one of two processes")
		stop()
		require.NoError(t, <-done)
		require.NoError(t, <-done)
	})
}

// The row and the job are one transaction, and so are the job's effect and its end.
func TestInvoiceTx(t *testing.T) {
	pool, err := pgxpool.New(t.Context(), localstack.Postgres(t).URL)
	require.NoError(t, err)
	defer pool.Close()
	_, err = pool.Exec(t.Context(), "CREATE TABLE invoices (id text PRIMARY KEY, cents int NOT NULL, paid boolean NOT NULL DEFAULT false)")
	require.NoError(t, err)
	store, err := pgstore.New(pool, nil)
	require.NoError(t, err)
	require.NoError(t, store.Migrate(t.Context()))
	queue, err := pgbroker.New(pool, "invoices", nil)
	require.NoError(t, err)
	require.NoError(t, queue.Migrate(t.Context()))
	dead, err := pgbroker.New(pool, "invoices-dead", nil)
	require.NoError(t, err)
	sent := map[string]int{}
	for _, id := range []string{"A-1", "A-1", "A-2"} {
		err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
			return invoiceTx(t.Context(), tx, queue, Invoice{id, 900})
		})
		sent[id]++
		require.Equal(t, sent[id] > 1, err != nil, "%s: %v", id, err)
	}
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	pay := payInvoice(pool, store)
	w, err := invoiceWorker(store, queue, dead, func(ctx context.Context, j *onceq.Job, i Invoice) error {
		err := pay(ctx, j, i)
		if invoicesWhere(t, pool, "paid") == 2 {
			stop()
		}
		return err
	})
	require.NoError(t, err)
	require.NoError(t, w.Run(ctx))
	require.Equal(t, 2, invoicesWhere(t, pool, "paid"))
}

func invoicesWhere(t *testing.T, pool *pgxpool.Pool, where string) (n int) {
	t.Helper()
	require.NoError(t, pool.QueryRow(context.WithoutCancel(t.Context()), "SELECT count(*) FROM invoices WHERE "+where).Scan(&n))
	return n
}
