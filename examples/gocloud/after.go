package main

import (
	"context"
	"errors"

	"gocloud.dev/pubsub"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/gocloudpubsub"
	"github.com/onceq/onceq/dedupe/memstore"
)

// after is receive with onceq. The three calls gocloudpubsub.New, NewProcessor and Worker stand in
// the place of its loop. In earnest the store is a database, which all workers share.
func after(ctx context.Context, orders *pubsub.Subscription, ship func(context.Context, string) error) error {
	store, err := memstore.New(nil)
	if err != nil {
		return err
	}
	queue, err := gocloudpubsub.New(nil, orders, gocloudpubsub.Options{Visibility: deadline, Reopen: reopen})
	if err != nil {
		return err
	}
	jobs, err := onceq.NewProcessor(onceq.ProcessorConfig{
		Store: store, Scope: "orders", Key: gocloudpubsub.KeyOf,
		Handler: onceq.HandlerFunc(func(ctx context.Context, j *onceq.Job) error {
			return ship(ctx, string(j.Message.Body))
		}),
	})
	if err != nil {
		return err
	}
	worker, err := jobs.Worker(queue, onceq.WorkerConfig{DeadLetter: onceq.KeepInQueue, Concurrency: 2})
	if err != nil {
		return err
	}
	return errors.Join(worker.Run(ctx), queue.Close())
}

// reopen is asked when the subscription has failed for good. Mostly it is pubsub.OpenSubscription
// with the same URL; a queue in memory cannot be opened again.
func reopen(context.Context) (*pubsub.Subscription, error) {
	return nil, errors.New("the queue was in memory")
}
