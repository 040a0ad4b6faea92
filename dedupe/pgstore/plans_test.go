package pgstore

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/pgkit/pgtest"
)

// TestLookups: in the plan that stays, each key is looked up in the primary key's index by its
// scope and itself, and a locked row is found at its place. So it is on an empty table that nobody
// has analysed, where the planner would read the table whole. So it is after a VACUUM of the empty
// table, when all ways to read it cost the same: a walk through the whole index, whose rows are
// compared afterwards, would do as well, until the table grows. So it is whatever the role has set.
func TestLookups(t *testing.T) {
	pool := openPool(t)
	for _, vacuumed := range []bool{false, true} {
		s := newStore(t, pool, newTable())
		if vacuumed {
			exec(t, pool, "VACUUM ANALYZE "+s.table)
		}
		st := s.sql()
		for name, c := range map[string]struct {
			sql      string
			keys, at int // lookups of a key, and at a row's place
		}{
			"claim":       {st.insert, 1, 0},
			"read":        {st.read, 1, 0},
			"read states": {st.readState, 1, 0},
			"claim again": {st.change, 1, 1},
			"renew":       {st.renew, 2, 1},
			"lock":        {st.lock, 1, 0},
			"settle":      {st.settle, 2, 1},
			"late word":   {st.word, 2, 1},
			"late error":  {st.note, 1, 1},
			"forget":      {st.remove, 1, 1},
			"sweep":       {st.sweep, 0, 1},
		} {
			for _, role := range []string{
				"", "SET LOCAL enable_indexscan = off", "SET LOCAL enable_tidscan = off", "SET LOCAL enable_nestloop = off",
				"SET LOCAL enable_material = off", "SET LOCAL random_page_cost = 1000", "SET LOCAL plan_cache_mode = force_custom_plan",
			} {
				plan := pgtest.Plan(t, pool, c.sql, role, steady)
				keys, at := 0, 0
				for _, scan := range scans(plan, s.table) {
					switch {
					case strings.Contains(scan, "Tid Scan on") && strings.Contains(scan, "TID Cond: (ctid = "):
						at++
					case strings.Contains(scan, "Index ") && byKey.MatchString(scan):
						keys++
					case name == "sweep" && strings.Contains(scan, "Index Cond: (expires "):
					default:
						t.Errorf("%s, vacuumed %t, with %q: neither the look-up of a key nor of a row's place: %s\n%s", name, vacuumed, role, scan, plan)
					}
				}
				if keys != c.keys || at != c.at {
					t.Errorf("%s, vacuumed %t, with %q: %d look-ups of keys and %d of places, want %d and %d:\n%s", name, vacuumed, role, keys, at, c.keys, c.at, plan)
				}
			}
		}
	}
}

// byKey is an index condition on both columns of the key. Of what is parked another index has them,
// behind the status.
var byKey = regexp.MustCompile(`Index Cond: \((\(status = 'parked'::text\) AND )?\(scope = .*\) AND \(key = `)

// scans are the nodes of a plan that read the table, each with its conditions.
func scans(plan, table string) (found []string) {
	read := regexp.MustCompile(`Scan( Backward)?( using \w+)? on ` + table + `\b`)
	for node := range strings.SplitSeq(plan, "->") {
		if read.MatchString(node) || strings.Contains(node, "Bitmap Index Scan") {
			found = append(found, strings.Join(strings.Fields(node), " "))
		}
	}
	return found
}

// TestBurst: a connection that has planned while the table was empty and just vacuumed, as that of
// a new deployment is, reads no more of a burst than it asks for. The rows are counted, because
// times would depend on what else the machine does.
func TestBurst(t *testing.T) {
	pool := openPool(t)
	table := newTable()
	other := newStore(t, pool, table)
	exec(t, pool, "ALTER TABLE "+table+" SET (autovacuum_enabled = false)")
	exec(t, pool, "VACUUM ANALYZE "+table)
	theirs := poolOn(t, pool.Config().ConnString(), func(c *pgxpool.Config) { c.MaxConns = 1 })
	warm := newStore(t, theirs, table)
	live(t, warm, "warm")
	const burst, rounds, most = 4000, 5, 4000
	for n := 0; n < burst; n += 500 {
		qs := make([]dedupe.ClaimRequest, 500)
		for i := range qs {
			qs[i] = request(fmt.Sprintf("burst %06d", n+i))
		}
		claimAll(t, other, qs...)
	}
	for n := range rounds {
		live(t, warm, fmt.Sprint("then ", n))
	}
	theirs.Close() // what a connection has counted is known when it has ended
	pool.Close()
	fresh := poolOn(t, pool.Config().ConnString())
	until(t, "the count", func() bool {
		return pgtest.Scan[int64](t, fresh, "SELECT n_tup_ins FROM pg_stat_user_tables WHERE relname = $1", table) == burst+(rounds+1)*lives
	})
	read := pgtest.Scan[int64](t, fresh, `SELECT (SELECT sum(idx_tup_read) FROM pg_stat_user_indexes WHERE relname = $1)::bigint
		+ (SELECT seq_tup_read FROM pg_stat_user_tables WHERE relname = $1)`, table)
	t.Logf("%d rows were read", read)
	if read > most {
		t.Errorf("%d rounds of %d jobs beside %d others have read %d rows, want %d at most", rounds, lives, burst, read, most)
	}
}

