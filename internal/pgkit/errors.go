package pgkit

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5/pgconn"
)

// SQLSTATEs that have a meaning of their own here.
const (
	SerializationFailure = "40001"
	DeadlockDetected     = "40P01"
	LockNotAvailable     = "55P03"
	QueryCanceled        = "57014" // statement_timeout, or an operator's pg_cancel_backend
	OutOfMemory          = "53200" // also that of the table of locks
	TooManyConnections   = "53300"
	UniqueViolation      = "23505"
	UndefinedTable       = "42P01"
	UndefinedColumn      = "42703"
	NoPrivilege          = "42501"
	NotSupported         = "0A000" // such as CONCURRENTLY on a partitioned table
	ReadOnly             = "25006"
	FailedTransaction    = "25P02"
	DuplicateStatement   = "42P05"
	NoStatement          = "26000"
)

// State is the SQLSTATE of the server's error; empty = it is none of the server's.
func State(err error) string {
	if pe := (*pgconn.PgError)(nil); errors.As(err, &pe) {
		return pe.Code
	}
	return ""
}

// IsBusy reports whether the server has refused and rolled back because of others, so that
// repeating is right.
func IsBusy(err error) bool {
	switch State(err) {
	case SerializationFailure, DeadlockDetected, LockNotAvailable, QueryCanceled:
		return true
	}
	return false
}

// IsOpen reports whether ctx has ended before the outcome was known. The refusals that busy knows
// are the server's own, and hold although their answer came late; but a context that ends may be
// what has cancelled the query. pgx does not always name the context's end.
func IsOpen(ctx context.Context, err error, busy func(error) bool) bool {
	return ctx.Err() != nil && (!busy(err) || State(err) == QueryCanceled)
}
