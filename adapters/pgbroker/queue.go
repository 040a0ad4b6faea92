package pgbroker

import (
	"cmp"
	"context"
	"fmt"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/pgkit"
	"github.com/onceq/onceq/internal/tablequeue"
)

// This file owns the Queue: its construction, its limits and its end. A Queue may be used by many
// goroutines: its fields are set by New, or guard themselves. Rows are locked by the database
// alone.

// DB is the pool of connections, a [*pgxpool.Pool] or what wraps one: its methods may be called
// from many goroutines.
//
// [*pgxpool.Pool]: https://pkg.go.dev/github.com/jackc/pgx/v5/pgxpool#Pool
type DB interface {
	SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
	BeginTx(ctx context.Context, o pgx.TxOptions) (pgx.Tx, error)
}

// Queue is one queue in a table of PostgreSQL. Make one with [New]. Its methods may be called from
// many goroutines.
type Queue struct {
	db            DB
	name          string
	s             tablequeue.Settings
	notifies      bool   // Options.Notify
	schema, table string // as Options.Table has them
	// st is replaced by Migrate, which finds the schema where Options.Table names none.
	st atomic.Pointer[statements]
	// database is the name of the database, once Migrate was called.
	database atomic.Pointer[string]

	floor   floor
	wakes   *tablequeue.Wakes
	closing *tablequeue.Closing
	notice  notice
	groups  groups
}

var (
	_ broker.Broker    = (*Queue)(nil)
	_ broker.Depther   = (*Queue)(nil)
	_ broker.Redriver  = (*Queue)(nil)
	_ broker.Peeker    = (*Queue)(nil)
	_ broker.Describer = (*Queue)(nil)
)

// New returns the queue of that name in the database of db, a pool. The name has 1 to 255 bytes of
// UTF-8. New does no I/O: call [Queue.Migrate] before the first use. nil options mean the defaults;
// an error names the field and its limit.
func New(db DB, queue string, o *Options) (*Queue, error) {
	if err := pgkit.CheckPool(db); err != nil {
		return nil, fmt.Errorf("pgbroker: New: %w", err)
	}
	if o == nil {
		o = &Options{}
	}
	c, err := o.complete(queue)
	if err != nil {
		return nil, err
	}
	schema, table, err := pgkit.SplitTable("pgbroker", cmp.Or(o.Table, defaultTable))
	if err != nil {
		return nil, err
	}
	if _, ok := db.(*pgxpool.Pool); o.Notify && !ok {
		return nil, fmt.Errorf("pgbroker: Options.Notify: db is a %T; listening takes a connection of its own, out of a *pgxpool.Pool", db)
	}
	q := &Queue{
		db: db, name: queue, s: c, notifies: o.Notify, schema: schema, table: table,
		wakes: tablequeue.NewWakes(), closing: tablequeue.NewClosing(),
	}
	q.st.Store(newStatements(schema, table))
	return q, nil
}

func (q *Queue) sql() *statements { return q.st.Load() }

// Close ends the queue: waiting receives and later calls answer [broker.ErrClosed]. Calls under way
// go on, and the pool stays open, because it is the user's. Messages stay in the table. It may be
// called more than once, and answers the error of closing the connection that [Options].Notify
// took.
func (q *Queue) Close() error {
	q.closing.Close()
	return q.notice.close()
}

// Limits says what the queue can do.
func (q *Queue) Limits() broker.Limits { return q.s.Limits() }

// ready tells why a call of n entries cannot begin.
func (q *Queue) ready(ctx context.Context, call string, n, most int) error {
	switch {
	case q.closing.IsClosed():
		return q.wrap(call, broker.ErrClosed)
	case n > most:
		return q.wrap(call, tablequeue.Unsupported("%d entries; a batch has at most %d", n, most))
	case ctx.Err() != nil:
		return q.wrap(call, ctx.Err())
	}
	return nil
}
