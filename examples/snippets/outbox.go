package snippets

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/pgbroker"
	"github.com/onceq/onceq/broker"
)

// placeOrder stores an order and its job in one transaction: both are there, or neither.
func placeOrder(ctx context.Context, pool *pgxpool.Pool, queue *pgbroker.Queue, id string, body []byte) error {
	err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "INSERT INTO orders (id) VALUES ($1)", id); err != nil {
			return err
		}
		m := onceq.Message("mail", id, body)
		return onceq.SendOne(ctx, queue.Tx(tx), &m)
	})
	if err == nil {
		queue.Wake() // where the worker is in this process
	}
	return err
}

// relayTo sends on what is in the outbox, until ctx ends.
func relayTo(ctx context.Context, outbox broker.Broker, sqs broker.Sender) error {
	relay, err := onceq.NewProcessor(onceq.ProcessorConfig{
		Handler: onceq.Forward(sqs), Store: onceq.NoStore, Scope: "outbox",
	})
	if err != nil {
		return err
	}
	w, err := relay.Worker(outbox, onceq.WorkerConfig{DeadLetter: onceq.KeepInQueue, Concurrency: 1000})
	if err != nil {
		return err
	}
	return w.Run(ctx)
}