// lives is how many jobs go through each statement at once.
const lives = 10

func live(t *testing.T, s *Store, name string) {
	t.Helper()
	qs := make([]dedupe.ClaimRequest, lives)
	for i := range qs {
		qs[i] = request(fmt.Sprint(name, i))
	}
	renewals, ends, forgotten := make([]dedupe.Renewal, lives), make([]dedupe.Settlement, lives), make([]dedupe.Forgotten, lives)
	for i, c := range claimAll(t, s, qs...) {
		renewals[i] = dedupe.Renewal{Key: c.Lease.Key, Token: c.Lease.Token, TTL: time.Minute}
		ends[i] = dedupe.Settlement{Key: c.Lease.Key, Token: c.Lease.Token, To: dedupe.Released}
		qs[i].Token = newToken()
	}
	if _, err := s.Renew(t.Context(), renewals); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Settle(t.Context(), ends); err != nil {
		t.Fatal(err)
	}
	for i, c := range claimAll(t, s, qs...) { // a released record is changed
		if c.Outcome != dedupe.Won || c.Fresh {
			t.Fatalf("claimed again: %+v", c)
		}
		forgotten[i] = dedupe.Forgotten{Key: c.Lease.Key, Fence: c.Lease.Fence, Force: true}
	}
	if _, err := s.Forget(t.Context(), forgotten); err != nil {
		t.Fatal(err)
	}
	if n, err := s.Sweep(t.Context(), 0); err != nil || n != 0 {
		t.Fatal(n, err)
	}
}

// TestLookupsOfPartitions: partitions of one table have rows at the same places. A settlement, a
// claim that changes a record, a removal and a sweep leave those of other keys alone.
func TestLookupsOfPartitions(t *testing.T) {
	pool := openPool(t)
	s := newStore(t, pool, "records")
	exec(t, pool, `DROP SEQUENCE records_fence; ALTER TABLE records RENAME TO plain; DROP INDEX records_attention, records_expires;
		CREATE TABLE records (LIKE plain, PRIMARY KEY (scope, key)) PARTITION BY LIST (key);
		CREATE TABLE records_a PARTITION OF records FOR VALUES IN ('a'); CREATE TABLE records_b PARTITION OF records FOR VALUES IN ('b');
		CREATE INDEX records_attention ON records (status, scope, key) WHERE status = 'failed' OR status = 'parked' OR status = 'released'`)
	if err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	untouched := func(step string, k dedupe.Key, want dedupe.Status) {
		t.Helper()
		if r := get(t, s, k); r == nil || r.Status != want {
			t.Fatalf("after %s of the other key: %+v, want %v", step, r, want)
		}
	}
	pack := func() {
		t.Helper()
		for _, part := range []string{"records_a", "records_b"} {
			exec(t, pool, "VACUUM FULL "+part)
		}
	}
	cs := claimAll(t, s, request("a"), request("b"))
	a, b := cs[0].Lease, cs[1].Lease
	if pgtest.Scan[int](t, pool, "SELECT count(DISTINCT ctid) FROM records") != 1 {
		t.Fatal("the rows have places of their own: the test shows nothing")
	}
	if _, err := s.Renew(t.Context(), []dedupe.Renewal{{Key: a.Key, Token: a.Token, TTL: time.Hour, StateNo: 1, State: []byte("a's")}}); err != nil {
		t.Fatal(err)
	}
	if r := get(t, s, b.Key); r.State != nil {
		t.Fatalf("a renewal has written the state of another key: %+v", r)
	}
	exec(t, pool, "TRUNCATE records")
	cs = claimAll(t, s, request("a"), request("b"))
	a, b = cs[0].Lease, cs[1].Lease
	settleOne(t, s, a, dedupe.Released)
	untouched("a settlement", b.Key, dedupe.Claimed)
	settleOne(t, s, b, dedupe.Released)
	again := claimAll(t, s, request("a"))[0]
	untouched("a claim", b.Key, dedupe.Released)
	pack() // both stand at the first place
	if _, err := s.Forget(t.Context(), []dedupe.Forgotten{{Key: again.Lease.Key, Fence: again.Lease.Fence, Force: true}}); err != nil {
		t.Fatal(err)
	}
	untouched("a removal", b.Key, dedupe.Released)
	exec(t, pool, "TRUNCATE records")
	cs = claimAll(t, s, request("a"), request("b"))
	settleOne(t, s, cs[0].Lease, dedupe.Done)
	exec(t, pool, "UPDATE records SET expires = now() WHERE key = 'a'")
	pack()
	if n, err := s.Sweep(t.Context(), 0); err != nil || n != 1 {
		t.Errorf("swept %d, %v", n, err)
	}
	untouched("a sweep", cs[1].Lease.Key, dedupe.Claimed)
}
