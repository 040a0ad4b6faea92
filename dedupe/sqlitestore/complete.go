package sqlitestore

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/records"
	"github.com/onceq/onceq/internal/sqlitewriter"
)

// Execer is the user's transaction: a [*sql.Tx], or a [*sql.Conn] on which BEGIN IMMEDIATE was run.
// A [*sql.DB] is refused, and so is whatever has one embedded, such as the DB of other packages,
// because it would commit each statement by itself. So is a conn without its BEGIN.
type Execer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// CompleteTx writes job done within tx, so that the job's effects in tx and its completion are
// committed together or not at all: exactly one effect, whatever crashes. tx must be on the store's
// own file. From then on the worker never writes done itself. What it finds after the handler
// decides.
//
// Call it on the outermost transaction. In a savepoint that is rolled back it is undone, while the
// outer transaction may commit: then the job runs again, and its effects come once for each
// attempt.
//
// Beside a busy worker use [Store.Commit], which takes its turn with the store's writes: BEGIN may
// be refused (SQLITE_BUSY) where it waits in SQLite's busy handler. Return that error: the worker
// gives the job back, and it is no attempt unless the run before was postponed as well.
//
// Begin the transaction IMMEDIATE (with [DSN], every BeginTx does). A deferred one that reads first
// and writes later is refused when anybody wrote in between, and the error, a [dedupe.ErrBusy],
// says so. While tx is open nobody else writes to the file, and no job is renewed. So keep tx
// shorter than a third of the lease.
//
// A result that is a []byte is stored as it is, any other as JSON, and nil stores none. After any
// error roll back. The errors:
//
//   - [dedupe.ErrLeaseLost]: another claim has taken the key, the job was settled otherwise, or the
//     worker claims in another store than this one.
//   - [dedupe.ErrResultSize]: the result is too long; nothing was written.
//
// A transaction whose commit was in doubt may be tried again as a whole. If the first one was
// committed, the second CompleteTx answers [dedupe.ErrLeaseLost], because its effects would be
// there twice. The handler may return that error, and the worker finds the job done.
func (s *Store) CompleteTx(ctx context.Context, tx Execer, job dedupe.Owned, result any) error {
	lease, err := join("CompleteTx", job)
	if err != nil {
		return err
	}
	if err := sqlitewriter.CheckTx(ctx, tx); err != nil {
		return fmt.Errorf("sqlitestore: CompleteTx: %w: %w", dedupe.ErrBadRequest, err)
	}
	args, err := completion(&lease, job, result, time.Now())
	if err != nil {
		return fmt.Errorf("sqlitestore: CompleteTx: %w", err)
	}
	res, err := tx.ExecContext(ctx, s.sql.complete, args...)
	if err != nil {
		return explainTx(err)
	}
	n, err := res.RowsAffected()
	if err != nil {
		return explainTx(err)
	}
	if n == 0 {
		return fmt.Errorf("sqlitestore: CompleteTx: roll back; the key was claimed anew, this claim is settled already, "+
			"or this is not the worker's store: %w", dedupe.ErrLeaseLost)
	}
	return nil
}

// completion is the arguments of completeRow.
func completion(lease *dedupe.Lease, job dedupe.Owned, result any, now time.Time) ([]any, error) {
	stored, err := records.Encode(result, maxResult)
	if err != nil {
		return nil, err
	}
	at := sqlitewriter.TimeText(now)
	expires := sqlitewriter.TimeText(now.Add(cmp.Or(max(0, job.Retain()), dedupe.DefaultRetention)))
	return []any{stored, at, at, expires, lease.Key.Scope, lease.Key.Key, lease.Token[:]}, nil
}

func explainTx(err error) error {
	if sqlitewriter.IsBusy(err) {
		return fmt.Errorf("sqlitestore: CompleteTx: roll back; begin the transaction IMMEDIATE (_txlock=immediate): %w: %w", dedupe.ErrBusy, err)
	}
	return explain("CompleteTx: roll back", err)
}
