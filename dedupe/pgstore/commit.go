package pgstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/pgkit"
)

// This file owns Commit: the user's transaction from its beginning to the answer of its COMMIT.
// Handlers call it, each in its own goroutine. It holds one connection of the store's pool and no
// other lock.

const (
	// commitOwn is finishOwn, and an error where that finds no row: the COMMIT that comes in the
	// same packet is skipped then. The error quotes a text of our own, so that none of the user's
	// triggers is taken for it.
	commitOwn = `WITH done AS (` + finishOwn + ` RETURNING '1'::pg_catalog.text AS n) SELECT coalesce(pg_catalog.max(n), '` + noRow + `')::integer FROM done`

	noRow = `onceq: the lease was lost`

	notAnInteger = "22P02"
)

// Commit runs f in a transaction on the store's pool, and completes job in the round trip of its
// COMMIT: f's effects and the completion are committed together or not at all, as with
// [Store.CompleteTx], which costs a round trip of its own. The transaction is begun as by
// [pgx.BeginFunc]: the role or the database gives the isolation level.
//
// tx is f's until f returns, and so are its savepoints; one that is left open is committed with the
// rest. f must not commit tx, and after a rollback it must return an error. The result is stored as
// CompleteTx stores one. Commit returns f's error as it is. After an error or a panic of f all is
// rolled back.
//
// From Commit on the worker never writes done itself; what it finds after the handler decides. So
// the handler may return every error of Commit:
//
//   - [dedupe.ErrLeaseLost]: rolled back. Another claim has taken the key, this one is settled
//     already (by an earlier Commit, for instance), or the worker claims in another table than this
//     store's.
//   - [dedupe.ErrBusy]: rolled back because of others, by a deadlock, a lock_timeout, a
//     statement_timeout, or a conflict under REPEATABLE READ and SERIALIZABLE. The transaction may
//     be tried again. Under these two levels it is a conflict if the worker renews this job within
//     the transaction, as it does every third of the lease. For long transactions use CompleteTx
//     there, as the first statement.
//   - One that says "rolled back", such as [dedupe.ErrResultSize], or that of a deferred constraint
//     that does not hold.
//   - One that says "may be committed": the connection or ctx ended before the answer came. The
//     worker finds out. So does another Commit: it answers ErrLeaseLost if the first was committed.
//   - [dedupe.ErrBadRequest]: job or f is nil, or f has ended tx.
//
// It holds a connection of the store's pool while f runs. If that pool is the worker's, and small,
// make a second Store for the handlers, on a pool of their own and the same table. On a type that
// wraps a [*pgxpool.Pool] the completion takes a round trip of its own.
//
// [*pgxpool.Pool]: https://pkg.go.dev/github.com/jackc/pgx/v5/pgxpool#Pool
func (s *Store) Commit(ctx context.Context, job dedupe.Owned, f func(tx pgx.Tx) (result any, err error)) error {
	lease, err := join("Commit", job)
	if err != nil {
		return err
	}
	if f == nil {
		return fmt.Errorf("pgstore: Commit: %w: f is nil", dedupe.ErrBadRequest)
	}
	if err := s.ready(ctx, 1); err != nil {
		return err
	}
	u, err := s.begin(ctx)
	if err != nil {
		return fmt.Errorf("pgstore: Commit: nothing was begun: %w", err)
	}
	defer u.end(ctx)
	result, err := f(u)
	u.ended.Store(true)
	if err == nil {
		err = s.commit(ctx, u, job, &lease, result)
	}
	u.leave = pgkit.State(err) == pgkit.ReadOnly
	return err
}

// userTx is the transaction that f has in its hands.
type userTx struct {
	gate
	ended atomic.Bool
	// conn is nil if the pool is wrapped, because the wrapper has methods of its own, which must
	// not be passed by.
	conn *pgxpool.Conn
	// fault is what f has done to the transaction.
	fault error
	// committed is set only if conn is nil.
	committed bool
	// leave gives the connection up: its server has become a replica.
	leave bool
}

var (
	errOwnCommit   = errors.New("f must not commit its transaction; that is done, with the job's completion, when f has returned nil")
	errOwnRollback = errors.New("f has rolled its transaction back, and returned no error")
	errOwnEnd      = errors.New("f has ended its transaction with a statement of its own; what it did may be committed without the job's completion")
)

func (s *Store) begin(ctx context.Context) (*userTx, error) {
	u := new(userTx)
	u.over = &u.ended
	pool, ok := s.db.(*pgxpool.Pool)
	if !ok {
		var err error
		u.Tx, err = s.db.BeginTx(ctx, pgx.TxOptions{})
		return u, err
	}
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	if u.Tx, err = conn.Begin(ctx); err != nil {
		conn.Release()
		return nil, err
	}
	u.conn = conn
	return u, nil
}

// Commit is refused: it would leave the job behind.
func (u *userTx) Commit(context.Context) error {
	if err := u.err(); err != nil {
		return err
	}
	u.fault = errOwnCommit
	return fmt.Errorf("pgstore: Commit: %w", u.fault)
}

