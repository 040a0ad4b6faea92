package pgstore

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"math/bits"
	"reflect"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/pgkit"
	"github.com/onceq/onceq/internal/records"
)

// This file owns the completion of a job within a transaction of the user's own. Handlers call
// CompleteTx and CompleteSQL, each in its own goroutine and on its own connection. The database's
// row lock is the only lock.

// finishOwn is the row "own claim" and the row "late word of the parked claim" of the settlement to
// done. It refuses a job that is done already, because a transaction tried again after a commit in
// doubt would have its effect twice.
//
// It runs in the user's transaction, so it is as short as it can be. statement_timestamp() is the
// same in all columns and needs no subquery.
//
// The user's transaction has the client_encoding of its role, which may not be UTF8. Nothing here
// is text that the server would transcode: the key goes as bytes.
const finishOwn = `UPDATE {table} t SET status = 'done', result = $1::pg_catalog.bytea, error_class = '', first_error = '', last_error = '', lease_until = NULL,
	state = NULL, message_id = '',
	updated = pg_catalog.statement_timestamp(), finished = pg_catalog.statement_timestamp(),
	expires = pg_catalog.statement_timestamp() {+} ($2::bigint::float {*} interval '1 microsecond')
WHERE t.scope {=} pg_catalog.convert_from($3::pg_catalog.bytea, 'UTF8') AND t.key {=} pg_catalog.convert_from($4::pg_catalog.bytea, 'UTF8')
	AND t.token {=} $5::pg_catalog.text::pg_catalog.uuid AND (t.status {=} 'claimed' OR t.status {=} 'parked')`

// plans is how often a connection plans finishOwn anew, at most. The user's transaction has none of
// the planner settings of a pipeline. A plan that was made while the table was small and vacuumed
// reads the whole table until the next ANALYZE, however it grows meanwhile. Therefore the store
// changes the comment in the statement when the fences that it has seen have risen fourfold. To the
// connection that is another statement, which is planned anew. So a table that is read whole has at
// most four times as many rows as were claimed when the plan was made.
const plans = 32

// plan is the place of the statement that completes a job of this fence, among those that differ in
// their comment.
func (s *Store) plan(fence uint64) int {
	base := s.firstFence.Load()
	if base == 0 {
		s.firstFence.CompareAndSwap(0, fence)
		base = s.firstFence.Load()
	}
	if fence <= base {
		return 0
	}
	return max(0, bits.Len64(fence-base)-smallTable) / 2
}

// smallTable is the logarithm of a number of rows: to read that many takes no longer than to use
// the index.
const smallTable = 7

// Execer is the user's transaction, a [pgx.Tx]. A pool has the method, too, but is refused, because
// it would commit each statement by itself. So is a [*pgx.Conn] that is in no transaction.
type Execer interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

// SQLExecer is the user's transaction in database/sql: a [*sql.Tx], or a [*sql.Conn] on which BEGIN
// was run. Refused are a [*sql.DB], whatever has one embedded, such as the DB of other packages,
// and a conn of pgx/v5/stdlib without its BEGIN. With another driver a missing BEGIN cannot be
// seen.
type SQLExecer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// CompleteTx writes job done within tx, so that the job's effects in tx and its completion are
// committed together or not at all: exactly one effect, whatever crashes. tx must be in the store's
// own database. From then on the worker never writes done itself; what it finds after the handler
// decides.
//
// Call it on the outermost transaction. In a savepoint that is rolled back the completion alone is
// undone: the job runs again, and what the outer transaction commits comes once for each attempt.
// A savepoint of pgx, which [pgx.Tx.Begin] and [pgx.BeginFunc] make within a transaction, is
// refused ([dedupe.ErrBadRequest]). One that was made by SQL, or by another library, cannot be
// seen.
//
// From CompleteTx to the end of tx the job's row is locked. Renewals of the job are then busy,
// which harms nobody because the lock is the lease. Calls for other jobs never wait for it.
//
// Under REPEATABLE READ or SERIALIZABLE call it before anything else in tx. The worker's renewals
// change the row, and PostgreSQL refuses a snapshot from before the last renewal (SQLSTATE 40001).
// The error says so.
//
// A result that is a []byte is stored as it is, any other as JSON, and nil stores none. After any
// error roll back. The errors:
//
//   - [dedupe.ErrResultSize]: the result has more than 1 MiB.
//   - [dedupe.ErrLeaseLost]: another claim has taken the key, this one is settled already, or the
//     worker claims in another store than this one.
//   - [dedupe.ErrBusy]: the server gave up waiting, because of a lock_timeout or a deadlock, for
//     instance. The transaction may be tried again.
//
// A transaction whose commit was in doubt may be tried again as a whole. If the first one was
// committed, the second CompleteTx answers [dedupe.ErrLeaseLost], because its effects would be
// there twice. The handler may return that error; the worker finds the job done.
func (s *Store) CompleteTx(ctx context.Context, tx Execer, job dedupe.Owned, result any) error {
	return s.complete("CompleteTx", job, result, func() error { return checkTx(tx) }, func(sql string, args []any) (int64, error) {
		tag, err := tx.Exec(ctx, sql, args...)
		return tag.RowsAffected(), err
	})
}

