package pgstore

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/pgkit/pgtest"
)

// fillTable makes n done records, and few of each status that people look for, by one statement.
func fillTable(tb testing.TB, pool *pgxpool.Pool, s *Store, n, few int) {
	tb.Helper()
	exec(tb, pool, s.sql().fill(`INSERT INTO {table} (scope, key, status, fence, token, attempt, started, policy, owner, message_id,
		error_class, first_error, last_error, created, claimed_at, updated, finished, expires, sent)
		SELECT 'scope-' || g % 10, 'job-' || g, CASE WHEN g <= $2 THEN 'failed' WHEN g <= 2 * $2 THEN 'parked' WHEN g <= 3 * $2 THEN 'released' ELSE 'done' END,
			g, gen_random_uuid(), 1, false, 'rerun', 'worker-7f9c:4711', '', '', '', '', now(), now(), now(), now(),
			CASE WHEN g > $2 AND g <= 2 * $2 THEN NULL ELSE now() + interval '31 days' END, now()
		FROM generate_series(1, $1::bigint) g`), n, few)
}

// plan is how the server would run a statement of the store's.
func plan(t *testing.T, pool *pgxpool.Pool, sql string, args []any) string {
	t.Helper()
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(t.Context()) //nolint:errcheck // nothing was written
	if _, err := tx.Exec(t.Context(), steady); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Conn().Deallocate(t.Context(), "asked") }()
	if _, err := tx.Prepare(t.Context(), "asked", sql); err != nil {
		t.Fatal(err)
	}
	values := make([]string, len(args))
	for i, a := range args {
		if values[i] = fmt.Sprintf("'%v'", a); fmt.Sprintf("%T", a) == "time.Time" {
			values[i] = "'" + a.(time.Time).Format(time.RFC3339Nano) + "'"
		}
	}
	given := ""
	if len(values) > 0 {
		given = "(" + strings.Join(values, ", ") + ")"
	}
	rows, err := tx.Query(t.Context(), "EXPLAIN EXECUTE asked"+given)
	if err != nil {
		t.Fatal(err)
	}
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(lines, "\n")
}

// TestAttentionPlans: a list and a count of what failed, was parked or released reads the index of
// these alone, from the first page and from a later one: in the plan that a connection makes while
// the table is empty and just vacuumed, and keeps as it grows, and with and without statistics.
func TestAttentionPlans(t *testing.T) {
	pool := openPool(t)
	s := newStore(t, pool, "records")
	exec(t, pool, "ALTER TABLE records SET (autovacuum_enabled = false)")
	for _, statistics := range []string{"vacuumed when empty", "without statistics", "with statistics"} {
		switch statistics {
		case "without statistics":
			exec(t, pool, "DROP TABLE records")
			s = newStore(t, pool, "records")
			fillTable(t, pool, s, 30_000, 30)
		default:
			exec(t, pool, "VACUUM ANALYZE records")
		}
		for _, st := range []dedupe.Status{dedupe.Failed, dedupe.Parked, dedupe.Released} {
			for what, q := range map[string]dedupe.Query{
				"status":        {Status: st},
				"and scope":     {Status: st, Scope: "scope-3"},
				"and prefix":    {Status: st, Prefix: "job-1"},
				"and time":      {Status: st, Before: time.Now()},
				"and all these": {Status: st, Scope: "scope-3", Prefix: "job-1", Before: time.Now()},
			} {
				for page, last := range map[string]dedupe.Key{"first": {}, "later": {Scope: "scope-3", Key: "job-1"}} {
					sql, args := s.pageQuery(&q, last, listPage)
					if p := plan(t, pool, sql, args); !strings.Contains(p, "records_attention") || strings.Contains(p, "records_pkey") || strings.Contains(p, "Seq Scan") {
						t.Errorf("%v %s, %s page, %s:\n%s", st, what, page, statistics, p)
					}
				}
				sql, args := s.countQuery(&q, 1)
				if p := plan(t, pool, sql, args); !strings.Contains(p, "records_attention") || strings.Contains(p, "records_pkey") || strings.Contains(p, "Seq Scan") {
					t.Errorf("count of %v %s, %s:\n%s", st, what, statistics, p)
				}
			}
		}
	}
	n := 0
	for r, err := range s.List(t.Context(), dedupe.Query{Status: dedupe.Parked}) {
		if err != nil || r.Status != dedupe.Parked {
			t.Fatal(r, err)
		}
		n++
	}
	if n != 30 {
		t.Errorf("%d parked records, want 30", n)
	}
}

// TestHappyPathLeavesTheIndexAlone: a job that is claimed, renewed and done never enters the index.
func TestHappyPathLeavesTheIndexAlone(t *testing.T) {
	pool := openPool(t)
	s := newStore(t, pool, "records")
	for n := range 500 {
		l := claimOne(t, s, request(fmt.Sprintf("%04d", n)))
		settleOne(t, s, l, dedupe.Done)
	}
	if n := pgtest.Scan[int64](t, pool, "SELECT pg_relation_size('records_attention')"); n != 8192 {
		t.Errorf("the index has %d bytes, want the 8,192 of an empty one", n)
	}
	if n := pgtest.Scan[int64](t, pool, "SELECT count(*) FROM records WHERE past IS NOT NULL"); n != 0 {
		t.Errorf("%d of 500 records have a history", n)
	}
}

// TestCountOfALargeTable: what is done is estimated from a part of the table, what failed is
// counted.
func TestCountOfALargeTable(t *testing.T) {
	pool := openPool(t)
	s := newStore(t, pool, "records")
	fillTable(t, pool, s, 450_000, 100)
	share, err := s.share(t.Context())
	if err != nil || share >= 1 {
		t.Fatalf("a share of %v, %v: the table is too small to show anything", share, err)
	}
	counts, err := s.Count(t.Context(), dedupe.Query{})
	if err != nil {
		t.Fatal(err)
	}
	of := make(map[dedupe.Status]int64)
	for _, c := range counts {
		of[c.Status] += c.N
		if c.Exact != slices.Contains(noticed, c.Status) {
			t.Errorf("%+v", c)
		}
	}
	for _, st := range []dedupe.Status{dedupe.Failed, dedupe.Parked, dedupe.Released} {
		if of[st] != 100 {
			t.Errorf("%d %v records, want 100", of[st], st)
		}
	}
	if n := of[dedupe.Done]; n < 390_000 || n > 510_000 {
		t.Errorf("%d done records by estimate, there are 449,700", n)
	}
	t.Logf("done by estimate: %d of 449,700, from a share of %.2f", of[dedupe.Done], share)
}
