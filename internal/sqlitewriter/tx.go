package sqlitewriter

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/onceq/onceq/internal/records"
	"github.com/onceq/onceq/internal/values"
)

// Execer is the user's transaction.
type Execer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// CheckTx refuses what is no transaction. It also refuses nil pointers in the interface, because
// their methods panic.
func CheckTx(ctx context.Context, tx Execer) error {
	switch {
	case values.IsNil(tx):
		return errors.New("tx is nil")
	case records.IsSQLPool(tx):
		return fmt.Errorf("tx is a %T, which commits each statement by itself; give it the *sql.Tx that the job's effects are in", tx)
	}
	if _, ok := tx.(interface {
		Raw(f func(driver any) error) error
	}); ok && isIdle(ctx, tx) {
		return errors.New("tx is in no transaction, so that its statements are committed one by one; BEGIN IMMEDIATE first")
	}
	return nil
}

// isIdle reports whether a connection is in no transaction. SQLite has no function that tells. But
// it refuses a BEGIN within a transaction, which goes on; what else is wrong with the connection,
// the next statement will tell.
func isIdle(ctx context.Context, conn Execer) bool {
	if _, err := conn.ExecContext(ctx, "BEGIN"); err != nil {
		return false
	}
	_, _ = conn.ExecContext(context.WithoutCancel(ctx), "ROLLBACK")
	return true
}
