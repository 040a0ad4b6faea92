//go:build unix

package chaos

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "modernc.org/sqlite" // the driver "sqlite"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/pgstore"
	"github.com/onceq/onceq/dedupe/sqlitestore"
)

// books are a database with the store's records and the payments. There is no constraint: it would
// hide a second payment.
type books interface {
	store() dedupe.Store
	// migrate makes the tables.
	migrate(ctx context.Context) error
	// pay notes a payment for the order, and the job done, in one transaction.
	pay(ctx context.Context, j *onceq.Job) error
	// note notes a payment for the order, by itself.
	note(ctx context.Context, order string, fence uint64) error
	// paid tells the fences of the payments of each order.
	paid(ctx context.Context) (map[string][]uint64, error)
	// blocked tells whether a process that was stopped keeps all others from writing.
	blocked(ctx context.Context) bool
	// patience is how long after its last beat a claim may be found free: the lease, what the store
	// adds to it, and what a message is put off for that is found in progress.
	patience() time.Duration
	close()
}

func openBooks(ctx context.Context, store, database string) (books, error) {
	switch store {
	case "sqlite":
		return openSQLite(database)
	case "postgres":
		return openPostgres(ctx, database)
	case "dynamodb":
		return openDynamoDB(database)
	case "firestore":
		return openFirestore(ctx, database)
	}
	return nil, fmt.Errorf("no books on %q", store)
}

const (
	createPayments = "CREATE TABLE IF NOT EXISTS payments (customer_order TEXT NOT NULL, fence BIGINT NOT NULL)"
	insertPayment  = "INSERT INTO payments (customer_order, fence) VALUES ($1, $2)"
	selectPayments = "SELECT customer_order, fence FROM payments"
)

type sqliteBooks struct {
	db *sql.DB
	s  *sqlitestore.Store
}

func openSQLite(path string) (books, error) {
	db, err := sql.Open("sqlite", sqlitestore.DSN(path))
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(2) // the store's, and that of one handler at a time: they wait in the pool rather than in SQLite
	s, err := sqlitestore.New(db, nil)
	if err != nil {
		return nil, err
	}
	return &sqliteBooks{db, s}, nil
}

func (b *sqliteBooks) store() dedupe.Store { return b.s }

func (b *sqliteBooks) migrate(ctx context.Context) error {
	if _, err := b.db.ExecContext(ctx, createPayments); err != nil {
		return err
	}
	return b.s.Migrate(ctx)
}

func (b *sqliteBooks) pay(ctx context.Context, j *onceq.Job) error {
	tx, err := b.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if _, err := tx.ExecContext(ctx, insertPayment, j.Key().Key, j.Fence()); err != nil {
		return err
	}
	if err := b.s.CompleteTx(ctx, tx, j, nil); err != nil {
		return err
	}
	return tx.Commit()
}

func (b *sqliteBooks) note(ctx context.Context, order string, fence uint64) error {
	_, err := b.db.ExecContext(ctx, insertPayment, order, int64(fence))
	return err
}

func (b *sqliteBooks) paid(ctx context.Context) (map[string][]uint64, error) {
	rows, err := b.db.QueryContext(ctx, selectPayments)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	all := map[string][]uint64{}
	for rows.Next() {
		var order string
		var fence uint64
		if err := rows.Scan(&order, &fence); err != nil {
			return nil, err
		}
		all[order] = append(all[order], fence)
	}
	return all, rows.Err()
}

// blocked asks for the write lock, and waits a second for it.
func (b *sqliteBooks) blocked(ctx context.Context) bool {
	tx, err := b.db.BeginTx(ctx, nil)
	if err == nil {
		_ = tx.Rollback()
	}
	return err != nil
}

func (b *sqliteBooks) patience() time.Duration { return 4 * hold }

func (b *sqliteBooks) close() {
	_ = b.s.Close()
	_ = b.db.Close()
}

type postgresBooks struct {
	pool, own *pgxpool.Pool
	s         *pgstore.Store
}

func openPostgres(ctx context.Context, url string) (books, error) {
	// the handlers and the store have a pool each: a handler must not wait for what keeps its lease
	pool, err := pgxpool.New(ctx, url+"&pool_max_conns=8")
	if err != nil {
		return nil, err
	}
	own, err := pgxpool.New(ctx, url+"&pool_max_conns=3")
	if err != nil {
		return nil, err
	}
	s, err := pgstore.New(own, nil)
	if err != nil {
		return nil, err
	}
	return &postgresBooks{pool, own, s}, nil
}

func (b *postgresBooks) store() dedupe.Store { return b.s }

func (b *postgresBooks) migrate(ctx context.Context) error {
	if _, err := b.pool.Exec(ctx, createPayments); err != nil {
		return err
	}
	return b.s.Migrate(ctx)
}

func (b *postgresBooks) pay(ctx context.Context, j *onceq.Job) error {
	return pgx.BeginFunc(ctx, b.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, insertPayment, j.Key().Key, int64(j.Fence())); err != nil {
			return err
		}
		return b.s.CompleteTx(ctx, tx, j, nil)
	})
}

func (b *postgresBooks) note(ctx context.Context, order string, fence uint64) error {
	_, err := b.pool.Exec(ctx, insertPayment, order, int64(fence))
	return err
}

func (b *postgresBooks) paid(ctx context.Context) (map[string][]uint64, error) {
	rows, err := b.pool.Query(ctx, selectPayments)
	if err != nil {
		return nil, err
	}
	all := map[string][]uint64{}
	var order string
	var fence int64
	_, err = pgx.ForEachRow(rows, []any{&order, &fence}, func() error {
		all[order] = append(all[order], uint64(fence))
		return nil
	})
	return all, err
}

// blocked is never so: a lock is a row's.
func (b *postgresBooks) blocked(context.Context) bool { return false }

func (b *postgresBooks) patience() time.Duration { return 4 * hold }

func (b *postgresBooks) close() {
	b.pool.Close()
	b.own.Close()
}
