package pgbroker

import (
	"context"
	"fmt"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/pgkit"
)

// producerRights are those that a role which only sends needs on the table.
const producerRights = "INSERT (queue, due, waits, fresh, grp, meta, attributes, body), SELECT (seq)"

// isBusy reports whether the server has refused and rolled back because of others, so that
// repeating is right.
func isBusy(err error) bool {
	switch pgkit.State(err) {
	case pgkit.OutOfMemory, pgkit.TooManyConnections:
		return true
	}
	return pgkit.IsBusy(err)
}

// explain says what was being done, in a form that errors.Is and errors.As see through.
func (q *Queue) explain(ctx context.Context, what string, err error) error {
	switch {
	case err == nil:
		return nil
	case pgkit.IsOpen(ctx, err, isBusy):
		return q.wrap(what, fmt.Errorf("the outcome is unknown: %w: %w", ctx.Err(), err))
	case isBusy(err):
		return q.wrap(what, fmt.Errorf("nothing was written: %w: %w", broker.ErrThrottled, err))
	default:
		return q.wrap(what, q.hint(err))
	}
}

// hint adds what to do about a refusal that repeating does not mend.
func (q *Queue) hint(err error) error {
	switch pgkit.State(err) {
	case pgkit.UndefinedTable:
		return fmt.Errorf("%w: %w (has Migrate been run on table %s, in this database?)", broker.ErrNotFound, err, q.sql().name)
	case pgkit.NoPrivilege:
		return fmt.Errorf("%w (the role needs SELECT, INSERT, UPDATE and DELETE on table %s, and USAGE on its schema; "+
			"who only sends needs %s; and where the table has row level security, a row policy for this queue)", err, q.sql().name, producerRights)
	case pgkit.UniqueViolation:
		return fmt.Errorf("%w (was table %s copied without its sequence? Migrate, run as the table's owner, lets its numbers go on behind the last row)",
			err, q.sql().name)
	case pgkit.ReadOnly:
		return fmt.Errorf("%w (is this connection to a replica, or default_transaction_read_only on?)", err)
	}
	return pgkit.HintAtPooler(err)
}

func (q *Queue) wrap(what string, err error) error {
	return fmt.Errorf("pgbroker: %s: %s: %w", what, q.name, err)
}
