package pgbroker

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/pgkit"
	"github.com/onceq/onceq/internal/tablequeue"
)

// This file owns sends in the user's own transaction. Handlers and request handlers make a sender,
// each in its own goroutine and on its own connection. Nothing is locked, and nothing but the
// insertion is sent: no notification, no setting.

// Execer is the user's transaction, a [pgx.Tx], or a [*pgx.Conn] on which BEGIN was run. A pool has
// the methods, too, but is refused, because it would commit each statement by itself.
type Execer interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// SQLExecer is the user's transaction in database/sql: a [*sql.Tx], or a [*sql.Conn] on which BEGIN
// was run. Refused are a [*sql.DB], whatever has one embedded, such as the DB of other packages,
// and a conn of pgx/v5/stdlib without its BEGIN. With another driver a missing BEGIN cannot be
// seen.
type SQLExecer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// Tx is a sender whose messages are part of tx: they are there when tx is committed, and never were
// when it is rolled back, wholly or to a savepoint before the send. Give it to onceq.Send:
//
//	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
//		if _, err := tx.Exec(ctx, "INSERT INTO orders …"); err != nil {
//			return err
//		}
//		return onceq.Send(ctx, queue.Tx(tx), msgs)
//	})
//	queue.Wake() // where the worker is in this process; otherwise its next Poll finds them
//
// tx must be in the queue's own database; one in a database of another name is refused, once
// Migrate was called. Every isolation level will do. After an error roll back, or the messages that
// were not refused are sent all the same. The answer never is [broker.ErrThrottled], because a
// statement cannot be repeated in a transaction that has failed; repeat the transaction.
//
// The ids are those of the messages, also where tx is rolled back.
func (q *Queue) Tx(tx Execer) broker.Sender {
	return &txSender{q: q, call: "Tx", check: func() error { return pgkit.CheckTx(tx, inTx) }, run: func(ctx context.Context, query string, p *part) error {
		rows, err := tx.Query(ctx, query, p.args...)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			if err := p.read(rows); err != nil {
				return err
			}
		}
		return rows.Err()
	}}
}

// TxSQL is [Queue.Tx] for a transaction of database/sql, of whatever driver for PostgreSQL.
func (q *Queue) TxSQL(tx SQLExecer) broker.Sender {
	return &txSender{q: q, call: "TxSQL", check: func() error { return pgkit.CheckSQL(tx, inTx) }, run: func(ctx context.Context, query string, p *part) error {
		rows, err := tx.QueryContext(ctx, query, p.args...)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			if err := rows.Scan(p.to...); err != nil {
				return err
			}
			if err := p.took(p.seq); err != nil {
				return err
			}
		}
		return rows.Err()
	}}
}

// txSender puts messages by run, in the user's transaction.
type txSender struct {
	q     *Queue
	call  string
	check func() error
	run   func(ctx context.Context, query string, p *part) error
}

// Limits are the queue's.
func (t *txSender) Limits() broker.Limits { return t.q.Limits() }

// Send puts the messages as [Queue.Send] does, within the transaction.
func (t *txSender) Send(ctx context.Context, ms []broker.Outgoing) ([]string, error) {
	q := t.q
	if len(ms) == 0 {
		return nil, nil
	}
	if err := q.ready(ctx, t.call, len(ms), tablequeue.SendBatch); err != nil {
		return nil, err
	}
	if err := t.check(); err != nil {
		return nil, q.wrap(t.call, err)
	}
	p := q.pack(ms)
	query, database := q.sql().insert, q.database.Load()
	if database != nil {
		query = q.sql().insertGuarded
	}
	for _, part := range p.parts {
		if database != nil {
			part.args = append(part.args, blobText(*database))
		}
		if err := t.run(ctx, query, part); err != nil {
			return nil, q.wrap(t.call, q.explainTx(err))
		}
		switch {
		case part.next == 0 && database != nil:
			return nil, q.wrap(t.call, fmt.Errorf("nothing was written: tx is not in the database %q, in which Migrate has found the queue", *database))
		case part.next < len(part.at):
			return nil, q.wrap(t.call, fmt.Errorf("roll back: the database has put %d of %d messages; is there a rule or a trigger on table %s?",
				part.next, len(part.at), q.sql().name))
		}
	}
	return p.ids, broker.JoinEntries(p.errs)
}

// explainTx says what to do about an error within the user's transaction.
func (q *Queue) explainTx(err error) error {
	switch {
	case errors.Is(err, pgx.ErrTxClosed), errors.Is(err, sql.ErrTxDone):
		return fmt.Errorf("nothing was written: the transaction is over: %w", err)
	case isBusy(err):
		return fmt.Errorf("roll back, then try the transaction again: %w", err)
	case pgkit.State(err) == pgkit.FailedTransaction:
		return fmt.Errorf("roll back; a statement before it has failed: %w", err)
	case pgkit.State(err) == pgkit.UndefinedTable:
		return fmt.Errorf("roll back: %w: %w (is the transaction in the queue's database, with its search_path, and has Migrate been run on table %s?)",
			broker.ErrNotFound, err, q.sql().name)
	}
	return fmt.Errorf("roll back: %w", q.hint(err))
}

// inTx is what users have in the transaction that they send in.
const inTx = "the row is written"
