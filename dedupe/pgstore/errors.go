package pgstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/onceq/onceq/dedupe"
)

// SQLSTATEs that have a meaning of their own here.
const (
	serializationFailure = "40001"
	deadlockDetected     = "40P01"
	lockNotAvailable     = "55P03"
	queryCanceled        = "57014" // statement_timeout, or an operator's pg_cancel_backend
	undefinedTable       = "42P01"
	undefinedColumn      = "42703"
	noPrivilege          = "42501"
	notSupported         = "0A000" // such as CONCURRENTLY on a partitioned table
	readOnly             = "25006"
	failedTransaction    = "25P02"
	duplicateStatement   = "42P05"
	noStatement          = "26000"
)

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
	case serializationFailure, deadlockDetected, lockNotAvailable, queryCanceled:
		return true
	}
	return false
}

// explain says what was being done, in a form that errors.Is and errors.As see through.
func (s *Store) explain(ctx context.Context, what string, err error) error {
	switch state := sqlState(err); {
	case err == nil:
		return nil
	case ctx.Err() != nil && (!isBusy(err) || state == queryCanceled):
		// The other refusals are the server's own, and hold although their answer came late.
		// pgx does not always name the context's end.
		return fmt.Errorf("pgstore: %s: the outcome is unknown: %w: %w", what, ctx.Err(), err)
	case isBusy(err):
		return fmt.Errorf("pgstore: %s: nothing was written: %w: %w", what, dedupe.ErrBusy, err)
	case state == undefinedTable:
		return fmt.Errorf("pgstore: %s: %w (has Migrate been run on table %s?)", what, err, s.sql().name)
	case state == undefinedColumn:
		return fmt.Errorf("pgstore: %s: %w (is table %s of an older version? Run this version's Migrate on it)", what, err, s.sql().name)
	case state == noPrivilege && what == "Migrate":
		return fmt.Errorf("pgstore: %s: %w (something is missing; run Migrate of this version once as the owner of table %s, before the workers start)",
			what, err, s.sql().name)
	case state == duplicateStatement, state == noStatement:
		return fmt.Errorf("pgstore: %s: %w (is a pooler between, such as PgBouncer before 1.21, that hands one connection's prepared statements to another? "+
			"Set ConnConfig.DefaultQueryExecMode to pgx.QueryExecModeExec)", what, err)
	case state == readOnly:
		return fmt.Errorf("pgstore: %s: %w (is this connection to a replica, or default_transaction_read_only on?)", what, err)
	}
	return fmt.Errorf("pgstore: %s: %w", what, err)
}
