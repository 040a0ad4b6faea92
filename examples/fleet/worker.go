package main

import (
	"context"
	"database/sql"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/dedupe/sqlitestore"
	"github.com/onceq/onceq/examples/internal/shop"
	"github.com/onceq/onceq/internal/child"
)

// work is a worker process with the library, until ctx ends.
func work(ctx context.Context, a assignment) error {
	db, err := shop.OpenLedger(a.Ledger)
	if err != nil {
		return err
	}
	defer db.Close()
	store, err := sqlitestore.New(db, nil)
	if err != nil {
		return err
	}
	defer store.Close()
	api := client(a.Endpoint)
	queue, err := open(api, a.Queue)
	if err != nil {
		return err
	}
	dead, err := open(api, a.Dead)
	if err != nil {
		return err
	}

	c := &charger{a: a, db: db, store: store}
	w, err := onceq.New(onceq.Config{
		ProcessorConfig: onceq.ProcessorConfig{
			Handler:    onceq.JSON(c.charge),
			Store:      store,
			Scope:      "charge",
			DeadLetter: dead,
			Defaults: onceq.JobOptions{
				MaxAttempts: a.Attempts,
				Backoff:     func(int, error) time.Duration { return 0 }, // a demo has no time; SQS counts in whole seconds
			},
			Lease:    a.Visibility,
			Owner:    a.Name,
			Observer: teller{},
		},
		Broker:     queue,
		Visibility: a.Visibility,
	})
	if err != nil {
		return err
	}
	return w.Run(ctx)
}

// charger is the user's own code.
type charger struct {
	a     assignment
	db    *sql.DB
	store *sqlitestore.Store
}

// charge charges an order: the charge and the record that the order is done are one transaction. What is slow is done
// before it begins, for while it is open nobody else writes to the file.
func (c *charger) charge(ctx context.Context, j *onceq.Job, o shop.Order) error {
	if err := o.Check(); err != nil {
		return onceq.Permanent(err)
	}
	if err := c.a.Bank.Ask(ctx, o); err != nil {
		return err
	}
	tx, err := c.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() //nolint:errcheck // after a commit there is nothing to roll back
	if err := shop.InsertCharge(ctx, tx, o, o.ItemCents(c.a.Mended), c.a.Name); err != nil {
		return err
	}
	if err := c.store.CompleteTx(ctx, tx, j, nil); err != nil {
		return err
	}
	return tx.Commit()
}

// teller tells the demo what goes on, for its report.
type teller struct{}

func (teller) JobStarted(ctx context.Context, _ *onceq.Job) context.Context {
	child.Tell(lineStarted)
	return ctx
}

func (teller) JobEnded(_ context.Context, r *onceq.TimingRecord) {
	if r.Process > 0 {
		child.Tell(lineReturned)
	}
	child.Tell(lineEnded+" %s %d", r.Outcome, r.Beats)
}
