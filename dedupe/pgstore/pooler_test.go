package pgstore

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onceq/onceq/dedupe/dedupetest"
	"github.com/onceq/onceq/internal/pgkit/pgtest"
	"github.com/onceq/onceq/internal/testserver/testpg"
)

// TestPooler runs the suite through PgBouncer in transaction mode, with fewer connections to the
// server than callers, in the modes of pgx that its version takes.
func TestPooler(t *testing.T) {
	db := testpg.New(t)
	addr, prepares := pgtest.Pooler(t, db)
	direct := poolOn(t, db.URL)
	for _, mode := range modes {
		if mode == pgx.QueryExecModeCacheStatement && !prepares {
			t.Logf("%v is left out", mode)
			continue
		}
		t.Run(mode.String(), func(t *testing.T) {
			pool := poolOn(t, addr, func(c *pgxpool.Config) {
				c.MaxConns = 20
				c.ConnConfig.DefaultQueryExecMode = mode
			})
			newStore(t, pool, "records")
			if err := wholeLife(t.Context(), pool, mode.String()); err != nil {
				t.Error(err)
			}
			dedupetest.Run(t, dedupetest.Harness{Open: func(t testing.TB) dedupetest.Subject {
				return subjectBeside(t, direct, pool, func(t testing.TB, s *Store, ledger string) dedupetest.Tx { return beginPgx(t, s, pool, ledger) })
			}})
		})
	}
}
