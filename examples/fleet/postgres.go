package main

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/pgstore"
	"github.com/onceq/onceq/examples/internal/shop"
)

// postgresSchema is the demo's own. It stays, as a ledger's file does: the next run charges nobody
// again.
const postgresSchema = "onceq_demo"

// postgresTill is a table of charges beside that of the records.
type postgresTill struct {
	pool *pgxpool.Pool
	s    *pgstore.Store
}

func openPostgresTill(url string) (till, error) {
	pool, err := pgxpool.New(context.Background(), url) // it dials at the first call
	if err != nil {
		return nil, err
	}
	s, err := pgstore.New(pool, &pgstore.Options{Table: postgresSchema + ".onceq_dedupe"})
	if err != nil {
		pool.Close()
		return nil, err
	}
	return &postgresTill{pool, s}, nil
}

func (t *postgresTill) store() dedupe.Store { return t.s }

func (t *postgresTill) charge(ctx context.Context, j *onceq.Job, o shop.Order, itemCents int64, worker string) error {
	return t.s.Commit(ctx, j, func(tx pgx.Tx) (any, error) {
		_, err := tx.Exec(ctx, "INSERT INTO onceq_demo.charges (order_id, customer, cents, currency, item_cents, worker) VALUES ($1, $2, $3, $4, $5, $6)",
			o.ID, o.Customer, o.Cents, o.Currency, itemCents, worker)
		return nil, err
	})
}

// make has no unique constraint on the charges, which would hide what the workers do.
func (t *postgresTill) make(ctx context.Context, fresh bool) error {
	if fresh {
		if _, err := t.pool.Exec(ctx, "DROP TABLE IF EXISTS onceq_demo.charges, onceq_demo.onceq_dedupe"); err != nil {
			return err
		}
	}
	if err := t.s.Migrate(ctx); err != nil {
		return err
	}
	_, err := t.pool.Exec(ctx, `CREATE TABLE IF NOT EXISTS onceq_demo.charges (order_id text NOT NULL, customer text NOT NULL,
		cents bigint NOT NULL, currency text NOT NULL, item_cents bigint NOT NULL, worker text NOT NULL, at timestamptz NOT NULL DEFAULT now())`)
	return err
}

func (t *postgresTill) audit(ctx context.Context, rows []shop.Row, letters map[string]string) (*shop.Audit, error) {
	return auditCopy(ctx, rows, letters, func(put putCharge) error {
		found, err := t.pool.Query(ctx, "SELECT order_id, customer, cents, currency, item_cents, worker FROM onceq_demo.charges")
		if err != nil {
			return err
		}
		var o shop.Order
		var itemCents int64
		var worker string
		_, err = pgx.ForEachRow(found, []any{&o.ID, &o.Customer, &o.Cents, &o.Currency, &itemCents, &worker}, func() error {
			return put(o, itemCents, worker)
		})
		return err
	})
}

func (t *postgresTill) where() string {
	return server(t.pool.Config()) + ", table " + postgresSchema + ".charges"
}

func (t *postgresTill) close() {
	_ = t.s.Close()
	t.pool.Close()
}

// server is where a database is, without the password.
func server(c *pgxpool.Config) string {
	return fmt.Sprintf("PostgreSQL at %s:%d/%s", c.ConnConfig.Host, c.ConnConfig.Port, c.ConnConfig.Database)
}
