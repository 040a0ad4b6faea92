package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onceq/onceq/adapters/pgbroker"
	"github.com/onceq/onceq/adapters/sqlitebroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe/sqlitestore"
	"github.com/onceq/onceq/examples/internal/shop"
)

// This file owns the queues that are tables: in PostgreSQL, and in the ledger's SQLite file. Each
// process of the fleet opens its own ends of them, and the demo's process empties them before a
// run. Nothing is locked here, because the database decides.

// The table of messages. In PostgreSQL it is in the demo's own schema.
const (
	messagesTable         = "onceq_messages"
	postgresMessagesTable = postgresSchema + "." + messagesTable
)

// tables are the places of a run whose queues are in the database at url; made makes the table and
// removes what a run before has left.
type tables struct {
	kind, url, shown string
	made             func(ctx context.Context, p place) error
}

func (s tables) name() string { return s.shown }

func (s tables) make(ctx context.Context, o *shop.Settings) (place, error) {
	p := place{Service: s.kind, Endpoint: s.url, Queue: queueName, Dead: queueName + "-dead"}
	if s.kind == "sqlite" {
		p.Endpoint = o.Ledger
	}
	if o.Naive {
		p.MaxReceives = shop.NaiveReceives
	}
	return p, s.made(ctx, p)
}

func (s tables) queues(ctx context.Context, p place, t till) (queue, dead counted, err error) {
	q, d, err := openTable(ctx, p, t)
	if err != nil {
		return nil, nil, err
	}
	queue, ok := q.(counted)
	dead, too := d.(counted)
	if !ok || !too {
		return nil, nil, errors.New("a queue cannot tell its depth")
	}
	return queue, dead, nil
}

func openTable(ctx context.Context, p place, t till) (queue, dead broker.Broker, err error) {
	if p.Service == "postgres" {
		return openPostgres(ctx, p, t)
	}
	return openSQLite(ctx, p, t)
}

// servePostgres serves nothing: it finds the server that the environment names.
func servePostgres(context.Context) (service, error) {
	url, err := named("postgres", "queue", "QUEUE")
	if err != nil {
		return nil, err
	}
	return postgresAt(url)
}

func postgresAt(url string) (service, error) {
	c, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", variables["postgres"], err)
	}
	return tables{"postgres", url, server(c) + ", table " + postgresMessagesTable, makePostgres}, nil
}

func makePostgres(ctx context.Context, p place) error {
	pool, err := pgxpool.New(ctx, p.Endpoint)
	if err != nil {
		return err
	}
	defer pool.Close()
	q, err := pgbroker.New(pool, p.Queue, &pgbroker.Options{Table: postgresMessagesTable})
	if err != nil {
		return err
	}
	if err := q.Migrate(ctx); err != nil {
		return err
	}
	_, err = pool.Exec(ctx, "DELETE FROM "+postgresMessagesTable+" WHERE queue IN ($1, $2)", p.Queue, p.Dead)
	return err
}

// openPostgres leaves its pool open as long as the process, because a worker that drains still
// acks.
func openPostgres(ctx context.Context, p place, _ till) (queue, dead broker.Broker, err error) {
	pool, err := pgxpool.New(context.WithoutCancel(ctx), p.Endpoint)
	if err != nil {
		return nil, nil, err
	}
	o := &pgbroker.Options{Table: postgresMessagesTable, MaxReceives: p.MaxReceives}
	if p.MaxReceives > 0 {
		o.DeadLetters = p.Dead
	}
	if queue, err = pgbroker.New(pool, p.Queue, o); err != nil {
		return nil, nil, err
	}
	dead, err = pgbroker.New(pool, p.Dead, &pgbroker.Options{Table: postgresMessagesTable})
	return queue, dead, err
}

func serveSQLite(context.Context) (service, error) {
	return tables{"sqlite", "", "SQLite, in the ledger's file", makeSQLite}, nil
}

func makeSQLite(ctx context.Context, p place) error {
	db, store, err := openWriter(p.Endpoint)
	if err != nil {
		return err
	}
	defer db.Close()
	defer store.Close()
	q, err := sqlitebroker.New(store, p.Queue, nil)
	if err != nil {
		return err
	}
	if err := q.Migrate(ctx); err != nil {
		return err
	}
	_, err = db.ExecContext(ctx, "DELETE FROM "+messagesTable+" WHERE queue IN (?, ?)", p.Queue, p.Dead)
	return err
}

func openWriter(path string) (*sql.DB, *sqlitestore.Store, error) {
	db, err := shop.OpenLedger(path)
	if err != nil {
		return nil, nil, err
	}
	store, err := sqlitestore.New(db, nil)
	if err != nil {
		return nil, nil, errors.Join(err, db.Close())
	}
	return db, store, nil
}

// openSQLite has the queues write through the store of the till, where that is in the same file: a
// claim and an ack that come together are one commit.
func openSQLite(_ context.Context, p place, t till) (queue, dead broker.Broker, err error) {
	var store *sqlitestore.Store
	if t, ok := t.(*sqliteTill); ok {
		store = t.s
	} else {
		if _, store, err = openWriter(p.Endpoint); err != nil {
			return nil, nil, err
		}
	}
	o := &sqlitebroker.Options{MaxReceives: p.MaxReceives}
	if p.MaxReceives > 0 {
		o.DeadLetters = p.Dead
	}
	if queue, err = sqlitebroker.New(store, p.Queue, o); err != nil {
		return nil, nil, err
	}
	dead, err = sqlitebroker.New(store, p.Dead, nil)
	return queue, dead, err
}

// naiveTable receives one message.
func naiveTable(ctx context.Context, p place, visibility time.Duration) (receive, error) {
	q, _, err := openTable(ctx, p, nil)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, charge func(body []byte) error) (deleted int, err error) {
		got, err := q.Receive(ctx, broker.ReceiveOptions{Max: 1, Wait: time.Second, Visibility: visibility})
		for _, m := range got {
			if charge(m.Body) != nil {
				continue // it comes back when its visibility timeout is over
			}
			_ = q.Ack(ctx, []broker.Receipt{m.Receipt})
			deleted++
		}
		return deleted, err
	}, nil
}

// commandURL is the queue's for the command onceq. name is the queue's, or that of its dead
// letters.
func (p place) commandURL(name, ledger string) string {
	switch p.Service {
	case "postgres":
		at, parameters, _ := strings.Cut(withTable(p.Endpoint, postgresMessagesTable), "?")
		_, at, _ = strings.Cut(at, "://")
		return "postgres-queue://" + at + "/" + name + "?" + parameters
	case "sqlite":
		return "sqlite-queue://" + ledger + "/" + name
	}
	return "sqs+" + name
}

// withTable is a database's URL for the command onceq.
func withTable(url, table string) string {
	if strings.Contains(url, "?") {
		return url + "&onceq.table=" + table
	}
	return url + "?onceq.table=" + table
}
