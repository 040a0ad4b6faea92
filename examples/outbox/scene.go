package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"os"
	"os/exec"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onceq/onceq/adapters/awssqs"
	"github.com/onceq/onceq/adapters/pgbroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe/pgstore"
	"github.com/onceq/onceq/internal/child"
)

// This file owns the scenes: processes of the service that are killed with kill -9, and the count
// at the end. run calls scene, from one goroutine. The lines of a process come in a goroutine of
// its own, which only adds to a channel.

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

// start runs a process of the service, and waits until it has begun with something.
func start(ctx context.Context, a assignment, errs io.Writer) (*child.Child, error) {
	text, err := json.Marshal(a)
	if err != nil {
		return nil, err
	}
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(exe, string(text)) //nolint:gosec,noctx // this program; how it ends is told by child
	cmd.Stderr = errs
	begun := make(chan struct{}, 1)
	c, err := child.Start(cmd, func(string) {
		select {
		case begun <- struct{}{}:
		default:
		}
	})
	if err != nil {
		return nil, err
	}
	select {
	case <-begun:
		return c, nil
	case <-c.Done():
		return nil, fmt.Errorf("a process has ended: %w", c.Err())
	case <-ctx.Done():
		c.Kill()
		<-c.Done()
		return nil, ctx.Err()
	}
}

// tally is what came of the orders.
type tally struct{ orders, lost, ghosts, twice int }

func (t tally) holds() bool { return t.lost+t.ghosts+t.twice == 0 }

// scene lets processes sell and work, kills them in turn, and counts when all is quiet.
func scene(ctx context.Context, a assignment, errs io.Writer) (t tally, err error) {
	s, _, err := open(ctx, a)
	if err != nil {
		return t, err
	}
	defer s.pool.Close()
	if _, err := s.pool.Exec(ctx, schema); err != nil {
		return t, err
	}
	crew := make([]*child.Child, 2)
	defer func() {
		for _, c := range crew {
			if c != nil {
				c.Kill()
				<-c.Done()
			}
		}
	}()
	for i, role := range []string{"sell", "work"} {
		a.Role = role
		if crew[i], err = start(ctx, a, errs); err != nil {
			return t, err
		}
	}
	for n := range 2 * kills {
		<-time.After(50*time.Millisecond + mathrand.N(100*time.Millisecond))
		crew[n%2].Kill()
		<-crew[n%2].Done()
		a.Role = []string{"sell", "work"}[n%2]
		if crew[n%2], err = start(ctx, a, errs); err != nil {
			return t, err
		}
	}
	crew[0].Kill()
	<-crew[0].Done()
	if err := s.quiet(ctx); err != nil {
		return t, err
	}
	err = s.pool.QueryRow(ctx, `SELECT (SELECT count(*) FROM orders),
		(SELECT count(*) FROM orders o WHERE NOT EXISTS (SELECT FROM shipped s WHERE s.id = o.id)),
		(SELECT count(*) FROM shipped s WHERE NOT EXISTS (SELECT FROM orders o WHERE o.id = s.id)),
		(SELECT count(*) FROM (SELECT FROM shipped GROUP BY id HAVING count(*) > 1) x)`).Scan(&t.orders, &t.lost, &t.ghosts, &t.twice)
	return t, err
}

// quiet waits until both queues are empty.
func (s *service) quiet(ctx context.Context) error {
	for {
		left := int64(0)
		for _, q := range []broker.Broker{s.outbox, s.queue} {
			counted, _ := broker.As[broker.Depther](q)
			d, err := counted.Depth(ctx)
			if err != nil {
				return err
			}
			left += d.Visible + d.InFlight + d.Delayed
		}
		if left == 0 {
			return nil
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("%d messages are left: %w", left, ctx.Err())
		}
	}
}
