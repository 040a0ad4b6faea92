package pgbroker

import (
	"context"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/pgkit/pgtest"
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

var (
	seqScan = regexp.MustCompile(`Seq Scan on "?onceq_messages|Bitmap|Sort \(|Sort Key`)
	// ways is how a plan comes to rows of the table, and behind it by which condition.
	ways = regexp.MustCompile(`((?:Tid )?Scan[^\n]*) on "?onceq_messages[^\n]*\n(?: *->)?( *(?:Index|TID) Cond: [^\n]*)?`)
)

// atPlace is the way to a row whose place is known.
const atPlace = "Tid Scan"

// byIndex are the conditions that a way down each index must have. A way with fewer reads a whole
// queue, or the whole table.
var byIndex = map[string][]string{
	atPlace:                {"TID Cond: (ctid = "},
	"onceq_messages_pkey":  {"(seq = ANY"},
	"onceq_messages_ready": {"(queue = ", "(due "},
	"onceq_messages_group": {"(queue = ", "(grp = ", "(waits "},
	"onceq_messages_fresh": {"(queue >= ", "(queue <= "},
}

// wholeQueue are the statements that may read all of a queue in an index, up to their limit.
var wholeQueue = []string{"depth", "peek"}

// checkWays finds a scan of the table that does not look its rows up.
func checkWays(t *testing.T, name, plan string) {
	t.Helper()
	found := ways.FindAllStringSubmatch(plan, -1)
	if len(found) == 0 {
		t.Errorf("%s does not read the table:\n%s", name, plan)
	}
	for _, way := range found {
		_, index, _ := strings.Cut(way[1], " using ")
		if way[1] == atPlace {
			index = atPlace
		}
		for _, want := range byIndex[index] {
			if slices.Contains(wholeQueue, name) && want != "(queue = " {
				continue
			}
			if !strings.Contains(way[2], want) {
				t.Errorf("%s goes down %s without %q:\n%s", name, index, want, plan)
			}
		}
		if byIndex[index] == nil {
			t.Errorf("%s has a %q:\n%s", name, way[1], plan)
		}
	}
	if strings.Contains(plan, "Join Filter") {
		t.Errorf("%s compares row by row:\n%s", name, plan)
	}
}

// TestPlans: however little the planner knows of the table, every statement looks its rows up in an
// index, by their numbers, or by what the index is for: with the settings of a pipeline, and a plan
// for any arguments. A drained queue is small, so that this is what connections plan with.
func TestPlans(t *testing.T) {
	pool := openPool(t)
	q := newQueue(t, pool, "big", nil)
	exec(t, pool, "ALTER TABLE onceq_messages SET (autovacuum_enabled = false)")
	st := q.sql()
	explain := func(t *testing.T) {
		t.Helper()
		for _, c := range []struct {
			name, sql string
			sorts     bool // a sort of what was found, such as the groups of a batch
		}{
			{"receive", st.receive, false},
			{"fresh", st.fresh, false},
			{"lock of given", st.lockGiven, true},
			{"heads", st.heads, false},
			{"seen", st.seen, false},
			{"ack", st.ack.waits, false},
			{"ack, skipping", st.ack.skips, false},
			{"ack of groups", st.ackGrouped.waits, true},
			{"redrive of groups", st.redriveGrouped.waits, true},
			{"redrive", st.redrive.waits, false},
			{"nack", st.nack.waits, false},
			{"extend", st.extend.waits, false},
			{"still", st.still, false},
			{"depth", st.depth, false},
			{"peek", st.peek, false},
		} {
			plan := pgtest.Plan(t, pool, c.sql, strings.Replace(steady, "$1::pg_catalog.text", "'4s'", 1))
			found := seqScan.FindString(plan)
			if found != "" && !(c.sorts && strings.HasPrefix(found, "Sort") && !strings.Contains(plan, "Seq Scan on onceq_messages")) {
				t.Errorf("%s has %q in its plan:\n%s", c.name, found, plan)
			}
			checkWays(t, c.name, plan)
			if n := len(ways.FindAllString(plan, -1)); c.name == "ack" && n != 1 || c.name == "receive" && n != 2 {
				t.Errorf("%s comes to its rows in %d ways:\n%s", c.name, n, plan)
			}
		}
		for _, role := range []string{"SET LOCAL enable_tidscan = off", "SET LOCAL enable_nestloop = off"} {
			plan := pgtest.Plan(t, pool, st.receive, role, strings.Replace(steady, "$1::pg_catalog.text", "'4s'", 1))
			checkWays(t, "receive with "+role, plan)
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

// TestBurst: a backlog that comes to a drained queue, which vacuum has seen, is read by connections
// that have planned for the drained one as fast as by new ones.
func TestBurst(t *testing.T) {
	const few, backlog, batch, rounds = 5, 20_000, 100, 4
	for name, group := range map[string]string{"no groups": "NULL", "a group each": "'g' || n"} {
		t.Run(name, func(t *testing.T) {
			admin := openPool(t)
			one := func(c *pgxpool.Config) { c.MaxConns = 1 }
			warm := newQueue(t, poolOn(t, admin.Config().ConnString(), one), "burst", nil)
			exec(t, admin, "ALTER TABLE onceq_messages SET (autovacuum_enabled = false)")
			exec(t, admin, "VACUUM ANALYZE onceq_messages")
			// round is what a worker does with a batch, and how long it took.
			round := func(q *Queue, n int) time.Duration {
				q.groups.hint.Store(true)
				from := time.Now()
				ms := take(t, q, n)
				hs := make([]broker.Hold, len(ms))
				for i, m := range ms {
					hs[i] = broker.Hold{Receipt: m.Receipt, For: time.Minute}
				}
				if err := q.Extend(t.Context(), hs); err != nil {
					t.Fatal(err)
				}
				ack(t, q, ms...)
				return time.Since(from)
			}
			fill := func(n int) {
				exec(t, admin, `INSERT INTO onceq_messages (queue, grp, waits, fresh, body)
					SELECT 'burst', g, g IS NOT NULL, g IS NOT NULL, '\x' FROM (SELECT `+group+` AS g FROM generate_series(1, $1::int) n) s`, n)
			}
			for range 2 {
				fill(few)
				round(warm, few)
			}
			fill(backlog)
			cold := newQueue(t, poolOn(t, admin.Config().ConnString(), one), "burst", nil)
			fastest := map[*Queue]time.Duration{warm: time.Hour, cold: time.Hour}
			// A busy machine may hold up each of a few rounds.
			for n := 0; n < rounds || n < 10*rounds && fastest[warm] > 5*fastest[cold]; n++ {
				for _, q := range []*Queue{cold, warm} {
					fastest[q] = min(fastest[q], round(q, batch))
				}
			}
			// Plans that read the backlog for each row took 60 times as long with groups.
			if fastest[warm] > 5*fastest[cold] {
				t.Errorf("a batch takes %v on the connection that knew the drained queue, %v on a new one", fastest[warm], fastest[cold])
			}
		})
	}
}
