package sqlitebroker

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe/sqlitestore"
	"github.com/onceq/onceq/internal/sqlitewriter"
	"github.com/onceq/onceq/internal/tablequeue"
)

// This file owns the Queue: its construction, its end, and how its calls reach the file. A Queue
// may be used by many goroutines: its fields are set by New, or guard themselves. What writes goes
// through the store's writer, one transaction at a time; what reads takes a connection of the pool.

// grace is how long a call still waits for its transaction when the caller's context has ended,
// because what was marked as delivered would be stranded until its timeout.
const grace = 3 * time.Second

// Queue is one queue in a table of SQLite. Make one with [New]. Its methods may be called from many
// goroutines.
type Queue struct {
	w    *sqlitewriter.Writer
	name string
	s    tablequeue.Settings
	sql  *statements
	// file is the name of the file, once Migrate was called.
	file atomic.Pointer[string]
	// hot: the last look has brought something, so the next one need not ask first.
	hot atomic.Bool
	// wakes are shared by all Queues of that name on the store.
	wakes, letters *tablequeue.Wakes
	closing        *tablequeue.Closing
}

var (
	_ broker.Broker    = (*Queue)(nil)
	_ broker.Depther   = (*Queue)(nil)
	_ broker.Redriver  = (*Queue)(nil)
	_ broker.Peeker    = (*Queue)(nil)
	_ broker.Describer = (*Queue)(nil)
)

// New returns the queue of that name in the file of store, whose writer it shares: what a worker
// claims, settles, acks and sends at one time is one commit. The name has 1 to 255 bytes of UTF-8.
// New does no I/O: call [Queue.Migrate] before the first use. nil options mean the defaults; an
// error names the field and its limit.
//
// The queue ends with the store: close the store last.
func New(store *sqlitestore.Store, queue string, o *Options) (*Queue, error) {
	if store == nil {
		return nil, errors.New("sqlitebroker: New: store is nil")
	}
	if o == nil {
		o = &Options{}
	}
	table, s, err := o.complete(queue)
	if err != nil {
		return nil, err
	}
	q := &Queue{w: sqlitewriter.Of(store), name: queue, s: s, sql: newStatements(table), closing: tablequeue.NewClosing()}
	q.wakes, q.letters = q.wakesOf(queue), q.wakesOf(s.DeadLetters)
	return q, nil
}

// wakesOf are the wakes of a queue in the same table.
func (q *Queue) wakesOf(name string) *tablequeue.Wakes {
	return q.w.Shared(q.sql.table+"/"+name, func() any { return tablequeue.NewWakes() }).(*tablequeue.Wakes)
}

// Close ends the queue: waiting receives and later calls answer [broker.ErrClosed]. Calls under way
// go on, and the store stays open. Messages stay in the file. It may be called more than once, and
// its error is always nil.
func (q *Queue) Close() error {
	q.closing.Close()
	return nil
}

// Limits says what the queue can do.
func (q *Queue) Limits() broker.Limits { return q.s.Limits() }

// Wake lets a waiting receive of this process look at once. Call it after the COMMIT of a
// transaction in which messages were sent by [Queue.Tx]: the message is then received in a
// millisecond instead of half a Poll. It does no I/O, and may be called at any time.
func (q *Queue) Wake() { q.wakes.Wake() }

// Describe names the queue. The address is the table's and the queue's name, because only Migrate
// learns the file's.
func (q *Queue) Describe() broker.Description {
	if q == nil {
		return broker.Description{}
	}
	return broker.Description{System: "sqlite", Name: q.name, Address: q.sql.table + "/" + q.name}
}

// Redrive answers what the options have set. Retention is 0, because messages are kept until they
// are acked.
func (q *Queue) Redrive(ctx context.Context) (broker.RedrivePolicy, error) {
	if err := q.ready(ctx, "Redrive", 1, 1); err != nil {
		return broker.RedrivePolicy{}, err
	}
	return broker.RedrivePolicy{MaxReceives: q.s.MaxReceives, Target: q.s.DeadLetters}, nil
}

// ready tells why a call of n entries cannot begin.
func (q *Queue) ready(ctx context.Context, call string, n, most int) error {
	switch {
	case q.isClosed():
		return q.wrap(call, broker.ErrClosed)
	case n > most:
		return q.wrap(call, tablequeue.Unsupported("%d entries; a batch has at most %d", n, most))
	case ctx.Err() != nil:
		return q.wrap(call, ctx.Err())
	}
	return nil
}

func (q *Queue) isClosed() bool { return q.closing.IsClosed() || q.w.IsClosed() }

// write runs apply in a transaction of the store's writer. apply may run more than once, each time
// from the start, and after an error may still be running.
func (q *Queue) write(ctx context.Context, call string, entries int, apply func(*sqlitewriter.Txn) error) error {
	return q.explain(call, q.w.Do(ctx, &sqlitewriter.Call{Wait: q.w.Busy(), Grace: grace, Entries: entries, Apply: apply}))
}

// read runs a query on a connection of the pool, for which it waits as long as for the file's lock.
// The query itself is not interrupted, because it is short.
func (q *Queue) read(ctx context.Context, call, query string, args []any, each func(*sql.Rows) error) error {
	within, cancel := context.WithTimeout(ctx, q.w.Busy())
	defer cancel()
	conn, err := q.w.DB().Conn(within)
	if err != nil {
		if ctx.Err() == nil && within.Err() != nil {
			return q.wrap(call, fmt.Errorf("%w: no connection of the pool was free within %v", broker.ErrThrottled, q.w.Busy()))
		}
		return q.explain(call, err)
	}
	defer conn.Close()
	rows, err := conn.QueryContext(context.WithoutCancel(ctx), query, args...)
	if err != nil {
		return q.explain(call, err)
	}
	defer rows.Close()
	for rows.Next() {
		if err := each(rows); err != nil {
			return q.explain(call, err)
		}
	}
	return q.explain(call, rows.Err())
}

// explain puts the contract's sentinels in.
func (q *Queue) explain(call string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, sqlitewriter.ErrClosed):
		return q.wrap(call, broker.ErrClosed)
	case errors.Is(err, sqlitewriter.ErrLocked), sqlitewriter.IsBusy(err):
		return q.wrap(call, fmt.Errorf("nothing was written: %w: %w", broker.ErrThrottled, err))
	case sqlitewriter.IsMissing(err):
		return q.wrap(call, fmt.Errorf("%w: table %s: %w", broker.ErrNotFound, q.sql.table, err))
	}
	return q.wrap(call, err)
}

func (q *Queue) wrap(call string, err error) error {
	return fmt.Errorf("sqlitebroker: %s: %s: %w", call, q.name, err)
}

// wrapper is wrap for a call.
func (q *Queue) wrapper(call string) func(error) error {
	return func(err error) error { return q.wrap(call, err) }
}
