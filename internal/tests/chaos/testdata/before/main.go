// Before leaves a store and a queue of its time in every state that they have, and waits to be
// killed: TestUpgrade builds it in an earlier tree.
package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "modernc.org/sqlite"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/pgbroker"
	"github.com/onceq/onceq/adapters/sqlitebroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/dynamostore"
	"github.com/onceq/onceq/dedupe/pgstore"
	"github.com/onceq/onceq/dedupe/sqlitestore"
	"github.com/onceq/onceq/internal/child"
)

func main() {
	if err := run(child.Follow(context.Background()), os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "before:", err)
		os.Exit(1)
	}
}

type queue interface {
	broker.Broker
	Migrate(ctx context.Context) error
}

func run(ctx context.Context, database, file string) error {
	orders, letters, store, err := open(ctx, database, file)
	if err != nil {
		return err
	}
	mux := &onceq.Mux{}
	mux.On("charge", onceq.HandlerFunc(handle), nil)
	mux.On("careful", onceq.HandlerFunc(handle), &onceq.JobOptions{Interrupted: dedupe.Park})
	p, err := onceq.NewProcessor(onceq.ProcessorConfig{
		Scope: "up", Owner: "before", Store: store, Handler: mux, Logger: slog.New(slog.DiscardHandler),
		Lease: 10 * time.Second, CallTimeout: 2 * time.Second, SettleTimeout: 2 * time.Second,
		Defaults: onceq.JobOptions{Backoff: func(int, error) time.Duration { return 20 * time.Second }},
	})
	if err != nil {
		return err
	}
	w, err := p.Worker(orders, onceq.WorkerConfig{DeadLetter: letters, Concurrency: 2, Visibility: 10 * time.Second})
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	for _, part := range [][]broker.Outgoing{
		{job("charge", "done"), job("charge", "fails"), job("charge", "retries"), job("careful", "parks")},
		{job("charge", "hangs"), job("careful", "lost")}, // both slots are taken from here on
	} {
		if err := onceq.Send(ctx, orders, part); err != nil {
			return err
		}
		if err := settles(ctx, store, part); err != nil {
			return err
		}
	}
	var rest []broker.Outgoing
	for n := range 10 {
		rest = append(rest, job("charge", fmt.Sprint("waits-", n)))
	}
	for n := range 4 {
		m := job("charge", fmt.Sprint("group-", n))
		m.Group = "g"
		rest = append(rest, m)
	}
	later := job("charge", "later")
	later.Delay = 15 * time.Second
	rest = append(rest, later, job("charge", "done"), job("charge", "fails"))
	if err := onceq.Send(ctx, orders, rest); err != nil {
		return err
	}
	child.Tell("ready")
	return <-ended
}

func job(typ, key string) broker.Outgoing {
	return broker.Outgoing{Body: []byte("42"), Attributes: map[string]string{"tenant": "a"}, Meta: &broker.Meta{Type: typ, Key: key}}
}

func handle(ctx context.Context, j *onceq.Job) error {
	switch j.Key().Key {
	case "done":
		return j.SetResult([]byte("paid"))
	case "fails":
		return onceq.Permanent(errors.New("no such customer"))
	case "retries":
		return errors.New("not yet")
	case "parks":
		return onceq.Unknown(errors.New("no answer"))
	}
	<-ctx.Done()
	return ctx.Err()
}

// settles waits until no job is without a record, and those that end have ended.
func settles(ctx context.Context, s dedupe.Store, ms []broker.Outgoing) error {
	var keys []dedupe.Key
	for _, m := range ms {
		keys = append(keys, dedupe.Key{Scope: "up:" + m.Meta.Type, Key: m.Meta.Key})
	}
	for {
		rs, err := s.Get(ctx, keys)
		if err != nil {
			return err
		}
		open := false
		for i, r := range rs {
			hangs := keys[i].Key == "hangs" || keys[i].Key == "lost" && r != nil && r.Started
			open = open || r == nil || r.Status == dedupe.Claimed && !hangs
		}
		if !open {
			return nil
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// open makes the tables, as that version does: a store on the database, and two queues beside it, or
// in the file where the database holds no queues.
func open(ctx context.Context, database, file string) (orders, letters queue, store dedupe.Store, err error) {
	if strings.HasPrefix(database, "postgres") {
		pool, err := pgxpool.New(ctx, database)
		if err != nil {
			return nil, nil, nil, err
		}
		s, err := pgstore.New(pool, nil)
		if err == nil {
			err = s.Migrate(ctx)
		}
		if err != nil {
			return nil, nil, nil, err
		}
		orders, err1 := pgbroker.New(pool, "orders", nil)
		letters, err2 := pgbroker.New(pool, "letters", nil)
		if err = errors.Join(err1, err2); err == nil {
			err = orders.Migrate(ctx)
		}
		return orders, letters, s, err
	}
	db, err := sql.Open("sqlite", sqlitestore.DSN(file))
	if err != nil {
		return nil, nil, nil, err
	}
	s, err := sqlitestore.New(db, nil)
	if err == nil {
		err = s.Migrate(ctx)
	}
	if err != nil {
		return nil, nil, nil, err
	}
	o, err1 := sqlitebroker.New(s, "orders", nil)
	l, err2 := sqlitebroker.New(s, "letters", nil)
	if err = errors.Join(err1, err2); err == nil {
		err = o.Migrate(ctx)
	}
	if store = s; err == nil && strings.HasPrefix(database, "{") {
		store, err = table(ctx, database)
	}
	return o, l, store, err
}

func table(ctx context.Context, database string) (dedupe.Store, error) {
	var at struct {
		URL, Region, Records string
		Keys                 aws.Credentials
	}
	if err := json.Unmarshal([]byte(database), &at); err != nil {
		return nil, err
	}
	s, err := dynamostore.New(dynamodb.New(dynamodb.Options{
		BaseEndpoint: &at.URL, Region: at.Region,
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) { return at.Keys, nil }),
	}), at.Records, nil)
	if err != nil {
		return nil, err
	}
	return s, s.CreateTable(ctx)
}
