package onceq_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/memstore"
)

// Batches serve an entry point of your own, where somebody else receives and acks. Here it is a
// function that is called by HTTP with one message, and answers with a status. Each delivery ends
// in a Disposition.
func ExampleBatches_Process() {
	dead, store := inMemoryBatches()
	p := mustBatches(onceq.NewProcessor(onceq.ProcessorConfig{
		Handler: onceq.HandlerFunc(func(ctx context.Context, j *onceq.Job) error {
			if j.Attempt == 1 {
				return onceq.RetryAfter(time.Minute, errors.New("the ledger is locked"))
			}
			return nil
		}),
		Key: func(m *broker.Message) (dedupe.Key, error) {
			return dedupe.Key{Key: m.Attributes["event-id"]}, nil
		},
		Store: store, Scope: "ledger",
	}))
	batches := mustBatches(p.Batches(onceq.BatchConfig{DeadLetter: dead}))

	push := func(ctx context.Context, event string) (status int) {
		m := &broker.Message{ID: "push", Attributes: map[string]string{"event-id": event}}
		until := time.Now().Add(30 * time.Second) // when the caller gives up
		batches.Process(ctx, []onceq.Delivery{{Message: m, Until: until}}, nil, func(_ int, d onceq.Disposition) {
			fmt.Println(d.Action, d.Delay, d.Outcome, d.Record.Outcome)
			status = 503
			if d.Action == onceq.Ack {
				status = 204
			}
		})
		return status
	}
	for range 3 {
		fmt.Println(push(context.Background(), "event-7"))
	}
	// Output:
	// nack 1m0s won retried
	// 503
	// ack 0s won done
	// 204
	// ack 0s already-done already-done
	// 204
}

// inMemoryBatches makes what the example runs on: a queue for dead letters and a store.
func inMemoryBatches() (dead *membroker.Broker, store *memstore.Store) {
	return mustBatches(membroker.New(nil)), mustBatches(memstore.New(nil))
}

func mustBatches[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}
