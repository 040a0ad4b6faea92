package pgbroker

import (
	"reflect"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onceq/onceq/internal/pgkit/pgtest"
)

// sent are all statements of a queue: those that it keeps, and those that its calls send.
func sent(t *testing.T) map[string]bool {
	t.Helper()
	s := new(pgtest.Spy)
	pool := openPool(t, func(c *pgxpool.Config) { c.ConnConfig.Tracer = s })
	for _, damage := range []string{"SELECT 1", "DROP INDEX onceq_messages_ready", "ALTER SEQUENCE onceq_messages_seq_seq RESTART"} {
		if err := wholeLife(t.Context(), pool, "q "+damage); err != nil {
			t.Fatal(err)
		}
		exec(t, pool, damage)
	}
	q := newQueue(t, pool, "notified", &Options{Table: "jobs.messages", Notify: true})
	send(t, q, bodies("g", "x")...)
	tx := begin(t, pool, pgx.TxOptions{IsoLevel: pgx.Serializable})
	send(t, q.Tx(tx), bodies("g", "y")...)
	commit(t, tx)
	ack(t, q, take(t, q, 1)...)
	st := reflect.ValueOf(*newStatements("jobs", "messages"))
	for _, f := range st.Fields() {
		switch {
		case f.Kind() == reflect.Struct:
			s.Add(f.Field(0).String())
			s.Add(f.Field(1).String())
		case strings.Contains(f.String(), " "):
			s.Add(f.String())
		}
	}
	return s.Sent("SELECT 1", "DROP ", "ALTER SEQUENCE", "LISTEN", "UNLISTEN")
}

// TestQualified: no function, type or operator of any statement is looked for in the search_path,
// in which others may create.
func TestQualified(t *testing.T) { pgtest.TestQualified(t, sent(t), 30) }

// TestHostilePath makes every call of a queue where the schema public, which comes first in the
// search_path, is full of twins of all that a queue uses.
func TestHostilePath(t *testing.T) {
	admin := openPool(t)
	pgtest.Hostile(t, admin, sent(t))
	for _, path := range []string{"public", "public, pg_catalog"} {
		pool := pgtest.PoolOn(t, admin.Config().ConnString(), func(c *pgxpool.Config) { c.ConnConfig.RuntimeParams["search_path"] = path })
		if path != "public" {
			if _, err := pool.Exec(t.Context(), "SELECT clock_timestamp()"); err == nil || !strings.Contains(err.Error(), "hijacked") {
				t.Fatalf("the twins do not take the calls: %v", err)
			}
		}
		if err := wholeLife(t.Context(), pool, "q "+path); err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
}
