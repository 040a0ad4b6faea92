// Command stock deducts orders from a stock in PostgreSQL, each once.
//
// The trap: the UPDATE is committed, and then the worker dies, or the answer to COMMIT is lost,
// before the record says that the order is done. The next worker deducts it again. A record that is
// written first loses the order instead: it is skipped, and was never deducted.
//
// The answer: the deduction and the record are one transaction, CompleteTx. Both are there or
// neither, whatever crashes. What the handler returns after its COMMIT does not matter, because the
// worker asks the store. UPDATE … WHERE n >= $1 never goes below zero. If it changes no row, the
// order is refused for good: Permanent.
//
//	DATABASE_URL=postgres://user:password@localhost:5432/postgres go run ./examples/stock
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe/pgstore"
	"github.com/onceq/onceq/dlq"
	"github.com/onceq/onceq/examples/internal/screen"
)

// This file owns the handler that deducts, and the scene in which an answer is lost. main, which
// the test calls too, calls run, and the worker calls deduct, one at a time. Nothing is locked
// here, because the database locks the row. schema.go makes the schema.

const schema = `CREATE TABLE stock (sku text PRIMARY KEY, n integer NOT NULL CHECK (n >= 0))`

type order struct {
	ID, SKU string
	Pieces  int
}

// storeman is the program's own work.
type storeman struct {
	pool     *pgxpool.Pool
	complete func(context.Context, pgx.Tx, *onceq.Job, any) error // the store's CompleteTx
	commit   func(context.Context, pgx.Tx) error
}

// deduct takes the order's pieces from the stock and completes the job, in one transaction.
func (s *storeman) deduct(ctx context.Context, j *onceq.Job, o order) error {
	tx, err := s.pool.Begin(ctx)
	if err != nil {
		return err
	}
	defer tx.Rollback(context.WithoutCancel(ctx)) //nolint:errcheck // after a commit there is nothing to roll back
	tag, err := tx.Exec(ctx, `UPDATE stock SET n = n - $1 WHERE sku = $2 AND n >= $1`, o.Pieces, o.SKU)
	switch {
	case err != nil:
		return err
	case tag.RowsAffected() == 0:
		return onceq.Permanent(soldOut{o})
	}
	if err := s.complete(ctx, tx, j, nil); err != nil {
		return err
	}
	return s.commit(ctx, tx)
}

// soldOut has a class of its own, so that its dead letters can be replayed when there is stock
// again.
type soldOut struct{ order }

func (s soldOut) Error() string    { return fmt.Sprintf("%s: not %d of %s left", s.ID, s.Pieces, s.SKU) }
func (soldOut) ErrorClass() string { return "sold-out" }

const inStock = 20

// orders are what is sent; order-1 twice. The answer to order-2's COMMIT is lost.
var orders = []order{{"order-1", "bolt", 3}, {"order-2", "bolt", 4}, {"order-3", "bolt", 2}, {"order-4", "bolt", 50}, {"order-1", "bolt", 3}}

// scene works the orders off and returns how many pieces are left. If together is set, the record
// is in the transaction. If not, the worker writes it after the handler.
func scene(ctx context.Context, out io.Writer, pool *pgxpool.Pool, store *pgstore.Store, scope string, together bool) (left int) {
	queue, dead := must(membroker.New(nil)), must(membroker.New(nil))
	must(pool.Exec(ctx, `INSERT INTO stock VALUES ('bolt', $1) ON CONFLICT (sku) DO UPDATE SET n = excluded.n`, inStock))
	lose := true
	s := &storeman{
		pool:     pool,
		complete: func(context.Context, pgx.Tx, *onceq.Job, any) error { return nil },
	}
	if together {
		s.complete = func(ctx context.Context, tx pgx.Tx, j *onceq.Job, result any) error {
			return store.CompleteTx(ctx, tx, j, result)
		}
	}
	handler := onceq.JSON(func(ctx context.Context, j *onceq.Job, o order) error {
		s.commit = func(ctx context.Context, tx pgx.Tx) error {
			err := tx.Commit(ctx)
			if err == nil && o.ID == "order-2" && lose {
				lose = false
				return errors.New("unexpected EOF: committed or not?")
			}
			return err
		}
		return s.deduct(ctx, j, o)
	})
	for _, o := range orders {
		check(onceq.SendOne(ctx, queue, &broker.Outgoing{Body: must(json.Marshal(o)), Meta: &broker.Meta{Key: o.ID}}))
	}
	work, stop := context.WithCancel(ctx)
	defer stop()
	p := must(onceq.NewProcessor(onceq.ProcessorConfig{
		Handler: handler, Store: store, Scope: scope,
		Defaults: onceq.JobOptions{Backoff: func(int, error) time.Duration { return 50 * time.Millisecond }},
		Logger:   slog.New(slog.DiscardHandler), Observer: &screen.Screen{Out: out, Left: len(orders), Last: stop, Line: func(_ context.Context, r *onceq.JobReport) string {
			return strings.TrimRight(fmt.Sprintf("  %s %-12s %s", dlq.Printable(r.Key.Key), r.Outcome, dlq.Printable(r.Err)), " ")
		}},
	}))
	w := must(p.Worker(queue, onceq.WorkerConfig{
		DeadLetter:  dead,
		Concurrency: 1, // one after the other, so that the screen is easy to read
	}))
	check(w.Run(work))
	check(pool.QueryRow(ctx, `SELECT n FROM stock WHERE sku = 'bolt'`).Scan(&left))
	verdict := "right"
	if want := inStock - 3 - 4 - 2; left != want {
		verdict = fmt.Sprintf("WRONG, %d are on the shelf", want)
	}
	fmt.Fprintf(out, "  stock: %d bolts of %d are left: %s\n", left, inStock, verdict)
	return left
}

// run shows both ways on the database of pool, and answers what is left after each.
func run(ctx context.Context, out io.Writer, pool *pgxpool.Pool) (apart, together int) {
	store := must(pgstore.New(pool, nil))
	check(store.Migrate(ctx))
	must(pool.Exec(ctx, schema))
	fmt.Fprintln(out, "the record after the transaction")
	apart = scene(ctx, out, pool, store, "apart", false)
	fmt.Fprintln(out, "\nthe record in the transaction (CompleteTx)")
	together = scene(ctx, out, pool, store, "together", true)
	return apart, together
}

func main() {
	ctx := context.Background()
	url := os.Getenv("DATABASE_URL")
	if url == "" {
		fmt.Fprintln(os.Stderr, "stock: DATABASE_URL is not set: this example needs a PostgreSQL, such as\n"+
			"  docker run --rm -d -p 5432:5432 -e POSTGRES_PASSWORD=once postgres\n"+
			"  DATABASE_URL=postgres://postgres:once@localhost:5432/postgres go run ./examples/stock\n"+
			"It makes a schema of its own and drops it in the end.")
		os.Exit(2)
	}
	pool, drop := ownSchema(ctx, url)
	defer drop()
	run(ctx, os.Stdout, pool)
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