// CompleteSQL is [Store.CompleteTx] for a transaction of database/sql, of whatever driver for
// PostgreSQL.
func (s *Store) CompleteSQL(ctx context.Context, tx SQLExecer, job dedupe.Owned, result any) error {
	return s.complete("CompleteSQL", job, result, func() error { return checkSQL(tx) }, func(query string, args []any) (int64, error) {
		res, err := tx.ExecContext(ctx, query, args...)
		if err != nil {
			return 0, err
		}
		return res.RowsAffected()
	})
}

func (s *Store) complete(call string, job dedupe.Owned, result any, check func() error,
	exec func(sql string, args []any) (int64, error),
) error {
	lease, err := join(call, job)
	if err != nil {
		return err
	}
	if err := check(); err != nil {
		return fmt.Errorf("pgstore: %s: %w", call, err)
	}
	args, err := completion(call, job, &lease, result)
	if err != nil {
		return err
	}
	n, err := exec(s.sql().finish[s.plan(lease.Fence)], args)
	switch {
	case err != nil:
		return s.explainTx(call+": roll back", err)
	case n == 0:
		return leaseLost(call + ": roll back")
	}
	return nil
}

// join refuses what cannot be completed.
func join(call string, job dedupe.Owned) (dedupe.Lease, error) {
	lease, err := records.Join(job)
	if err == nil {
		err = lease.Key.Validate()
	}
	if err != nil {
		return lease, fmt.Errorf("pgstore: %s: %w", call, err)
	}
	return lease, nil
}

// completion is the arguments of finishOwn.
func completion(call string, job dedupe.Owned, lease *dedupe.Lease, result any) ([]any, error) {
	stored, err := records.Encode(result, maxResult)
	if err != nil {
		return nil, fmt.Errorf("pgstore: %s: %w", call, err)
	}
	retain := pgkit.Micros(cmp.Or(max(0, job.Retain()), dedupe.DefaultRetention))
	// One text, of which the arguments are parts: bytes in hexadecimal are the same in every
	// encoding.
	var b strings.Builder
	b.Grow(2 * (len(`\x\x`) + len(lease.Key.Scope) + len(lease.Key.Key) + len(lease.Token)))
	b.WriteString(`\x`)
	writeHex(&b, lease.Key.Scope)
	scope := b.Len()
	b.WriteString(`\x`)
	writeHex(&b, lease.Key.Key)
	key := b.Len()
	writeHex(&b, string(lease.Token[:]))
	text := b.String()
	return []any{stored, retain, text[:scope], text[scope:key], text[key:]}, nil
}

// writeHex is hex.EncodeToString without its copies.
func writeHex(b *strings.Builder, s string) {
	const digits = "0123456789abcdef"
	for i := range len(s) {
		b.WriteByte(digits[s[i]>>4])
		b.WriteByte(digits[s[i]&15])
	}
}

// leaseLost is the answer to a completion that has found no row.
func leaseLost(what string) error {
	return fmt.Errorf("pgstore: %s; the key was claimed anew, this claim is settled already, or this is not the worker's store: %w",
		what, dedupe.ErrLeaseLost)
}

// checkTx finds what is no transaction, and what is one within another.
func checkTx(tx Execer) error {
	if tx != nil && isSavepoint(tx) {
		return fmt.Errorf("%w: tx is a savepoint; its rollback would undo the completion alone, and the job would run again: call it on the outermost transaction",
			dedupe.ErrBadRequest)
	}
	return refused(pgkit.CheckTx(tx, effects))
}

func checkSQL(tx SQLExecer) error { return refused(pgkit.CheckSQL(tx, effects)) }

const effects = "the job's effects are"

func refused(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", dedupe.ErrBadRequest, err)
}

// isSavepoint recognises a transaction of pgx within another one, by its type. That has no name
// outside of pgx; a test notices when it changes.
func isSavepoint(tx any) bool {
	if g, ok := tx.(gate); ok {
		tx = g.Tx
	}
	t := reflect.TypeOf(tx)
	return t.Kind() == reflect.Pointer && t.Elem().PkgPath() == "github.com/jackc/pgx/v5" && t.Elem().Name() == "dbSimulatedNestedTx"
}

// explainTx says what to do about an error within the user's transaction, or what was done.
func (s *Store) explainTx(what string, err error) error {
	switch pgkit.State(err) {
	case pgkit.SerializationFailure:
		return fmt.Errorf("pgstore: %s; under REPEATABLE READ and SERIALIZABLE it must be the first statement of the "+
			"transaction, for the worker's renewals change the row that it completes: %w: %w", what, dedupe.ErrBusy, err)
	case pgkit.DeadlockDetected, pgkit.LockNotAvailable, pgkit.QueryCanceled:
		return fmt.Errorf("pgstore: %s, then try the transaction again: %w: %w", what, dedupe.ErrBusy, err)
	case pgkit.FailedTransaction:
		return fmt.Errorf("pgstore: %s; a statement before it has failed: %w", what, err)
	case pgkit.UndefinedTable:
		return fmt.Errorf("pgstore: %s: %w (is the transaction in the store's database, with its search_path, and has "+
			"Migrate been run on table %s?)", what, err, s.sql().name)
	}
	return fmt.Errorf("pgstore: %s: %w", what, err)
}
