package pgbroker

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onceq/onceq/broker/brokertest"
	"github.com/onceq/onceq/internal/must"
	"github.com/onceq/onceq/internal/pgkit"
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

// TestMigrateNamesThePooler: through a pooler that knows nothing of prepared statements one
// connection meets those of another. Migrate says so at the start, with what to set.
func TestMigrateNamesThePooler(t *testing.T) {
	pool := openPool(t, pgtest.MeetsPrepared(pgkit.AskSQL))
	pgtest.Connect(t, pool, 2) // a busy machine may take longer for one than Migrate waits
	q := must.Get(New(pool, "mail", nil))
	if err := q.Migrate(t.Context()); err == nil || !strings.Contains(err.Error(), "QueryExecModeExec") {
		t.Errorf("Migrate: %v, want an error that names the pooler and the mode", err)
	}
	one := poolOn(t, pool.Config().ConnString(), func(c *pgxpool.Config) { c.MaxConns = 1 })
	newQueue(t, one, "mail", nil) // a pool of one connection is asked on that
}
