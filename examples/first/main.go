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
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe/sqlitestore"
	_ "modernc.org/sqlite"
)

type order struct {
	ID    string
	Cents int
}

func charge(ctx context.Context, j *onceq.Job, o order) error {
	fmt.Printf("charge order %s: %d cents, idempotency key %s\n", o.ID, o.Cents, j.EffectKey("charge"))
	return nil
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()

	queue, dead := must(membroker.New(nil)), must(membroker.New(nil))
	store := must(sqlitestore.New(must(sql.Open("sqlite", sqlitestore.DSN("first.db"))), nil))
	check(store.Migrate(ctx))

	worker := must(onceq.New(onceq.Config{
		ProcessorConfig: onceq.ProcessorConfig{
			Handler: onceq.JSON(charge), Store: store, Scope: "orders", DeadLetter: dead, Logger: slog.Default(),
		},
		Broker: queue,
	}))
	check(onceq.Send(ctx, queue, []broker.Outgoing{
		{Body: []byte(`{"ID": "A-1", "Cents": 1250}`), Meta: &broker.Meta{Key: "A-1"}},
		{Body: []byte(`{"ID": "B-2", "Cents": 800}`), Meta: &broker.Meta{Key: "B-2"}},
		{Body: []byte(`{"ID": "A-1", "Cents": 1250}`), Meta: &broker.Meta{Key: "A-1"}},
	}))
	check(worker.Run(ctx))
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
