package sqlitebroker

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/sqlitewriter"
	"github.com/onceq/onceq/internal/tablequeue"
)

// Execer is the user's transaction: a [*sql.Tx], or a [*sql.Conn] on which BEGIN IMMEDIATE was run.
// A [*sql.DB] is refused, and so is whatever has one embedded, such as the DB of other packages,
// because it would commit each statement by itself. So is a conn without its BEGIN.
type Execer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// Tx is a sender whose messages are part of tx: they are there when tx is committed, and never were
// when it is rolled back, wholly or to a savepoint before the send. Give it to onceq.Send:
//
//	err := store.Write(ctx, func(tx *sql.Tx) error {
//		_, err := tx.ExecContext(ctx, "INSERT INTO orders …")
//		return errors.Join(err, onceq.Send(ctx, queue.Tx(tx), msgs))
//	})
//	queue.Wake() // where the worker is in this process; otherwise its next Poll finds them
//
// Write waits for its turn with the store's writes. db.BeginTx will do as well (IMMEDIATE, as
// sqlitestore.DSN says), but beside a busy worker it may be refused ("database is locked").
//
// tx must be on the queue's own file, through whichever pool; one on another file is refused, once
// Migrate was called. Begin it IMMEDIATE: a deferred one that reads first and writes later is
// refused when anybody wrote in between. While it is open nobody else writes to the file, the
// worker's renewals neither, so keep it short.
//
// After an error roll back, or the messages that were not refused are sent all the same. The answer
// never is [broker.ErrThrottled], because a statement cannot be repeated in a transaction that has
// failed; repeat the transaction. The ids are those of the messages, also where tx is rolled back;
// then another message may get them.
func (q *Queue) Tx(tx Execer) broker.Sender { return &txSender{q, tx} }

// txSender puts messages in the user's transaction.
type txSender struct {
	q  *Queue
	tx Execer
}

// Limits are the queue's.
func (t *txSender) Limits() broker.Limits { return t.q.Limits() }

// Send puts the messages as [Queue.Send] does, within the transaction.
func (t *txSender) Send(ctx context.Context, ms []broker.Outgoing) ([]string, error) {
	const call = "Tx"
	q := t.q
	if len(ms) == 0 {
		return nil, nil
	}
	if err := q.ready(ctx, call, len(ms), tablequeue.SendBatch); err != nil {
		return nil, err
	}
	if err := sqlitewriter.CheckTx(ctx, t.tx); err != nil {
		return nil, q.wrap(call, err)
	}
	if err := t.checkFile(ctx); err != nil {
		return nil, q.wrap(call, err)
	}
	p := q.pack(ms)
	err := p.put(time.Now(), func(args ...any) (sql.Result, error) { return t.tx.ExecContext(ctx, q.sql.insert, args...) })
	if err != nil {
		return nil, q.wrap(call, explainTx(q.sql.table, err))
	}
	return p.ids, broker.JoinEntries(p.errs)
}

// checkFile refuses a transaction on another file.
func (t *txSender) checkFile(ctx context.Context) error {
	want := t.q.file.Load()
	if want == nil {
		return nil
	}
	var file string
	rows, err := t.tx.QueryContext(ctx, sqlitewriter.FileQuery)
	if err != nil {
		return explainTx(t.q.sql.table, err)
	}
	defer rows.Close()
	for rows.Next() {
		if err := rows.Scan(&file); err != nil {
			return explainTx(t.q.sql.table, err)
		}
	}
	if err := rows.Err(); err != nil {
		return explainTx(t.q.sql.table, err)
	}
	if file != *want {
		return fmt.Errorf("nothing was written: tx is on the file %q, and Migrate has found the queue in %q", file, *want)
	}
	return nil
}

// explainTx says what to do about an error within the user's transaction.
func explainTx(table string, err error) error {
	switch {
	case errors.Is(err, sql.ErrTxDone):
		return fmt.Errorf("nothing was written: the transaction is over: %w", err)
	case sqlitewriter.IsBusy(err):
		return fmt.Errorf("roll back, then try the transaction again; begin it IMMEDIATE (_txlock=immediate): %w", err)
	case sqlitewriter.IsMissing(err):
		return fmt.Errorf("roll back: %w: table %s: %w (is the transaction on the queue's file, and has Migrate been run?)", broker.ErrNotFound, table, err)
	}
	return fmt.Errorf("roll back: %w", err)
}
