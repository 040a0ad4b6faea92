package pgbroker_test

import (
	"context"
	"fmt"
	"os"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/pgbroker"
	"github.com/onceq/onceq/broker"
)

// The row and its job are committed together, or neither is.
func ExampleQueue_Tx() {
	ctx := context.Background()
	order := func(pool *pgxpool.Pool, queue *pgbroker.Queue, id string) error {
		err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, "INSERT INTO orders (id) VALUES ($1)", id); err != nil {
				return err
			}
			m := onceq.Message("mail", id, []byte(id))
			return onceq.SendOne(ctx, queue.Tx(tx), &m)
		})
		if err == nil {
			queue.Wake() // where the worker is in this process
		}
		return err
	}

	url := os.Getenv("DATABASE_URL")
	if url == "" { // nothing to show without a server
		fmt.Println("no database")
		return
	}
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer pool.Close()
	queue, err := pgbroker.New(pool, "mail", nil)
	if err == nil {
		err = queue.Migrate(ctx)
	}
	if err == nil {
		err = order(pool, queue, "A-1")
	}
	fmt.Println(err)
	// Output: no database
}

// What a queue cannot do is refused at once, with the field and its limit.
func ExampleNew() {
	pool, err := pgxpool.New(context.Background(), "postgres://localhost/shop") // it does not connect
	if err != nil {
		fmt.Println(err)
		return
	}
	defer pool.Close()
	_, err = pgbroker.New(pool, "mail", &pgbroker.Options{Visibility: 30})
	fmt.Println(err)

	queue, err := pgbroker.New(pool, "mail", &pgbroker.Options{MaxReceives: 10, DeadLetters: "mail-dead"})
	if err != nil {
		fmt.Println(err)
		return
	}
	l := queue.Limits()
	fmt.Println(l.ReceiveBatch, l.MaxHold, l.OrderedGroups, l.Durable)
	d, ok := broker.As[broker.Describer](queue)
	fmt.Println(ok, d.Describe().System, d.Describe().Name)
	// Output:
	// pgbroker: Options.Visibility: 30ns is not within 100ms and 12h0m0s; is its unit missing?
	// 100 12h0m0s true true
	// true postgresql mail
}
