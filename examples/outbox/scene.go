package main

import (
	"context"
	"crypto/rand"
	"io"
	mathrand "math/rand/v2"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onceq/onceq/adapters/awssqs"
	"github.com/onceq/onceq/adapters/pgbroker"
	"github.com/onceq/onceq/dedupe/pgstore"
	"github.com/onceq/onceq/examples/internal/scene"
	"github.com/onceq/onceq/internal/child"
)

// This file owns the scene: processes of the service that are killed with kill -9, and the count at
// the end. run calls it, from one goroutine.

// assignment is what a process of the service is told.
type assignment struct {
	Database, Schema string
	Server, Queue    string // SQS
	Role             string // sell or work
	Outbox           bool   // sell with an outbox
}

const (
	sellers = 8 // goroutines of a process that sells
	kills   = 6
)

// play is a process of the service, until ctx ends.
func play(ctx context.Context, a assignment) error {
	s, store, err := open(ctx, a)
	if err != nil {
		return err
	}
	defer s.pool.Close()
	if a.Role == "work" {
		child.Tell("working")
		return s.work(ctx, store)
	}
	place := s.placeAndSend
	if a.Outbox {
		place = s.place
	}
	var all sync.WaitGroup
	for range sellers {
		all.Go(func() {
			for ctx.Err() == nil {
				id := rand.Text()
				child.Tell("placing %s", id)
				if err := place(ctx, id); err != nil {
					continue // a customer would be told to try again
				}
			}
		})
	}
	all.Wait()
	return nil
}

// open gives a process its ends.
func open(ctx context.Context, a assignment) (*service, *pgstore.Store, error) {
	c, err := pgxpool.ParseConfig(a.Database)
	if err != nil {
		return nil, nil, err
	}
	c.ConnConfig.RuntimeParams["search_path"], c.MaxConns = a.Schema, 10
	pool, err := pgxpool.NewWithConfig(ctx, c)
	if err != nil {
		return nil, nil, err
	}
	s := &service{pool: pool, pause: func() { <-time.After(mathrand.N(15 * time.Millisecond)) }}
	if s.outbox, err = pgbroker.New(pool, "outbox", &pgbroker.Options{Visibility: 2 * time.Second}); err != nil {
		return nil, nil, err
	}
	store, err := pgstore.New(pool, nil)
	if err != nil {
		return nil, nil, err
	}
	if err := s.outbox.Migrate(ctx); err != nil {
		return nil, nil, err
	}
	if err := store.Migrate(ctx); err != nil {
		return nil, nil, err
	}
	client := sqs.New(sqs.Options{
		BaseEndpoint: &a.Server, Region: "us-east-1",
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: "test", SecretAccessKey: "test"}, nil
		}),
	})
	s.queue, err = awssqs.New(client, a.Queue, &awssqs.Options{LongPoll: time.Second})
	return s, store, err
}

// killed lets processes sell and work, kills them in turn, and counts when all is quiet.
func killed(ctx context.Context, a assignment, errs io.Writer) (t scene.Tally, err error) {
	s, _, err := open(ctx, a)
	if err != nil {
		return t, err
	}
	defer s.pool.Close()
	if _, err := s.pool.Exec(ctx, schema); err != nil {
		return t, err
	}
	sell, work := a, a
	sell.Role, work.Role = "sell", "work"
	err = scene.Killed(ctx, errs, kills, []assignment{sell, work}, func() error { return scene.Quiet(ctx, s.outbox, s.queue) })
	if err != nil {
		return t, err
	}
	err = s.pool.QueryRow(ctx, `SELECT (SELECT count(*) FROM orders),
		(SELECT count(*) FROM orders o WHERE NOT EXISTS (SELECT FROM shipped s WHERE s.id = o.id)),
		(SELECT count(*) FROM shipped s WHERE NOT EXISTS (SELECT FROM orders o WHERE o.id = s.id)),
		(SELECT count(*) FROM (SELECT FROM shipped GROUP BY id HAVING count(*) > 1) x)`).Scan(&t.Orders, &t.Lost, &t.Ghosts, &t.Twice)
	return t, err
}
