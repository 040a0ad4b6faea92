// Command orders is a whole worker on SQS and PostgreSQL, for messages of a producer that does not
// use onceq. docs/worker-sqs-postgres.md shows it to the letter.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/awssqs"
	"github.com/onceq/onceq/adapters/healthonceq"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/pgstore"
)

// Order is the body of a message.
type Order struct {
	ID     string `json:"order_id"`
	SKU    string `json:"sku"`
	Pieces int    `json:"pieces"`
}

// orderKey names the job by its order, because the producer gives it no key.
func orderKey(m *broker.Message) (dedupe.Key, error) {
	var o Order
	if err := json.Unmarshal(m.Body, &o); err != nil || o.ID == "" {
		return dedupe.Key{}, errors.New("no order_id in the body")
	}
	return dedupe.Key{Key: o.ID}, nil
}

// deduct takes the pieces from stock, and ends the job in the same transaction.
func deduct(pool *pgxpool.Pool, store *pgstore.Store) onceq.Handler {
	return onceq.JSON(func(ctx context.Context, j *onceq.Job, o Order) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			tag, err := tx.Exec(ctx, "UPDATE stock SET n = n - $1 WHERE sku = $2 AND n >= $1", o.Pieces, o.SKU)
			if err != nil {
				return err // tried again
			}
			if tag.RowsAffected() == 0 { // no retry helps: a dead letter
				return onceq.Permanent(fmt.Errorf("not %d of %s in stock", o.Pieces, o.SKU))
			}
			return store.CompleteTx(ctx, tx, j, nil)
		})
	})
}

func main() {
	slog.SetDefault(slog.New(slog.NewJSONHandler(os.Stderr, nil)))
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()

	aws := must(config.LoadDefaultConfig(ctx)) // AWS_REGION and the rights of the role
	client := sqs.NewFromConfig(aws)
	queue := must(awssqs.New(client, os.Getenv("QUEUE_URL"), nil))
	dead := must(awssqs.New(client, os.Getenv("DEAD_LETTER_QUEUE_URL"), nil))
	_, problems, err := queue.Check(ctx, awssqs.CheckOptions{MaxAttempts: onceq.DefaultMaxAttempts, Retention: onceq.DefaultRetention})
	if err != nil {
		slog.Warn("the queue's settings could not be read", "error", err)
	}
	for _, problem := range problems {
		slog.Warn("queue", "problem", problem)
	}

	url := os.Getenv("DATABASE_URL")
	pool := must(pgxpool.New(ctx, url))
	// The store has connections of its own, so that handlers never starve its heartbeats.
	store := must(pgstore.New(must(pgxpool.New(ctx, url)), nil))
	check(store.Migrate(ctx))

	p := must(onceq.NewProcessor(onceq.ProcessorConfig{
		Handler: deduct(pool, store), Key: orderKey,
		Store: store, Scope: "orders", Logger: slog.Default(),
		Defaults: onceq.JobOptions{Timeout: time.Minute},
	}))
	worker := must(p.Worker(queue, onceq.WorkerConfig{DeadLetter: dead}))
	health := &http.Server{
		Addr: cmp.Or(os.Getenv("HTTP_ADDR"), ":8080"), Handler: healthonceq.Handler(worker),
		ReadHeaderTimeout: 5 * time.Second,
	}
	go func() { slog.Info("health", "ended", health.ListenAndServe()) }()
	check(worker.Run(ctx)) // until SIGTERM, then a drain of 25 s at most
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
