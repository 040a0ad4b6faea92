package sqlitestore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/records"
	"github.com/onceq/onceq/internal/sqlitewriter"
)

// This file owns the user's transactions that take their turn with the store's own: Commit, which
// completes a job, and Write. Handlers and producers call them from any goroutine. The turns are
// those of internal/sqlitewriter; nothing is locked here.

// Commit runs f in a transaction on the store's file, completes job in it, and commits it: f's
// effects and the completion are there together or not at all, as with [Store.CompleteTx].
//
// Use it where the file is busy. A transaction of one's own waits in SQLite's busy handler, which
// looks for a free moment ten times a second, and beside a worker with much to do it finds one
// seldom. Commit takes its turn with the store's own writes instead. It waits for that up to
// [Options].BusyTimeout.
//
// The job is completed before f runs, so that f does not run for a claim that was lost. Its result
// follows when f has returned. A []byte is stored as it is, any other value as JSON, and nil stores
// none. While f runs nobody else writes to the file: no job is claimed, renewed or settled. So do
// what is slow before it. f must not call what writes through the store, such as Send of a queue;
// [sqlitebroker.Queue.Tx] sends within tx. f neither commits nor rolls back tx: it returns an error
// to undo all. After a panic of f all is rolled back, too. The context ends the transaction as that
// of [sql.DB.BeginTx] does. The store's Close waits for f.
//
// From Commit on the worker never writes done itself; what it finds after the handler decides. So
// the handler may return every error of Commit. f's own is answered as it is. The others:
//
//   - [dedupe.ErrBusy]: nothing was begun, because others held the file's write lock, or all
//     connections of the pool, for too long; or COMMIT met others, and all was rolled back. It may
//     be tried again.
//   - [dedupe.ErrLeaseLost]: rolled back, and f did not run. Another claim has taken the key, the
//     job was settled otherwise (by an earlier Commit, for instance), or the worker claims in
//     another store than this one.
//   - [dedupe.ErrResultSize]: rolled back, because the result is too long.
//   - [dedupe.ErrBadRequest]: job or f is nil, or the job was not claimed in a store.
//   - [dedupe.ErrClosed]: nothing was begun.
//   - One that says "may be committed or not": COMMIT has failed. The worker finds out. So does
//     another Commit: it answers ErrLeaseLost if the first was committed.
//
// [sqlitebroker.Queue.Tx]: https://pkg.go.dev/github.com/onceq/onceq/adapters/sqlitebroker#Queue.Tx
func (s *Store) Commit(ctx context.Context, job dedupe.Owned, f func(tx *sql.Tx) (result any, err error)) error {
	const call = "Commit"
	lease, err := join(call, job)
	switch {
	case err != nil:
		return err
	case f == nil:
		return fmt.Errorf("sqlitestore: Commit: %w: f is nil", dedupe.ErrBadRequest)
	}
	return s.turn(ctx, call, func(tx *sql.Tx) (theirs bool, err error) {
		if err := s.finish(ctx, tx, s.sql.complete, &lease, job, nil); err != nil {
			return false, fmt.Errorf("rolled back: %w", err)
		}
		result, err := f(tx)
		if err != nil {
			return true, err
		}
		switch err := s.finish(ctx, tx, s.sql.result, &lease, job, result); {
		case errors.Is(err, sql.ErrTxDone):
			return false, fmt.Errorf("f, or the end of its context, has ended the transaction; the job's completion has its fate: %w", err)
		case err != nil:
			return false, fmt.Errorf("rolled back: %w", err)
		}
		return false, nil
	})
}

// Write runs f in a transaction on the store's file, and commits it. It is for those who have no
// job, such as a producer that writes an order and, by [sqlitebroker.Queue.Tx], its job. Its turn,
// f and the errors are those of [Store.Commit]. Nothing of the store's is written.
//
//	err := store.Write(ctx, func(tx *sql.Tx) error {
//		if _, err := tx.ExecContext(ctx, "INSERT INTO orders …"); err != nil {
//			return err
//		}
//		return onceq.SendOne(ctx, queue.Tx(tx), &msg)
//	})
//	queue.Wake() // where the worker is in this process
//
// [sqlitebroker.Queue.Tx]: https://pkg.go.dev/github.com/onceq/onceq/adapters/sqlitebroker#Queue.Tx
func (s *Store) Write(ctx context.Context, f func(tx *sql.Tx) error) error {
	const call = "Write"
	if f == nil {
		return fmt.Errorf("sqlitestore: Write: %w: f is nil", dedupe.ErrBadRequest)
	}
	return s.turn(ctx, call, func(tx *sql.Tx) (theirs bool, err error) { return true, f(tx) })
}

// IsBusy reports whether err says that others held the file's write lock for too long
// (SQLITE_BUSY, SQLITE_LOCKED), whatever the driver: from a transaction of one's own, from
// [Store.CompleteTx], or from Commit. A worker gives back the job whose handler returns such an
// error, and counts no attempt where the one before was no such end.
func (s *Store) IsBusy(err error) bool {
	// The text, too, because a handler's error may be of another API, whose Code is not SQLite's.
	return errors.Is(err, dedupe.ErrBusy) || sqlitewriter.IsBusy(err) && strings.Contains(err.Error(), "locked")
}

// turn runs do in a transaction of its own. theirs reports whose error it is: the user's is
// answered as it is.
func (s *Store) turn(ctx context.Context, call string, do func(*sql.Tx) (theirs bool, err error)) error {
	theirs := false
	err := s.w.Turn(ctx, s.sql.lock, func(tx *sql.Tx) (err error) {
		theirs, err = do(tx)
		return err
	})
	failed := (*sqlitewriter.CommitError)(nil)
	switch {
	case err == nil:
		return nil
	case errors.As(err, &failed):
		if failed.RolledBack() && sqlitewriter.IsBusy(failed.Err) {
			return fmt.Errorf("sqlitestore: %s: %w: %w", call, dedupe.ErrBusy, err)
		}
	case theirs:
		return err
	case errors.Is(err, sqlitewriter.ErrClosed):
		return errClosed
	case errors.Is(err, sqlitewriter.ErrLocked), errors.Is(err, sqlitewriter.ErrNoConnection), sqlitewriter.IsBusy(err):
		return fmt.Errorf("sqlitestore: %s: nothing was written: %w: %w", call, dedupe.ErrBusy, err)
	}
	return fmt.Errorf("sqlitestore: %s: %w", call, err)
}

// join refuses what cannot be completed.
func join(call string, job dedupe.Owned) (dedupe.Lease, error) {
	lease, err := records.Join(job)
	if err != nil {
		return lease, fmt.Errorf("sqlitestore: %s: %w", call, err)
	}
	return lease, nil
}

// finish runs the statement that completes a job, or the one that adds what f has returned.
func (s *Store) finish(ctx context.Context, tx Execer, query string, lease *dedupe.Lease, job dedupe.Owned, result any) error {
	args, err := completion(lease, job, result, time.Now())
	if err != nil {
		return err
	}
	res, err := tx.ExecContext(ctx, query, args...)
	if err != nil {
		return err
	}
	n, err := res.RowsAffected()
	if err != nil {
		return err
	}
	if n == 0 {
		return fmt.Errorf("the key was claimed anew, this claim is settled already, or this is not the worker's store: %w", dedupe.ErrLeaseLost)
	}
	return nil
}
