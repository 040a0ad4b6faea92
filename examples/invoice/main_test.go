package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe/memstore"
	"github.com/onceq/onceq/dedupe/sqlitestore"
	"github.com/onceq/onceq/onceqtest"
)

// open opens a database of the test's own, within its bubble.
func open(t *testing.T) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", sqlitestore.DSN(filepath.Join(t.TempDir(), "office.db")))
	require.NoError(t, err)
	t.Cleanup(func() { db.Close() })
	return db
}

// books are the numbers and orders of all invoices.
func books(t *testing.T, db *sql.DB) (lines []string) {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), `SELECT number, order_id FROM invoices ORDER BY number`)
	require.NoError(t, err)
	defer rows.Close()
	for rows.Next() {
		var number int
		var order string
		require.NoError(t, rows.Scan(&number, &order))
		lines = append(lines, fmt.Sprint(number, " ", order))
	}
	require.NoError(t, rows.Err())
	return lines
}

func TestProgram(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := open(t)
		var out strings.Builder
		run(t.Context(), &out, db)
		require.Equal(t, []string{"1 order-1", "2 order-2", "3 order-3"}, books(t, db), "%s", &out)
		require.Contains(t, out.String(), "catch-up/order-1  done          invoice 1", "the other job has the same invoice")
		require.Contains(t, out.String(), "catch-up/order-2  failed        invoice 2 for order order-2 says 800 cents, not 880")

		// The program once more: all is done already, but for what was wrong.
		run(t.Context(), &out, db)
		require.Len(t, books(t, db), 3)
	})
}

// desk is a rig with the office's handler on SQLite.
type desk struct {
	*onceqtest.Rig
	db *sql.DB
	// beforeCommit is called when all is written and nothing is committed.
	beforeCommit func() error
}

func newDesk(t *testing.T) *desk {
	t.Helper()
	d := &desk{db: open(t), beforeCommit: func() error { return nil }}
	store, err := sqlitestore.New(d.db, nil)
	require.NoError(t, err)
	t.Cleanup(func() { store.Close() })
	require.NoError(t, store.Migrate(t.Context()))
	_, err = d.db.ExecContext(t.Context(), schema)
	require.NoError(t, err)
	o := &office{d.db, func(ctx context.Context, tx *sql.Tx, j *onceq.Job, result any) error {
		if err := store.CompleteTx(ctx, tx, j, result); err != nil {
			return err
		}
		return d.beforeCommit()
	}}
	d.Rig = onceqtest.New(t, onceq.ProcessorConfig{Handler: onceq.JSON(o.write), Store: store}, nil)
	return d
}

func (d *desk) send(key, order string) {
	d.Send(broker.Outgoing{Body: []byte(`{"Order": "` + order + `", "Cents": 100}`), Meta: &broker.Meta{Key: key}})
}

// A worker dies at any point: one invoice, and no number is missing.
func TestCrash(t *testing.T) {
	for _, at := range []onceqtest.Fault{
		{Op: onceqtest.Claim, Kind: onceqtest.CrashBefore},
		{Op: onceqtest.Claim, Kind: onceqtest.CrashAfter},
		{Op: onceqtest.Settle, Kind: onceqtest.CrashBefore},
		{Op: onceqtest.Settle, Kind: onceqtest.CrashAfter},
		{Op: onceqtest.Ack, Kind: onceqtest.CrashBefore},
		{Op: onceqtest.Ack, Kind: onceqtest.CrashAfter},
	} {
		t.Run(at.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newDesk(t)
				d.At(at)
				d.send("webhook/a", "order-1")
				require.True(t, d.Deliver().Crashed)
				d.Advance(time.Minute)
				if at.Op != onceqtest.Ack || at.Kind != onceqtest.CrashAfter {
					d.Deliver()
				}
				require.Equal(t, onceq.OutcomeAlreadyDone, d.Redeliver().Outcome)
				d.send("webhook/b", "order-2")
				require.Equal(t, onceq.OutcomeDone, d.Deliver().Outcome)
				require.Equal(t, []string{"1 order-1", "2 order-2"}, books(t, d.db))
			})
		})
	}
}

