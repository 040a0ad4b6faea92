package pgstore

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/pgkit"
)

// TestLateRefusal: an answer that comes when the context has ended is an answer all the same. Only
// a cancelled query says nothing, because that may be what the context's end has brought about.
func TestLateRefusal(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for state, busy := range map[string]bool{
		pgkit.LockNotAvailable: true, pgkit.DeadlockDetected: true, pgkit.SerializationFailure: true, pgkit.QueryCanceled: false, pgkit.UndefinedTable: false,
	} {
		err := new(Store).explain(ended, "Settle", &pgconn.PgError{Code: state})
		unknown := errors.Is(err, context.Canceled) && strings.Contains(err.Error(), "outcome is unknown")
		if errors.Is(err, dedupe.ErrBusy) != busy || unknown == busy {
			t.Errorf("%s: %v", state, err)
		}
	}
}