func (u *userTx) Rollback(ctx context.Context) error {
	if err := u.err(); err != nil {
		return err
	}
	u.fault = cmp.Or(u.fault, errOwnRollback)
	return u.gate.Rollback(ctx)
}

// end gives the connection back, in no transaction, because the pool closes one that is in any. A
// rollback closes the pgx.Tx, too.
func (u *userTx) end(ctx context.Context) {
	if u.conn == nil {
		if !u.committed {
			_ = u.Tx.Rollback(ctx)
		}
		return
	}
	if conn := u.conn.Conn(); !conn.IsClosed() && !pgkit.IsIdle(conn) && !u.leave {
		_ = u.Tx.Rollback(ctx)
	}
	u.conn.Release()
}

// check finds why nothing can be sent. It runs before the sending, because an error of pgx does not
// show for certain whether it came before something was sent or after.
func (u *userTx) check(ctx context.Context) error {
	conn := u.Tx.Conn()
	if u.fault == nil && pgkit.IsIdle(conn) {
		u.fault = errOwnEnd
	}
	switch {
	case u.fault != nil:
		return fmt.Errorf("the job is not completed: %w: %w", dedupe.ErrBadRequest, u.fault)
	case ctx.Err() != nil:
		return fmt.Errorf("rolled back: %w", ctx.Err())
	case conn != nil && conn.IsClosed():
		return fmt.Errorf("rolled back: the connection was lost while f ran: %w", pgconn.ErrConnClosed)
	case conn != nil && conn.PgConn().IsBusy():
		return fmt.Errorf("rolled back: %w: f has left its rows open", dedupe.ErrBadRequest)
	}
	return nil
}

// commit completes the job of a transaction in which f has done its work, and commits it.
func (s *Store) commit(ctx context.Context, u *userTx, job dedupe.Owned, lease *dedupe.Lease, result any) error {
	if err := u.check(ctx); err != nil {
		return fmt.Errorf("pgstore: Commit: %w", err)
	}
	args, err := completion("Commit: rolled back", job, lease, result)
	if err != nil {
		return err
	}
	plan := s.plan(lease.Fence)
	if u.conn == nil {
		return s.commitApart(ctx, u, s.sql().finish[plan], args)
	}
	p := pgkit.EndOf()
	p.Exec(s.sql().commit[plan], args...)
	err = p.RunBy(func() error { return u.conn.SendBatch(ctx, &p.Batch).Close() })
	if p.Committed > 0 { // what went wrong then, did so after it
		return nil
	}
	return s.explainCommit(ctx, err)
}

// commitApart does the same by statements that every kind of transaction has.
func (s *Store) commitApart(ctx context.Context, u *userTx, sql string, args []any) error {
	tag, err := u.Tx.Exec(ctx, sql, args...)
	switch {
	case err != nil && !pgkit.IsBusy(err):
		return s.explainTx("Commit: rolled back", err)
	case err == nil && tag.RowsAffected() == 0:
		return leaseLost("Commit: rolled back")
	case err == nil:
		err = u.Tx.Commit(ctx)
	}
	u.committed = err == nil
	return s.explainCommit(ctx, err)
}

// explainCommit says what became of the transaction.
func (s *Store) explainCommit(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case isNoRow(err):
		return leaseLost("Commit: rolled back")
	case pgkit.IsBusy(err):
		return fmt.Errorf("pgstore: Commit: rolled back; try the transaction again (under REPEATABLE READ and SERIALIZABLE it is enough that "+
			"the worker has renewed the job meanwhile): %w: %w", dedupe.ErrBusy, err)
	case isRolledBack(err):
		return s.explainTx("Commit: rolled back", err)
	}
	if ctx.Err() != nil { // pgx does not always name it
		err = fmt.Errorf("%w: %w", ctx.Err(), err)
	}
	return fmt.Errorf("pgstore: Commit: the transaction may be committed or not; let the handler return this error, and the worker finds out: %w", err)
}

// isNoRow knows the error that commitOwn makes.
func isNoRow(err error) bool {
	var pe *pgconn.PgError
	return errors.As(err, &pe) && pe.Code == notAnInteger && strings.Contains(pe.Message, noRow)
}

// isRolledBack reports whether the error is the server's word that the transaction is not
// committed. These are no such word:
//
//   - A fatal error: the server was told to stop, or a pooler has lost it. It may have committed
//     before that.
//   - An ordinary error of a class of a lost connection, an operator or the system, which is how
//     some poolers say the same.
//
// pgconn.SafeToRetry does not help: it is true of the error that comes after an answer was lost.
func isRolledBack(err error) bool {
	if errors.Is(err, pgx.ErrTxCommitRollback) {
		return true
	}
	var pe *pgconn.PgError
	if !errors.As(err, &pe) || cmp.Or(pe.SeverityUnlocalized, pe.Severity) != "ERROR" {
		return false
	}
	for _, class := range []string{"08", "57P", "58"} {
		if strings.HasPrefix(pe.Code, class) {
			return false
		}
	}
	return true
}
