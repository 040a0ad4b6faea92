// Command startwithpostgres is a shop that writes an invoice for each order. It starts with the
// database that it has, and its queue moves to SQS later, by one line.
//
// The trap: a queue is a system more to run, so many begin with a table of jobs of their own, and
// rewrite their producers and workers when they outgrow it.
//
// The answer: a queue in that database is a Broker as SQS is. The line that says where the queue is
// changes, and nothing else:
//
//	DATABASE_URL=sqlite:shop.db go run ./examples/startwithpostgres
//	DATABASE_URL=postgres://user:password@localhost:5432/postgres go run ./examples/startwithpostgres
//	DATABASE_URL=… QUEUE_URL=https://sqs.…/invoices go run ./examples/startwithpostgres
//
// README.md shows the line in each, and what changes in the promises.
package main

import (
	"context"
	"fmt"
	"io"
	"net/url"
	"os"
	"strings"

	"github.com/onceq/onceq/examples/internal/scene"
)

const usage = `startwithpostgres: DATABASE_URL is not set. It says where the orders, the invoices and the queue are:
  DATABASE_URL=sqlite:shop.db go run ./examples/startwithpostgres
  DATABASE_URL=postgres://user:password@localhost:5432/postgres go run ./examples/startwithpostgres
and QUEUE_URL, where the queue is in SQS instead: a queue's URL, or sqsfake for a server in memory:
  DATABASE_URL=sqlite:shop.db QUEUE_URL=sqsfake go run ./examples/startwithpostgres
On PostgreSQL it makes a schema of its own, and drops it in the end. A SQLite file stays.
`

func main() { scene.Main("startwithpostgres", play, direct) }

func direct(ctx context.Context) error {
	database, queue := os.Getenv("DATABASE_URL"), os.Getenv("QUEUE_URL")
	if database == "" {
		fmt.Fprint(os.Stderr, usage)
		os.Exit(2)
	}
	_, err := run(ctx, os.Stdout, os.Stderr, database, queue)
	return err
}

// run lets the shop live for a while on the places that the URLs name, and answers what came of it.
func run(ctx context.Context, out, errs io.Writer, database, queue string) (t tally, err error) {
	a := assignment{Database: database, Queue: queue}
	if scheme, _, _ := strings.Cut(database, ":"); strings.HasPrefix(scheme, "postgres") {
		var drop func() error
		if a.Database, drop, err = apart(ctx, database); err != nil {
			return t, fmt.Errorf("DATABASE_URL: %w", err)
		}
		defer func() {
			if e := drop(); err == nil {
				err = e
			}
		}()
	}
	if queue == "sqsfake" {
		_, queueURL, stop, err := scene.SQS(ctx, "invoices")
		if err != nil {
			return t, err
		}
		defer stop()
		a.Queue = strings.Replace(queueURL, "://", "://test:test@", 1)
	}
	if t, err = killed(ctx, a, errs); err != nil {
		return t, err
	}
	verdict := "each has one invoice"
	if !t.Holds() {
		verdict = fmt.Sprintf("WRONG: %d have none, %d have two, and %d invoices are of no order", t.Lost, t.Twice, t.Ghosts)
	}
	fmt.Fprintf(out, "jobs in %s: %d orders, %d kills -9: %s\n", t.where, t.Orders, 2*kills, verdict)
	return t, nil
}

// apart makes a schema of the run's own, and answers the database's URL with it.
func apart(ctx context.Context, database string) (in string, drop func() error, err error) {
	u, err := url.Parse(database)
	if err != nil {
		return "", nil, err
	}
	name, drop, err := scene.Schema(ctx, database, "onceq_start_")
	if err != nil {
		return "", nil, err
	}
	q := u.Query()
	q.Set("search_path", name)
	u.RawQuery = q.Encode()
	return u.String(), drop, nil
}
