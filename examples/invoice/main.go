// Command invoice writes invoices, one for each order, numbered without a gap.
//
// The trap: an idempotency key protects from the same job twice. It does not protect from two jobs
// that want the same invoice: the webhook says "order 7 is paid", and so does the night's catch-up,
// under another key. A check before the INSERT ("is there one?") is no protection, because two
// workers ask at the same time.
//
// The answer: the table's own constraint, UNIQUE (order_id), and the completion in the same
// transaction. INSERT … ON CONFLICT DO NOTHING tells by its row count who was first. The second
// worker finds the invoice, and completes its job with that number. In PostgreSQL, an INSERT that
// fails instead would abort the transaction. Then CompleteTx answers "current transaction is
// aborted" (25P02), whatever the program does with the error. postgres_test.go shows it.
//
//	go run ./examples/invoice
package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/sqlitestore"
	"github.com/onceq/onceq/dlq"
	"github.com/onceq/onceq/examples/internal/screen"
	_ "modernc.org/sqlite"
)

// This file owns the handler that writes an invoice, and the run that shows it. main and the tests
// call run, and the worker calls write. Nothing is locked, because the database's transaction
// decides. report.go prints the books.

const schema = `CREATE TABLE IF NOT EXISTS invoices (
	number   INTEGER PRIMARY KEY,
	order_id TEXT NOT NULL UNIQUE,
	cents    INTEGER NOT NULL
)`

type paid struct {
	Order string
	Cents int
}

type invoice struct{ Number int }

// office is the program's own work.
type office struct {
	db       *sql.DB
	complete func(context.Context, *sql.Tx, *onceq.Job, any) error // the store's CompleteTx
}

// write writes the order's invoice, or finds the one that there is, and completes the job, in one
// transaction. It is short: no mail, no PDF in here. In PostgreSQL two orders at once may want the
// same number: the second INSERT fails on it, all is rolled back, and that job is tried again.
func (o *office) write(ctx context.Context, j *onceq.Job, p paid) error {
	tx, err := o.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() //nolint:errcheck // after a commit there is nothing to roll back
	res, err := tx.ExecContext(ctx, `INSERT INTO invoices (number, order_id, cents)
		SELECT coalesce(max(number), 0) + 1, $1, CAST($2 AS INTEGER) FROM invoices WHERE true
		ON CONFLICT (order_id) DO NOTHING`, p.Order, p.Cents)
	if err != nil {
		return err
	}
	written, err := res.RowsAffected()
	if err != nil {
		return err
	}
	var inv invoice
	var cents int
	err = tx.QueryRowContext(ctx, `SELECT number, cents FROM invoices WHERE order_id = $1`, p.Order).Scan(&inv.Number, &cents)
	switch {
	case err != nil:
		return err
	case written == 0 && cents != p.Cents:
		// Two sources disagree: no invoice is changed by a program. The job is not done, nor can
		// repeating help.
		return onceq.Permanent(fmt.Errorf("invoice %d for order %s says %d cents, not %d", inv.Number, p.Order, cents, p.Cents))
	}
	if err := o.complete(ctx, tx, j, inv); err != nil {
		return err
	}
	return tx.Commit()
}

// news are what the queue brings: each from the webhook, some from the night's catch-up too.
var news = []struct {
	key string
	paid
}{
	{"webhook/a", paid{"order-1", 1250}},
	{"webhook/a", paid{"order-1", 1250}}, // the queue's duplicate
	{"webhook/b", paid{"order-2", 800}},
	{"catch-up/order-1", paid{"order-1", 1250}}, // another job, the same order
	{"catch-up/order-2", paid{"order-2", 880}},  // and one that disagrees
	{"catch-up/order-3", paid{"order-3", 500}},  // its webhook was lost
}

// run lets a worker do the news, and prints the books.
func run(ctx context.Context, out io.Writer, db *sql.DB) {
	queue, dead := must(membroker.New(nil)), must(membroker.New(nil))
	store := must(sqlitestore.New(db, nil))
	defer store.Close()
	check(store.Migrate(ctx))
	must(db.ExecContext(ctx, schema))
	o := &office{db, func(ctx context.Context, tx *sql.Tx, j *onceq.Job, result any) error {
		return store.CompleteTx(ctx, tx, j, result)
	}}
	for _, n := range news {
		check(onceq.SendOne(ctx, queue, &broker.Outgoing{Body: must(json.Marshal(n.paid)), Meta: &broker.Meta{Key: n.key}}))
	}
	work, stop := context.WithCancel(ctx)
	defer stop()
	p := must(onceq.NewProcessor(onceq.ProcessorConfig{
		Handler: onceq.JSON(o.write), Store: store, Scope: "invoices",
		Logger: slog.New(slog.DiscardHandler), Observer: &screen.Screen{Out: out, Left: len(news), Last: stop, Line: func(ctx context.Context, r *onceq.JobReport) string {
			what := r.Err
			if inv, status, err := onceq.Result[invoice](ctx, store, r.Key); err == nil && status == dedupe.Done {
				what = fmt.Sprintf("invoice %d", inv.Number) // it is kept with the key
			}
			return fmt.Sprintf("%-17s %-13s %s", dlq.Printable(r.Key.Key), r.Outcome, dlq.Printable(what))
		}},
	}))
	w := must(p.Worker(queue, onceq.WorkerConfig{
		DeadLetter:  dead,
		Concurrency: 1, // one after the other, so that the screen is easy to read
	}))
	check(w.Run(work))
	report(ctx, out, db)
}

func main() {
	dir := must(os.MkdirTemp("", "invoice"))
	defer func() { check(os.RemoveAll(dir)) }()
	db := must(sql.Open("sqlite", sqlitestore.DSN(filepath.Join(dir, "office.db"))))
	defer db.Close()
	run(context.Background(), os.Stdout, db)
}

func must[T any](v T, err error) T {
	check(err)
	return v
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
