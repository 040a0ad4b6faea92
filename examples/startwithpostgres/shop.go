package main

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
)

// This file owns the shop: orders, and an invoice for each. Nothing in it knows where its queue is,
// so nothing in it changes when that does (places.go). Its processes (scene.go) call it, from many
// goroutines. Nothing is locked here, because the database decides.

const schema = `CREATE TABLE IF NOT EXISTS orders (id TEXT PRIMARY KEY);
	CREATE TABLE IF NOT EXISTS invoices (order_id TEXT)` // no constraint, which would hide a second one

// visibility is short because the processes here are killed all the time. Leave out the fields that
// it is set in: 30 s is right for most.
const visibility = 2 * time.Second

// shop is one process of the service.
type shop struct {
	database
	jobs broker.Broker // the queue that the workers read: that of the database, or SQS
}

// database is what the shop needs of PostgreSQL, or of SQLite.
type database struct {
	db    *sql.DB
	store dedupe.Store
	queue broker.Broker
	// within sends to queue as a part of the transaction.
	within func(*sql.Tx) broker.Sender
	// complete records in the transaction that the job is done.
	complete func(context.Context, *sql.Tx, *onceq.Job) error
	// wake has the queue look at once, after a COMMIT.
	wake  func()
	close func()
}

// place stores an order and sends its job, in one transaction: both are there, or neither.
func (s *shop) place(ctx context.Context, id string) error {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() //nolint:errcheck // after a commit there is nothing to roll back
	if _, err := tx.ExecContext(ctx, "INSERT INTO orders (id) VALUES ($1)", id); err != nil {
		return err
	}
	job := onceq.Message("invoice", id, []byte(id))
	if err := onceq.SendOne(ctx, s.within(tx), &job); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	s.wake()
	return nil
}

// invoice writes the invoice, and that the job is done, in one transaction: whatever comes twice,
// and whoever is killed, an order has one invoice.
func (s *shop) invoice(ctx context.Context, j *onceq.Job) error {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() //nolint:errcheck // after a commit there is nothing to roll back
	if _, err := tx.ExecContext(ctx, "INSERT INTO invoices (order_id) VALUES ($1)", j.Key().Key); err != nil {
		return err
	}
	if err := s.complete(ctx, tx, j); err != nil {
		return err
	}
	return tx.Commit()
}

// work writes invoices until ctx ends. Where the workers read SQS, the database's queue is an
// outbox, and a relay runs beside them.
func (s *shop) work(ctx context.Context) error {
	p, err := onceq.NewProcessor(onceq.ProcessorConfig{
		Handler: onceq.HandlerFunc(s.invoice), Store: s.store, Scope: "invoice", Lease: visibility,
	})
	if err != nil {
		return err
	}
	w, err := p.Worker(s.jobs, onceq.WorkerConfig{DeadLetter: onceq.KeepInQueue, Visibility: visibility})
	if err != nil {
		return err
	}
	workers := []*onceq.Worker{w}
	if s.jobs != s.queue {
		r, err := s.relay()
		if err != nil {
			return err
		}
		workers = append(workers, r)
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	errs := make([]error, len(workers))
	var all sync.WaitGroup
	for i, w := range workers {
		all.Go(func() {
			defer stop() // one does not go on without the other
			errs[i] = w.Run(ctx)
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// relay sends on what is in the database's queue.
func (s *shop) relay() (*onceq.Worker, error) {
	p, err := onceq.NewProcessor(onceq.ProcessorConfig{
		Handler: onceq.Forward(s.jobs), Store: onceq.NoStore, Scope: "outbox",
	})
	if err != nil {
		return nil, err
	}
	return p.Worker(s.queue, onceq.WorkerConfig{DeadLetter: onceq.KeepInQueue, Concurrency: 100, Visibility: visibility})
}
