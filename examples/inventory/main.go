// Command inventory writes counts of a shelf into a warehouse's books, a database that is not the
// store's.
//
// The trap: a call that was cancelled is not a call undone. A worker's update hangs in the network,
// or the worker itself is suspended beyond its lease. Another takes over, counts anew and writes.
// Then the first update arrives, and the books hold an old count. No lease can prevent that,
// because it is over when the late write comes.
//
// The answer: the books compare. Each row keeps the fence of the claim that wrote it, job.Fence(),
// which rises with every claim of a key, and an update says WHERE fence <= its own. Fences of two
// jobs do not compare. Between them the count's own number, the version, decides in the same way. A
// late write changes no row.
//
//	go run ./examples/inventory
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
	"strings"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe/memstore"
	"github.com/onceq/onceq/examples/internal/screen"
	_ "modernc.org/sqlite"
)

// This file owns the counting, and the scene in which an update comes late. main and the tests call
// the scene, and the worker calls count. Nothing is locked here: the books, which two attempts use
// at once, have a lock of their own (books.go).

const (
	schema = `CREATE TABLE shelves (sku TEXT PRIMARY KEY, pieces INTEGER NOT NULL,
		version INTEGER NOT NULL DEFAULT 0, fence INTEGER NOT NULL DEFAULT 0)`

	// naive believes who comes last.
	naive = `UPDATE shelves SET pieces = $2, version = $3, fence = $4 WHERE sku = $1`

	// fenced lets the same claim write again, because its answer may be lost. Everything older
	// changes nothing.
	fenced = `UPDATE shelves SET pieces = $2, version = $3, fence = $4
		WHERE sku = $1 AND (version < $3 OR (version = $3 AND fence <= $4))`
)

type count struct {
	SKU     string
	Version int // of the counts of a shelf, as the producer numbers them
}

// key names one count of one shelf.
func (c count) key() string { return fmt.Sprint(c.SKU, "/", c.Version) }

// counter is the program's own work.
type counter struct {
	books  *books
	update string
	look   func(sku string) (pieces int) // onto the shelf
	out    io.Writer
}

func (c *counter) count(ctx context.Context, j *onceq.Job, n count) error {
	pieces := c.look(n.SKU)
	fmt.Fprintf(c.out, "  worker:  attempt %d counts %d and writes that\n", j.Attempt, pieces)
	changed, err := c.books.exec(ctx, c.update, n.SKU, pieces, n.Version, j.Fence())
	if err != nil {
		return err // written or not? The next attempt counts anew.
	}
	if changed == 0 {
		// A newer count is there, or a newer claim of this one. In both cases nothing is left to
		// do. If it is the claim, the worker finds that it is overtaken, and settles nothing.
		fmt.Fprintf(c.out, "  worker:  attempt %d is overtaken\n", j.Attempt)
	}
	return nil
}

// scene counts a shelf of 5 pieces. The first update hangs; while it does, two pieces are sold.
func scene(ctx context.Context, out io.Writer, db *sql.DB, update string) (pieces int) {
	queue, dead, store := must(membroker.New(nil)), must(membroker.New(nil)), must(memstore.New(nil))
	must(db.ExecContext(ctx, schema))
	must(db.ExecContext(ctx, `INSERT INTO shelves (sku, pieces) VALUES ('bolt', 9)`))
	shelf := 5
	b := &books{db: db}
	late := b.holdNext()
	c := &counter{books: b, update: update, out: out, look: func(string) int { return shelf }}

	n := count{"bolt", 1}
	check(onceq.SendOne(ctx, queue, &broker.Outgoing{Body: must(json.Marshal(n)), Meta: &broker.Meta{Key: n.key()}}))
	work, stop := context.WithCancel(ctx)
	defer stop()
	p := must(onceq.NewProcessor(onceq.ProcessorConfig{
		Handler: onceq.JSON(c.count), Store: store, Scope: "counts",
		Defaults: onceq.JobOptions{
			Timeout: 50 * time.Millisecond,
			Backoff: func(int, error) time.Duration { return 0 },
		},
		Logger: slog.New(slog.DiscardHandler), Observer: &screen.Screen{Out: out, Left: 1, Last: stop, Line: func(_ context.Context, r *onceq.JobReport) string {
			line := fmt.Sprintf("  worker:  attempt %d ends: %s", r.Attempt, strings.TrimSpace(string(r.Outcome)+" "+r.ErrClass))
			if r.Outcome == onceq.OutcomeRetried {
				shelf = 3
				line += "\n  shelf:   two pieces are sold, three are left"
			}
			return line
		}},
	}))
	w := must(p.Worker(queue, onceq.WorkerConfig{DeadLetter: dead, Concurrency: 1}))
	check(w.Run(work))

	changed := late.arrive()
	fmt.Fprintf(out, "  network: the update of attempt 1 arrives after all: %d rows changed\n", changed)
	check(db.QueryRowContext(ctx, `SELECT pieces FROM shelves WHERE sku = 'bolt'`).Scan(&pieces))
	verdict := "right"
	if pieces != shelf {
		verdict = "WRONG: the shop sells what is not there"
	}
	fmt.Fprintf(out, "  books:   %d pieces, on the shelf are %d: %s\n", pieces, shelf, verdict)
	return pieces
}

func main() {
	dir := must(os.MkdirTemp("", "inventory"))
	defer func() { check(os.RemoveAll(dir)) }()
	run(context.Background(), os.Stdout, func(name string) *sql.DB {
		return must(sql.Open("sqlite", filepath.Join(dir, name)))
	})
}

// run shows both updates, and gives what the books hold in the end.
func run(ctx context.Context, out io.Writer, open func(name string) *sql.DB) (afterNaive, afterFenced int) {
	fmt.Fprintln(out, "UPDATE … WHERE sku = 'bolt'")
	db := open("naive.db")
	afterNaive = scene(ctx, out, db, naive)
	check(db.Close())
	fmt.Fprintln(out, "\nUPDATE … WHERE sku = 'bolt' AND (version < $3 OR (version = $3 AND fence <= $4))")
	db = open("fenced.db")
	afterFenced = scene(ctx, out, db, fenced)
	check(db.Close())
	return afterNaive, afterFenced
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
