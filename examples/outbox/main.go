// Command outbox is an order service whose processes are killed with kill -9, wherever they are: an
// order that was committed is shipped once, and no other is.
//
// The trap: the order is committed, and then the process dies, before it sends the job. The
// customer has paid, and nobody ships. Sent first, the job ships an order that was rolled back.
//
// The answer: an outbox. The job goes into a queue in the order's own database (pgbroker), in the
// order's transaction: both are there, or neither. A relay, which is a Worker whose handler is
// Forward, sends it on to SQS. It may die anywhere, too, because each send is of the same job,
// whose key the worker there does once.
//
//	DATABASE_URL=postgres://user:password@localhost:5432/postgres go run ./examples/outbox
package main

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/onceq/onceq/examples/internal/scene"
)

func main() { scene.Main("outbox", play, direct) }

func direct(ctx context.Context) error {
	url := os.Getenv("DATABASE_URL")
	if url == "" {
		fmt.Fprintln(os.Stderr, "outbox: DATABASE_URL is not set: this example needs a PostgreSQL, such as\n"+
			"  docker run --rm -d -p 5432:5432 -e POSTGRES_PASSWORD=once postgres\n"+
			"  DATABASE_URL=postgres://postgres:once@localhost:5432/postgres go run ./examples/outbox\n"+
			"It makes schemas of its own and drops them in the end.")
		os.Exit(2)
	}
	_, _, err := run(ctx, os.Stdout, os.Stderr, url)
	return err
}

// run shows both ways on the database, and answers what came of each.
func run(ctx context.Context, out, errs io.Writer, database string) (before, with scene.Tally, err error) {
	for _, outbox := range []bool{false, true} {
		what, t := "the job is sent after the order's COMMIT", &before
		if outbox {
			what, t = "the job is put into the outbox, in the order's transaction", &with
		}
		fmt.Fprintln(out, what)
		if *t, err = apart(ctx, errs, assignment{Database: database, Outbox: outbox}); err != nil {
			return before, with, err
		}
		verdict := "each was shipped once"
		if !t.Holds() {
			verdict = fmt.Sprintf("WRONG: %d were never shipped, %d were shipped twice, and %d shipments are of no order", t.Lost, t.Twice, t.Ghosts)
		}
		fmt.Fprintf(out, "  %d orders, %d kills -9: %s\n", t.Orders, 2*kills, verdict)
	}
	return before, with, nil
}

// apart plays a scene in a schema of its own, with a queue of its own on a server of SQS in this
// process, and leaves nothing behind.
func apart(ctx context.Context, errs io.Writer, a assignment) (t scene.Tally, err error) {
	server, queue, stop, err := scene.SQS(ctx, "ship")
	if err != nil {
		return t, err
	}
	defer stop()
	schema, drop, err := scene.Schema(ctx, a.Database, "onceq_outbox_")
	if err != nil {
		return t, err
	}
	defer func() {
		if e := drop(); err == nil {
			err = e
		}
	}()
	a.Server, a.Queue, a.Schema = server, queue, schema
	return killed(ctx, a, errs)
}
