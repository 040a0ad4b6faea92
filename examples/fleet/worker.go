package main

import (
	"context"
	"log/slog"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/examples/internal/shop"
	"github.com/onceq/onceq/internal/child"
)

// work is a worker process with the library, until ctx ends.
func work(ctx context.Context, a assignment) error {
	t, err := openTill(a.Ledger, a.Store)
	if err != nil {
		return err
	}
	defer t.close()
	queue, dead, err := open(ctx, a.place, t)
	if err != nil {
		return err
	}

	c := &charger{a, t}
	config := onceq.ProcessorConfig{
		Handler: onceq.JSON(c.charge),
		Store:   t.store(),
		Scope:   "charge",
		Defaults: onceq.JobOptions{
			MaxAttempts: a.Attempts,
			Backoff:     func(int, error) time.Duration { return 0 }, // a demo has no time to wait
		},
		Lease:    a.Visibility,
		Owner:    a.Name,
		Logger:   slog.New(slog.DiscardHandler), // a worker tells the demo by its Observer
		Observer: teller{},
	}
	a.Drill.set(&config)
	p, err := onceq.NewProcessor(config)
	if err != nil {
		return err
	}
	w, err := p.Worker(queue, onceq.WorkerConfig{DeadLetter: dead, Visibility: a.Visibility})
	if err != nil {
		return err
	}
	return w.Run(ctx)
}

// charger is the user's own code.
type charger struct {
	a    assignment
	till till
}

// charge charges an order: the charge and the record that the order is done are one transaction, in
// sqlite.go, postgres.go or dynamodb.go. What is
// slow is done before it begins.
func (c *charger) charge(ctx context.Context, j *onceq.Job, o shop.Order) error {
	if err := o.Check(); err != nil {
		return onceq.Permanent(err)
	}
	if err := c.a.Drill.ask(j); err != nil {
		return err
	}
	if err := c.a.Bank.Ask(ctx, o); err != nil {
		return err
	}
	return c.till.charge(ctx, j, o, o.ItemCents(c.a.Mended), c.a.Name)
}

// teller tells the demo what goes on, for its report.
type teller struct{}

func (teller) JobStarted(ctx context.Context, _ *onceq.Job) context.Context {
	child.Tell(lineStarted)
	return ctx
}

func (teller) JobEnded(_ context.Context, r *onceq.JobReport) {
	if r.Process > 0 {
		child.Tell(lineReturned)
	}
	child.Tell(lineEnded+" %s %d", r.Outcome, r.Beats)
}
