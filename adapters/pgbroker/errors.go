package pgbroker

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/onceq/onceq/broker"
)

// SQLSTATEs that have a meaning of their own here.
const (
	serializationFailure  = "40001"
	deadlockDetected      = "40P01"
	lockNotAvailable      = "55P03"
	queryCanceled         = "57014" // statement_timeout, or an operator's pg_cancel_backend
	outOfMemory           = "53200" // also that of the table of locks
	tooManyConnections    = "53300"
	uniqueViolation       = "23505"
	undefinedTable        = "42P01"
	insufficientPrivilege = "42501"
	readOnly              = "25006"
	failedTransaction     = "25P02"
)

// producerRights are those that a role which only sends needs on the table.
const producerRights = "INSERT (queue, due, waits, fresh, grp, meta, attributes, body), SELECT (seq)"

func sqlState(err error) string {
	if pe := (*pgconn.PgError)(nil); errors.As(err, &pe) {
		return pe.Code
	}
	return ""
}

// isBusy reports whether the server has refused and rolled back because of others, so that
// repeating is right.
func isBusy(err error) bool {
	switch sqlState(err) {
	case serializationFailure, deadlockDetected, lockNotAvailable, queryCanceled, outOfMemory, tooManyConnections:
		return true
	}
	return false
}

// explain says what was being done, in a form that errors.Is and errors.As see through.
func (q *Queue) explain(ctx context.Context, what string, err error) error {
	switch state := sqlState(err); {
	case err == nil:
		return nil
	case ctx.Err() != nil && (!isBusy(err) || state == queryCanceled):
		// The other refusals are the server's own, and hold although their answer came late.
		// pgx does not always name the context's end.
		return q.wrap(what, fmt.Errorf("the outcome is unknown: %w: %w", ctx.Err(), err))
	case isBusy(err):
		return q.wrap(what, fmt.Errorf("nothing was written: %w: %w", broker.ErrThrottled, err))
	default:
		return q.wrap(what, q.hint(err))
	}
}

// hint adds what to do about a refusal that repeating does not mend.
func (q *Queue) hint(err error) error {
	switch sqlState(err) {
	case undefinedTable:
		return fmt.Errorf("%w: %w (has Migrate been run on table %s, in this database?)", broker.ErrNotFound, err, q.sql().name)
	case insufficientPrivilege:
		return fmt.Errorf("%w (the role needs SELECT, INSERT, UPDATE and DELETE on table %s, and USAGE on its schema; "+
			"who only sends needs %s; and where the table has row level security, a row policy for this queue)", err, q.sql().name, producerRights)
	case uniqueViolation:
		return fmt.Errorf("%w (was table %s copied without its sequence? Migrate, run as the table's owner, lets its numbers go on behind the last row)",
			err, q.sql().name)
	case readOnly:
		return fmt.Errorf("%w (is this connection to a replica, or default_transaction_read_only on?)", err)
	}
	return err
}

func (q *Queue) wrap(what string, err error) error {
	return fmt.Errorf("pgbroker: %s: %s: %w", what, q.name, err)
}
