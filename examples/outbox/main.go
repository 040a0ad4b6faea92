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
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/onceq/onceq/internal/child"
	"github.com/onceq/onceq/sqsfake"
)

func main() {
	if len(os.Args) == 2 {
		var a assignment
		err := json.Unmarshal([]byte(os.Args[1]), &a)
		if err == nil {
			err = play(child.Follow(context.Background()), a)
		}
		end(err)
		return
	}
	url := os.Getenv("DATABASE_URL")
	if url == "" {
		fmt.Fprintln(os.Stderr, "outbox: DATABASE_URL is not set: this example needs a PostgreSQL, such as\n"+
			"  docker run --rm -d -p 5432:5432 -e POSTGRES_PASSWORD=once postgres\n"+
			"  DATABASE_URL=postgres://postgres:once@localhost:5432/postgres go run ./examples/outbox\n"+
			"It makes schemas of its own and drops them in the end.")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	_, _, err := run(ctx, os.Stdout, os.Stderr, url)
	stop()
	end(err)
}

func end(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "outbox:", err)
		os.Exit(1)
	}
}

// run shows both ways on the database, and answers what came of each.
func run(ctx context.Context, out, errs io.Writer, database string) (before, with tally, err error) {
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
		if !t.holds() {
			verdict = fmt.Sprintf("WRONG: %d were never shipped, %d were shipped twice, and %d shipments are of no order", t.lost, t.twice, t.ghosts)
		}
		fmt.Fprintf(out, "  %d orders, %d kills -9: %s\n", t.orders, 2*kills, verdict)
	}
	return before, with, nil
}

// apart plays a scene in a schema of its own, with a queue of its own on a server of SQS in this
// process, and leaves nothing behind.
func apart(ctx context.Context, errs io.Writer, a assignment) (t tally, err error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return t, err
	}
	server := sqsfake.New(nil)
	server.URL = "http://" + l.Addr().String()
	h := &http.Server{Handler: server, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = h.Serve(l) }()
	defer h.Close()
	defer server.Close()
	a.Server = server.URL
	if a.Queue, err = server.CreateQueue("ship", nil); err != nil {
		return t, err
	}
	conn, err := pgx.Connect(ctx, a.Database)
	if err != nil {
		return t, err
	}
	defer conn.Close(context.WithoutCancel(ctx)) //nolint:errcheck // nothing depends on it
	a.Schema = "onceq_outbox_" + strings.ToLower(rand.Text()[:8])
	if _, err := conn.Exec(ctx, "CREATE SCHEMA "+a.Schema); err != nil {
		return t, err
	}
	defer func() {
		if _, e := conn.Exec(context.WithoutCancel(ctx), "DROP SCHEMA "+a.Schema+" CASCADE"); err == nil {
			err = e
		}
	}()
	return scene(ctx, a, errs)
}
