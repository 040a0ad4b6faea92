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
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/onceq/onceq/internal/child"
	"github.com/onceq/onceq/sqsfake"
)

const usage = `startwithpostgres: DATABASE_URL is not set. It says where the orders, the invoices and the queue are:
  DATABASE_URL=sqlite:shop.db go run ./examples/startwithpostgres
  DATABASE_URL=postgres://user:password@localhost:5432/postgres go run ./examples/startwithpostgres
and QUEUE_URL, where the queue is in SQS instead: a queue's URL, or sqsfake for a server in memory:
  DATABASE_URL=sqlite:shop.db QUEUE_URL=sqsfake go run ./examples/startwithpostgres
On PostgreSQL it makes a schema of its own, and drops it in the end. A SQLite file stays.
`

func main() {
	if len(os.Args) == 2 {
		var a assignment
		err := json.Unmarshal([]byte(os.Args[1]), &a)
		if err == nil {
			slog.SetDefault(slog.New(slog.DiscardHandler)) // who is killed all the time has much to tell
			err = play(child.Follow(context.Background()), a)
		}
		end(err)
		return
	}
	database, queue := os.Getenv("DATABASE_URL"), os.Getenv("QUEUE_URL")
	if database == "" {
		fmt.Fprint(os.Stderr, usage)
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	_, err := run(ctx, os.Stdout, os.Stderr, database, queue)
	stop()
	end(err)
}

func end(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "startwithpostgres:", err)
		os.Exit(1)
	}
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
		var stop func()
		if a.Queue, stop, err = serve(ctx); err != nil {
			return t, err
		}
		defer stop()
	}
	if t, err = scene(ctx, a, errs); err != nil {
		return t, err
	}
	verdict := "each has one invoice"
	if !t.holds() {
		verdict = fmt.Sprintf("WRONG: %d have none, %d have two, and %d invoices are of no order", t.lost, t.twice, t.ghosts)
	}
	fmt.Fprintf(out, "jobs in %s: %d orders, %d kills -9: %s\n", t.where, t.orders, 2*kills, verdict)
	return t, nil
}

// apart makes a schema of the run's own, and answers the database's URL with it.
func apart(ctx context.Context, database string) (in string, drop func() error, err error) {
	u, err := url.Parse(database)
	if err != nil {
		return "", nil, err
	}
	conn, err := pgx.Connect(ctx, database)
	if err != nil {
		return "", nil, err
	}
	name := "onceq_start_" + strings.ToLower(rand.Text()[:8])
	if _, err := conn.Exec(ctx, "CREATE SCHEMA "+name); err != nil {
		_ = conn.Close(ctx)
		return "", nil, err
	}
	q := u.Query()
	q.Set("search_path", name)
	u.RawQuery = q.Encode()
	return u.String(), func() error {
		ctx := context.WithoutCancel(ctx)
		defer conn.Close(ctx) //nolint:errcheck // nothing depends on it
		_, err := conn.Exec(ctx, "DROP SCHEMA "+name+" CASCADE")
		return err
	}, nil
}

// serve has a queue in a server of SQS in this process.
func serve(ctx context.Context) (queue string, stop func(), err error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	server := sqsfake.New(nil)
	server.URL = "http://" + l.Addr().String()
	h := &http.Server{Handler: server, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = h.Serve(l) }()
	queue, err = server.CreateQueue("invoices", nil)
	return strings.Replace(queue, "://", "://test:test@", 1), func() {
		server.Close()
		_ = h.Close()
	}, err
}
