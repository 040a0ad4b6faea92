package main

import (
	"context"
	"database/sql"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/dedupe/sqlitestore"
	"github.com/onceq/onceq/examples/internal/shop"
)

// serve is a worker with the library: its own connections to the ledger, its own store, its own view of the queues.
func (d *demo) serve(ctx context.Context, p *process) error {
	db, err := shop.OpenLedger(d.o.Ledger)
	if err != nil {
		return err
	}
	defer db.Close()
	store, err := sqlitestore.New(db, nil)
	if err != nil {
		return err
	}
	defer store.Close()

	c := &charger{d: d, p: p, db: db, store: store}
	w, err := onceq.New(onceq.Config{
		ProcessorConfig: onceq.ProcessorConfig{
			Handler:    onceq.Chain(onceq.JSON(c.charge), p.mortal),
			Store:      mortalStore{store, p},
			Scope:      "charge",
			DeadLetter: mortalQueue{d.dead, p, &d.counts},
			Defaults: onceq.JobOptions{
				MaxAttempts: d.o.Attempts(),
				Backoff:     func(int, error) time.Duration { return d.o.Visibility / 10 },
			},
			Lease:         d.o.Visibility,
			SettleTimeout: 2 * d.o.Visibility,
			Owner:         p.name,
			Observer:      tally{&d.counts, p},
		},
		Broker:     mortalQueue{d.queue, p, &d.counts},
		Visibility: d.o.Visibility,
	})
	if err != nil {
		return err
	}
	return w.Run(ctx)
}

// charger is the user's own code.
type charger struct {
	d     *demo
	p     *process
	db    *sql.DB
	store *sqlitestore.Store
}

// charge charges an order: the charge and the record that the order is done are one transaction. What is slow is done
// before it begins, for while it is open nobody else writes to the file.
func (c *charger) charge(ctx context.Context, j *onceq.Job, o shop.Order) error {
	if err := o.Check(); err != nil {
		return onceq.Permanent(err)
	}
	if err := c.d.o.Bank.Ask(ctx, o); err != nil {
		return err
	}
	c.p.pass(afterBank)

	tx, err := c.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() //nolint:errcheck // after a commit there is nothing to roll back
	c.p.pass(beforeInsert)
	if err := shop.InsertCharge(ctx, tx, o, o.ItemCents(c.d.mended.Load()), c.p.name); err != nil {
		return err
	}
	c.p.pass(afterInsert)
	if err := c.store.CompleteTx(ctx, tx, j, nil); err != nil {
		return err
	}
	c.p.pass(beforeCommit)
	if err := tx.Commit(); err != nil {
		return err
	}
	c.p.pass(afterCommit)
	return nil
}

// mortal ends the handlers' contexts, and with them their transactions, when the process is killed.
func (p *process) mortal(h onceq.Handler) onceq.Handler {
	return onceq.HandlerFunc(func(ctx context.Context, j *onceq.Job) error {
		ctx, cancel := p.alive(ctx)
		defer cancel()
		return h.Handle(ctx, j)
	})
}

// tally is the Observer that counts what live workers do.
type tally struct {
	n *counts
	p *process
}

func (t tally) JobStarted(ctx context.Context, _ *onceq.Job) context.Context {
	t.n.attempts.Add(1)
	return ctx
}

func (t tally) JobEnded(_ context.Context, r *onceq.TimingRecord) {
	if t.p.isDead() {
		return
	}
	switch r.Outcome {
	case "already-done":
		t.n.alreadyDone.Add(1)
	case "in-progress":
		t.n.inProgress.Add(1)
	}
}
