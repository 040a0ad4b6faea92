package pgbroker

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onceq/onceq/broker/brokertest"
	"github.com/onceq/onceq/internal/pgkit/pgtest"
	"github.com/onceq/onceq/internal/testserver/testpg"
)

// TestPooler runs the suite through PgBouncer in transaction mode, with fewer connections to the
// server than callers, and every call in the modes of pgx that each version takes.
func TestPooler(t *testing.T) {
	addr, _ := pgtest.Pooler(t, testpg.New(t))
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol} {
		pool := poolOn(t, addr, func(c *pgxpool.Config) {
			c.MaxConns = 40
			c.ConnConfig.DefaultQueryExecMode = mode
		})
		if err := wholeLife(t.Context(), pool, mode.String()); err != nil {
			t.Errorf("%v: %v", mode, err)
		}
		if mode == pgx.QueryExecModeCacheDescribe {
			t.Run(mode.String(), func(t *testing.T) {
				brokertest.Run(t, harness(func(testing.TB) *pgxpool.Pool { return pool }))
			})
		}
	}
}
