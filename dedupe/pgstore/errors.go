package pgstore

import (
	"context"
	"fmt"

	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/pgkit"
)

// explain says what was being done, in a form that errors.Is and errors.As see through.
func (s *Store) explain(ctx context.Context, what string, err error) error {
	switch state := pgkit.State(err); {
	case err == nil:
		return nil
	case pgkit.IsOpen(ctx, err, pgkit.IsBusy):
		return fmt.Errorf("pgstore: %s: the outcome is unknown: %w: %w", what, ctx.Err(), err)
	case pgkit.IsBusy(err):
		return fmt.Errorf("pgstore: %s: nothing was written: %w: %w", what, dedupe.ErrBusy, err)
	case state == pgkit.UndefinedTable:
		return fmt.Errorf("pgstore: %s: %w (has Migrate been run on table %s?)", what, err, s.sql().name)
	case state == pgkit.UndefinedColumn:
		return fmt.Errorf("pgstore: %s: %w (is table %s of an older version? Run this version's Migrate on it)", what, err, s.sql().name)
	case state == pgkit.NoPrivilege && what == "Migrate":
		return fmt.Errorf("pgstore: %s: %w (something is missing; run Migrate of this version once as the owner of table %s, before the workers start)",
			what, err, s.sql().name)
	case state == pgkit.ReadOnly:
		return fmt.Errorf("pgstore: %s: %w (is this connection to a replica, or default_transaction_read_only on?)", what, err)
	}
	return fmt.Errorf("pgstore: %s: %w", what, pgkit.HintAtPooler(err))
}
