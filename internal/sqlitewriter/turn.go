package sqlitewriter

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"time"
)

// This file owns the turns of the user's own transactions. Such a transaction is on a connection of
// the pool. Would it just begin, it would wait in SQLite's busy handler, which looks ten times a
// second, for a file that the writer leaves free for an instant. So it waits in the writer's queue
// instead (writer.go), and the writer stands still while it runs. Whoever calls Turn runs all of
// this; nothing is locked here.

// ErrNoConnection: nothing was begun, because no connection of the pool was free.
var ErrNoConnection = errors.New("no connection of the pool was free")

// Turn runs f in a transaction on a connection of the pool, while the writer stands still, and
// commits it. It waits for its turn, and for those who write to the file from elsewhere, up to the
// writer's busy time; then it answers ErrLocked, and nothing was begun. lock is a statement that
// writes nothing; it takes the file's write lock where the pool begins its transactions DEFERRED.
//
// After an error or a panic of f all is rolled back, and the error is answered as it is. A
// *CommitError says what became of a COMMIT that failed.
func (w *Writer) Turn(ctx context.Context, lock string, f func(*sql.Tx) error) error {
	end := time.Now().Add(w.server.busy)
	if err := CheckPool(w.server.db); err != nil {
		return err
	}
	var conn *sql.Conn
	if w.server.db.Stats().MaxOpenConnections > 0 { // who waits for a free one holds up nobody
		var err error
		if conn, err = w.connection(ctx, end); err != nil {
			return err
		}
		defer conn.Close()
	}
	t := &turn{granted: make(chan struct{}), over: make(chan struct{})}
	if err := w.await(ctx, t, end); err != nil {
		return err
	}
	defer close(t.over)
	if conn == nil { // all turns then use one, which stays open; a pool keeps few that are idle
		var err error
		if conn, err = w.connection(ctx, end); err != nil {
			return err
		}
		defer conn.Close()
	}
	tx, err := beginOn(ctx, conn, lock, end)
	if err != nil {
		return err
	}
	committed := false
	defer func() {
		if !committed { // f has failed or panicked, or nobody knows what the connection is in
			_ = tx.Rollback()
		}
	}()
	if err := f(tx); err != nil {
		return err
	}
	committed = true
	if err := tx.Commit(); err != nil {
		discard(conn)
		return &CommitError{err}
	}
	return nil
}

func (w *Writer) connection(ctx context.Context, end time.Time) (*sql.Conn, error) {
	within, cancel := context.WithDeadline(ctx, end)
	defer cancel()
	conn, err := w.server.db.Conn(within)
	switch {
	case err != nil && ctx.Err() == nil && within.Err() != nil:
		return nil, fmt.Errorf("nothing was begun: %w within %v", ErrNoConnection, w.server.busy)
	case err != nil:
		return nil, fmt.Errorf("nothing was begun: %w", err)
	}
	return conn, nil
}

// beginOn begins a transaction that has the file's write lock. It asks again and again by itself,
// because SQLite's busy handler would pause for up to 100 ms, and block a thread.
func beginOn(ctx context.Context, conn *sql.Conn, lock string, end time.Time) (*sql.Tx, error) {
	var busy int64
	err := conn.QueryRowContext(ctx, "PRAGMA busy_timeout").Scan(&busy)
	if err == nil {
		_, err = conn.ExecContext(ctx, "PRAGMA busy_timeout = 0")
	}
	if err != nil {
		return nil, fmt.Errorf("nothing was begun: %w", err)
	}
	for since := time.Now(); ; {
		tx, err := beginLocked(ctx, conn, lock)
		if err == nil {
			if _, err = tx.ExecContext(ctx, fmt.Sprintf("PRAGMA busy_timeout = %d", busy)); err == nil {
				return tx, nil
			}
			_ = tx.Rollback()
		}
		if IsBusy(err) && time.Now().Before(end) && ctx.Err() == nil {
			<-pauseAfter(time.Since(since))
			continue
		}
		discard(conn) // its settings are not the pool's
		switch {
		case ctx.Err() != nil:
			return nil, fmt.Errorf("nothing was begun: %w", ctx.Err())
		case IsBusy(err):
			return nil, ErrLocked
		}
		return nil, Explain("nothing was begun", err)
	}
}

func beginLocked(ctx context.Context, conn *sql.Conn, lock string) (*sql.Tx, error) {
	tx, err := conn.BeginTx(ctx, nil)
	if err != nil {
		return nil, err
	}
	if _, err := tx.ExecContext(ctx, lock); err != nil {
		_ = tx.Rollback()
		return nil, err
	}
	return tx, nil
}

// discard closes a connection for good, which rolls back. The pool must not hand it on.
func discard(conn *sql.Conn) {
	_ = conn.Raw(func(any) error { return driver.ErrBadConn })
}

// CommitError is a COMMIT that failed.
type CommitError struct{ Err error }

// RolledBack reports whether nothing was committed, for certain. database/sql sends no COMMIT when
// the context has ended.
func (e *CommitError) RolledBack() bool {
	return IsBusy(e.Err) || isFull(e.Err) || errors.Is(e.Err, context.Canceled) || errors.Is(e.Err, context.DeadlineExceeded)
}

func (e *CommitError) Error() string {
	switch {
	case e.RolledBack():
		return fmt.Sprintf("rolled back: %v", e.Err)
	case errors.Is(e.Err, sql.ErrTxDone):
		return fmt.Sprintf("f, or the end of its context, has ended the transaction: %v", e.Err)
	}
	return fmt.Sprintf("the transaction may be committed or not: %v", e.Err)
}
func (e *CommitError) Unwrap() error { return e.Err }