// The worker dies between the INSERT and the COMMIT: nothing is there, and the next one writes
// number 1.
func TestKilledBeforeCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t)
		d.beforeCommit = func() error { d.Kill(); return errors.New("killed") }
		d.send("webhook/a", "order-1")
		require.True(t, d.Deliver().Crashed)
		require.Empty(t, books(t, d.db))
		d.beforeCommit = func() error { return nil }
		d.Advance(time.Minute)
		require.Equal(t, onceq.OutcomeDone, d.Deliver().Outcome)
		require.Equal(t, []string{"1 order-1"}, books(t, d.db))
	})
}

// Two jobs that want the same invoice, both at once, again and again: one invoice for each order.
// Without the constraint, with a check instead, there are two: that is the trap, and the proof that
// the test can fail.
func TestTwoJobsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t)
		store, err := sqlitestore.New(d.db, nil)
		require.NoError(t, err)
		defer store.Close()
		o := &office{d.db, func(ctx context.Context, tx *sql.Tx, j *onceq.Job, result any) error {
			return store.CompleteTx(ctx, tx, j, result)
		}}
		var ms []broker.Outgoing
		for n := range 40 {
			body := fmt.Sprintf(`{"Order": "order-%d", "Cents": 100}`, n%10)
			ms = append(ms, broker.Outgoing{Body: []byte(body), Meta: &broker.Meta{Key: fmt.Sprint("job ", n)}})
		}
		work(t, onceq.ProcessorConfig{Handler: onceq.JSON(o.write), Store: store}, ms)
		require.Len(t, books(t, d.db), 10)

		_, err = d.db.ExecContext(t.Context(), `CREATE TABLE naive (order_id TEXT)`)
		require.NoError(t, err)
		var both sync.WaitGroup
		both.Add(2)
		naive := onceq.HandlerFunc(func(ctx context.Context, j *onceq.Job) error {
			if count(t, d.db) > 0 {
				return nil
			}
			both.Done()
			both.Wait() // the other one asks now
			_, err := d.db.ExecContext(ctx, `INSERT INTO naive VALUES ('order-1')`)
			return err
		})
		keys, err := memstore.New(nil)
		require.NoError(t, err)
		work(t, onceq.ProcessorConfig{Handler: naive, Store: keys}, []broker.Outgoing{
			{Meta: &broker.Meta{Key: "webhook/a"}}, {Meta: &broker.Meta{Key: "catch-up/order-1"}},
		})
		require.Equal(t, 2, count(t, d.db))
	})
}

func count(t *testing.T, db *sql.DB) (n int) {
	t.Helper()
	require.NoError(t, db.QueryRowContext(t.Context(), `SELECT count(*) FROM naive`).Scan(&n))
	return n
}

// work runs a whole worker over the messages, each of which must get done.
func work(t *testing.T, c onceq.ProcessorConfig, ms []broker.Outgoing) {
	t.Helper()
	queue, err := membroker.New(nil)
	require.NoError(t, err)
	dead, err := membroker.New(nil)
	require.NoError(t, err)
	require.NoError(t, onceq.Send(t.Context(), queue, ms))
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := &tally{left: len(ms), last: stop}
	c.Scope, c.Observer = "invoices", ended
	p, err := onceq.NewProcessor(c)
	require.NoError(t, err)
	w, err := p.Worker(queue, onceq.WorkerConfig{DeadLetter: dead})
	require.NoError(t, err)
	require.NoError(t, w.Run(ctx))
	d, err := dead.Depth(t.Context())
	require.NoError(t, err)
	require.Zero(t, d.Visible)
}

// tally waits until so many jobs are done.
type tally struct {
	last func()
	mu   sync.Mutex
	left int
}

func (s *tally) JobStarted(ctx context.Context, _ *onceq.Job) context.Context { return ctx }

func (s *tally) JobEnded(_ context.Context, r *onceq.JobReport) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.Outcome == "done" {
		s.left--
	}
	if s.left == 0 {
		s.last()
	}
}
