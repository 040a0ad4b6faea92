package main

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/pgbroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe/pgstore"
)

// This file owns what a user of the library writes: an order service whose processes place orders,
// relay their jobs and ship them. Its processes (scene.go) call it. Nothing is locked here, because
// the database decides.

const schema = `CREATE TABLE orders (id text PRIMARY KEY);
	CREATE TABLE shipped (id text)` // without a constraint, which would hide a second one

// service is the order service: one database, and a queue elsewhere.
type service struct {
	pool   *pgxpool.Pool
	outbox *pgbroker.Queue // in the database
	queue  broker.Broker   // where the workers are: SQS
	pause  func()          // so that a kill finds each gap
}

// place stores an order and puts its job into the outbox, in one transaction: both, or neither.
func (s *service) place(ctx context.Context, id string) error {
	return pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "INSERT INTO orders (id) VALUES ($1)", id); err != nil {
			return err
		}
		s.pause()
		m := onceq.Message("ship", id, []byte(id))
		if err := onceq.SendOne(ctx, s.outbox.Tx(tx), &m); err != nil {
			return err
		}
		s.pause()
		return nil
	})
}

// placeAndSend is what many write: the order is committed, and then its job is sent.
func (s *service) placeAndSend(ctx context.Context, id string) error {
	if _, err := s.pool.Exec(ctx, "INSERT INTO orders (id) VALUES ($1)", id); err != nil {
		return err
	}
	s.pause()
	m := onceq.Message("ship", id, []byte(id))
	return onceq.SendOne(ctx, s.queue, &m)
}

// relay sends on what is in the outbox.
func (s *service) relay() (*onceq.Worker, error) {
	p, err := onceq.NewProcessor(onceq.ProcessorConfig{
		Handler: onceq.Forward(s.queue), Store: onceq.NoStore, Scope: "outbox", Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return nil, err
	}
	return p.Worker(s.outbox, onceq.WorkerConfig{DeadLetter: onceq.KeepInQueue, Concurrency: 100, Visibility: 2 * time.Second})
}

// shipper does the jobs. The shipment and the record of its key are one transaction.
func (s *service) shipper(store *pgstore.Store) (*onceq.Worker, error) {
	p, err := onceq.NewProcessor(onceq.ProcessorConfig{
		Store: store, Scope: "ship", Lease: 2 * time.Second, Logger: slog.New(slog.DiscardHandler),
		Handler: onceq.HandlerFunc(func(ctx context.Context, j *onceq.Job) error {
			s.pause()
			return store.Commit(ctx, j, func(tx pgx.Tx) (any, error) {
				_, err := tx.Exec(ctx, "INSERT INTO shipped (id) VALUES ($1)", j.Key().Key)
				s.pause()
				return nil, err
			})
		}),
	})
	if err != nil {
		return nil, err
	}
	return p.Worker(s.queue, onceq.WorkerConfig{DeadLetter: onceq.KeepInQueue, Visibility: 2 * time.Second})
}

// work relays and ships, until ctx ends. The relay may run anywhere, and as often as you like: here
// it is in every process of the workers.
func (s *service) work(ctx context.Context, store *pgstore.Store) error {
	relay, err := s.relay()
	if err != nil {
		return err
	}
	shipper, err := s.shipper(store)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	errs := make([]error, 2)
	var both sync.WaitGroup
	for i, w := range []*onceq.Worker{relay, shipper} {
		both.Go(func() {
			defer stop() // one does not go on without the other
			errs[i] = w.Run(ctx)
		})
	}
	both.Wait()
	return errors.Join(errs...)
}
