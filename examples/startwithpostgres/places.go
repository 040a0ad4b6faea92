package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"
	_ "modernc.org/sqlite"             // the driver "sqlite"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/awssqs"
	"github.com/onceq/onceq/adapters/pgbroker"
	"github.com/onceq/onceq/adapters/sqlitebroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe/pgstore"
	"github.com/onceq/onceq/dedupe/sqlitestore"
)

// This file owns the places that the shop's rows and queue can be in: one constructor each. Each
// process of the service calls open once, at its start.

// open opens the shop at the two URLs, and makes the tables that are missing. Without a URL of a
// queue the jobs stay in the database's.
func open(ctx context.Context, databaseURL, queueURL string) (*shop, error) {
	var d database
	var err error
	switch scheme, rest, _ := strings.Cut(databaseURL, ":"); scheme {
	case "postgres", "postgresql":
		d, err = openPostgres(ctx, databaseURL)
	case "sqlite":
		d, err = openSQLite(ctx, rest)
	default:
		err = fmt.Errorf("it begins with %q, want postgres://user:password@host/name or sqlite:shop.db", scheme+":")
	}
	if err != nil {
		return nil, fmt.Errorf("DATABASE_URL: %w", err)
	}
	s := &shop{d, d.queue}
	if queueURL != "" {
		if s.jobs, err = openSQS(ctx, queueURL); err != nil {
			s.close()
			return nil, fmt.Errorf("QUEUE_URL: %w", err)
		}
	}
	if _, err := s.db.ExecContext(ctx, schema); err != nil {
		s.close()
		return nil, fmt.Errorf("DATABASE_URL: making the shop's tables: %w", err)
	}
	return s, nil
}

// openPostgres has the worker's calls and the handlers' transactions in pools of their own, so that
// no ack waits for a connection that a handler holds.
func openPostgres(ctx context.Context, databaseURL string) (database, error) {
	pool, err := pgxpool.New(ctx, databaseURL)
	if err != nil {
		return database{}, err
	}
	queue, errQueue := pgbroker.New(pool, "invoices", &pgbroker.Options{Visibility: visibility})
	store, errStore := pgstore.New(pool, nil)
	db, errDB := sql.Open("pgx", databaseURL)
	if err := errors.Join(errQueue, errStore, errDB); err != nil {
		pool.Close()
		return database{}, err
	}
	d := database{
		db: db, store: store, queue: queue,
		within: func(tx *sql.Tx) broker.Sender { return queue.TxSQL(tx) },
		complete: func(ctx context.Context, tx *sql.Tx, j *onceq.Job) error {
			return store.CompleteSQL(ctx, tx, j, nil)
		},
		wake: queue.Wake,
		close: func() {
			_ = db.Close()
			pool.Close()
		},
	}
	if err := errors.Join(queue.Migrate(ctx), store.Migrate(ctx)); err != nil {
		d.close()
		return database{}, err
	}
	return d, nil
}

// openSQLite has all in one file, for processes on one host. Two connections are enough: the
// handlers' transactions take turns anyway, for one at a time may write.
func openSQLite(ctx context.Context, path string) (database, error) {
	db, err := sql.Open("sqlite", sqlitestore.DSN(path))
	if err != nil {
		return database{}, err
	}
	db.SetMaxOpenConns(2)
	store, err := sqlitestore.New(db, nil)
	if err != nil {
		return database{}, errors.Join(err, db.Close())
	}
	closeAll := func() {
		_ = store.Close()
		_ = db.Close()
	}
	queue, err := sqlitebroker.New(store, "invoices", &sqlitebroker.Options{Visibility: visibility})
	if err == nil {
		err = errors.Join(store.Migrate(ctx), queue.Migrate(ctx))
	}
	if err != nil {
		closeAll()
		return database{}, err
	}
	return database{
		db: db, store: store, queue: queue,
		within: func(tx *sql.Tx) broker.Sender { return queue.Tx(tx) },
		complete: func(ctx context.Context, tx *sql.Tx, j *onceq.Job) error {
			return store.CompleteTx(ctx, tx, j, nil)
		},
		wake: queue.Wake, close: closeAll,
	}, nil
}

// openSQS has the keys and the region of the environment, or what else the SDK finds. A server on
// this machine has its keys in the URL: http://test:test@127.0.0.1:4566/000000000000/invoices.
func openSQS(ctx context.Context, queueURL string) (broker.Broker, error) {
	u, err := url.Parse(queueURL)
	if err != nil || u.Host == "" {
		return nil, fmt.Errorf("%q is no URL of a queue, such as https://sqs.eu-central-1.amazonaws.com/123456789012/invoices", queueURL)
	}
	var from []func(*config.LoadOptions) error
	if u.User != nil {
		secret, _ := u.User.Password()
		from = append(from, config.WithRegion("us-east-1"),
			config.WithCredentialsProvider(credentials.NewStaticCredentialsProvider(u.User.Username(), secret, "")))
		u.User = nil
	}
	c, err := config.LoadDefaultConfig(ctx, from...)
	if err != nil {
		return nil, err
	}
	server := u.Scheme + "://" + u.Host
	client := sqs.NewFromConfig(c, func(o *sqs.Options) { o.BaseEndpoint = &server })
	return awssqs.New(client, u.String(), nil)
}
