package main

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/dedupe/sqlitestore"
	_ "modernc.org/sqlite"
)

type Order struct {
	ID    string
	Cents int
}

// Orders is a kind of job: producers and workers share its type, its payload and its key.
var Orders = onceq.Kind[Order]{Type: "order", Key: func(o Order) string { return o.ID }}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	queue, dead := must(membroker.New(nil)), must(membroker.New(nil))
	store := must(sqlitestore.New(must(sql.Open("sqlite", sqlitestore.DSN("first.db"))), nil))
	check(store.Migrate(ctx))

	check(Orders.Send(ctx, queue, Order{"A-1", 1250}, Order{"B-2", 800}, Order{"A-1", 1250}))

	var mux onceq.Mux
	Orders.On(&mux, func(ctx context.Context, j *onceq.Job, o Order) error {
		fmt.Printf("charge order %s: %d cents, idempotency key %s\n", o.ID, o.Cents, j.EffectKey("charge"))
		return nil
	})
	p := must(onceq.NewProcessor(onceq.ProcessorConfig{
		Handler: &mux, Store: store, Scope: "shop", Logger: slog.Default(),
	}))
	worker := must(p.Worker(queue, onceq.WorkerConfig{DeadLetter: dead}))
	check(worker.Run(ctx)) // until ctrl-C or SIGTERM, and then the drain
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
