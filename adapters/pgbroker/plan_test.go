package pgbroker

import (
	"context"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
)

// filled is how many rows of other queues and groups lie beside what the plans look for.
const filled = 60_000

// fill puts rows into the table: half of them ready in one queue, a quarter behind the head of one
// group, a quarter in a thousand queues.
func fill(t testing.TB, q *Queue) {
	t.Helper()
	pool := q.db.(interface {
		Begin(ctx context.Context) (pgx.Tx, error)
	})
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	exec(t, tx, `INSERT INTO onceq_messages (queue, due, grp, waits, body)
		SELECT CASE WHEN n % 4 < 3 THEN $1 ELSE 'other-' || n % 1000 END, clock_timestamp() - interval '1 hour' + n * interval '1 ms',
			CASE WHEN n % 4 = 2 THEN 'one' END, n % 4 = 2 AND n > 2, '\x'
		FROM generate_series(1, $2::int) n`, q.name, filled)
	commit(t, tx)
}

var seqScan = regexp.MustCompile(`Seq Scan on "?onceq_messages|Bitmap|Sort \(|Sort Key`)

// TestPlans: however little the planner knows of the table, every statement goes down an index:
// with the settings of a pipeline, and a plan for any arguments.
func TestPlans(t *testing.T) {
	pool := openPool(t)
	q := newQueue(t, pool, "big", nil)
	exec(t, pool, "ALTER TABLE onceq_messages SET (autovacuum_enabled = false)")
	st := q.sql()
	explain := func(t *testing.T) {
		t.Helper()
		for _, c := range []struct {
			name, sql string
			args      int
			sorts     bool // a sort of what was found, such as the groups of a batch
		}{
			{"receive", st.receive, 4, false},
			{"fresh", st.fresh, 2, false},
			{"lock of given", st.lockGiven, 2, true},
			{"heads", st.heads, 2, false},
			{"seen", st.seen, 2, false},
			{"ack", st.ack.waits, 3, false},
			{"ack, skipping", st.ack.skips, 3, false},
			{"ack of groups", st.ackGrouped.waits, 3, true},
			{"redrive of groups", st.redriveGrouped.waits, 4, true},
			{"redrive", st.redrive.waits, 4, false},
			{"nack", st.nack.waits, 4, false},
			{"extend", st.extend.waits, 4, false},
			{"still", st.still, 3, false},
			{"depth", st.depth, 2, false},
			{"peek", st.peek, 2, false},
		} {
			tx := begin(t, pool, pgx.TxOptions{})
			exec(t, tx, strings.Replace(steady, "$1::pg_catalog.text", "'4s'", 1))
			exec(t, tx, "PREPARE p AS "+c.sql)
			exec(t, tx, "SET LOCAL plan_cache_mode = force_generic_plan")
			args := strings.TrimSuffix(strings.Repeat("NULL, ", c.args), ", ")
			rows, err := tx.Query(t.Context(), "EXPLAIN (COSTS OFF) EXECUTE p("+args+")")
			if err != nil {
				t.Fatalf("%s: %v", c.name, err)
			}
			lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
			if err != nil {
				t.Fatalf("%s: %v", c.name, err)
			}
			plan := strings.Join(lines, "\n")
			found := seqScan.FindString(plan)
			if found != "" && !(c.sorts && strings.HasPrefix(found, "Sort") && !strings.Contains(plan, "Seq Scan on onceq_messages")) {
				t.Errorf("%s has %q in its plan:\n%s", c.name, found, plan)
			}
			if strings.Contains(plan, "onceq_messages_pkey") && (c.name == "receive") && !strings.Contains(plan, "onceq_messages_ready") {
				t.Errorf("%s does not read the index of ready rows:\n%s", c.name, plan)
			}
			exec(t, tx, "DEALLOCATE p")
			if err := tx.Rollback(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	t.Run("empty", explain)
	exec(t, pool, "VACUUM ANALYZE onceq_messages")
	t.Run("analysed when empty", explain)
	fill(t, q)
	t.Run("filled since", explain)
	exec(t, pool, "ANALYZE onceq_messages")
	t.Run("analysed", explain)
}
