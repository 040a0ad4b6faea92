// Package sqstest is a small worker with its tests: read worker_test.go to see how to test one of
// your own.
//
//	go test -short ./examples/sqstest   in memory and in virtual time: no server, no network, no waiting
//	go test ./examples/sqstest          also on LocalStack and PostgreSQL, where they are found or can be started
package sqstest

import (
	"context"
	"errors"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/dedupe"
)

// Order is what a message asks for.
type Order struct {
	ID      string
	Address string
}

// Carrier takes parcels, and knows one that it was given before by its key.
type Carrier interface {
	Ship(ctx context.Context, key string, o Order) error
}

// ErrNoAddress is a mistake that no repetition cures.
var ErrNoAddress = errors.New("the order has no address")

// Ship is the handler.
func Ship(c Carrier) onceq.Handler {
	return onceq.JSON(func(ctx context.Context, j *onceq.Job, o Order) error {
		if o.Address == "" {
			return onceq.Permanent(ErrNoAddress)
		}
		return c.Ship(ctx, j.EffectKey("parcel"), o)
	})
}

// Jobs says how parcels are shipped, whatever the queue and the store are. That is what lets a test
// put others in their places.
func Jobs(c Carrier, store dedupe.Store) onceq.ProcessorConfig {
	return onceq.ProcessorConfig{
		Handler: Ship(c), Store: store, Scope: "parcels",
		Defaults: onceq.JobOptions{MaxAttempts: 5, Timeout: 10 * time.Minute},
	}
}
