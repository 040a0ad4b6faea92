package pgstore

import (
	"reflect"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onceq/onceq/dedupe/dedupetest"
	"github.com/onceq/onceq/internal/pgkit/pgtest"
)

// sent are all statements of a store: those that it keeps, and those that its calls send.
func sent(t *testing.T) map[string]bool {
	t.Helper()
	s := new(pgtest.Spy)
	pool := openPool(t, func(c *pgxpool.Config) { c.ConnConfig.Tracer = s })
	for _, damage := range []string{"SELECT 1", "DROP SEQUENCE records_fence", "DROP INDEX records_expires"} {
		if err := wholeLife(t.Context(), pool, "k "+damage); err != nil {
			t.Fatal(err)
		}
		exec(t, pool, damage)
	}
	newStore(t, pool, "jobs.records")
	st := reflect.ValueOf(*newStatements("jobs", "records"))
	for _, name := range []string{"insert", "read", "readState", "change", "renew", "lock", "settle", "word", "note", "remove", "sweep"} {
		s.Add(st.FieldByName(name).String())
	}
	s.Add(hasty)
	return s.Sent("SELECT 1", "DROP ")
}

// TestQualified: no function, type or operator of any statement is looked for in the search_path,
// in which others may create.
func TestQualified(t *testing.T) { pgtest.TestQualified(t, sent(t), 30) }

// TestHostilePath runs the suite where the schema public, which comes first in the search_path, is
// full of twins of all that a store uses.
func TestHostilePath(t *testing.T) {
	admin := openPool(t, func(c *pgxpool.Config) { c.MaxConns = 30 })
	pgtest.Hostile(t, admin, sent(t))
	for _, path := range []string{"public", "public, pg_catalog"} {
		pool := poolOn(t, admin.Config().ConnString(), func(c *pgxpool.Config) {
			c.MaxConns = 30
			c.ConnConfig.RuntimeParams["search_path"] = path
		})
		if path != "public" {
			if _, err := pool.Exec(t.Context(), "SELECT clock_timestamp()"); err == nil || !strings.Contains(err.Error(), "hijacked") {
				t.Fatalf("the twins do not take the calls: %v", err)
			}
		}
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			dedupetest.Run(t, dedupetest.Harness{Open: func(t testing.TB) dedupetest.Subject {
				return subjectBeside(t, admin, pool, func(t testing.TB, s *Store, ledger string) dedupetest.Tx {
					return beginPgx(t, s, pool, "public."+ledger)
				})
			}})
		})
	}
	if err := wholeLife(t.Context(), poolOn(t, admin.Config().ConnString(), func(c *pgxpool.Config) {
		c.ConnConfig.RuntimeParams["search_path"] = "public, pg_catalog"
	}), "k"); err != nil {
		t.Error(err)
	}
}
