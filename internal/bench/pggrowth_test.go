package bench

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onceq/onceq/adapters/pgbroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/testserver/testpg"
)

const (
	// rowsEnv is how many rows the large tables of BenchmarkPostgresQueueGrowth have. Default 10
	// million.
	rowsEnv = "ONCEQ_ROWS"
	// messageBytes is what a waiting message takes on the disk while a table is filled: the row,
	// its part of the indexes, and the log.
	messageBytes = 600
	// receives is how many receives and acks a round measures of each table.
	receives = 40
)

// growth is a table whose receives are measured.
type growth struct {
	name, table string
	queue       string
	fill        string // from $1 and $2 on, ids; $3 is the queue
	rows        int

	q           *pgbroker.Queue
	first, took []time.Duration
	beside      []float64
}

// BenchmarkPostgresQueueGrowth receives from tables that take turns. A receive of a hundred, whose
// ack is not measured, from
//
//	small      1,000 messages
//	waiting    10 million messages that are due, or as many as ONCEQ_ROWS says
//	later      as many that are not due yet, and a thousand that are
//	followers  a tenth as many behind the head of one group, and a thousand in no group
//	queues     a thousandth as many queues, a thousand messages in each
//
// It says first how much disk it needs. Filling takes minutes.
func BenchmarkPostgresQueueGrowth(b *testing.B) {
	rows := 10_000_000
	if s := os.Getenv(rowsEnv); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil || n < 10_000 {
			b.Fatalf("%s is %q, want a number, 10000 or more", rowsEnv, s)
		}
		rows = max(n, 100_000) // fewer would not last for the rounds
	}
	const few = (2*rounds + 2) * receives * perBatch // more than the rounds take away
	const plain = `SELECT $3, clock_timestamp() - interval '1 hour' + n * interval '1 microsecond', NULL::text, false, '\x7b7d' FROM generate_series($1::bigint, $2::bigint) n`
	gs := []*growth{
		{name: "small", table: "small", queue: "a", fill: plain, rows: few},
		{name: "waiting", table: "waiting", queue: "a", fill: plain, rows: rows},
		{name: "later", table: "later", queue: "a", rows: rows, fill: `SELECT $3, CASE WHEN n % (` + strconv.Itoa(rows/few) + `) = 0
			THEN clock_timestamp() - interval '1 hour' ELSE clock_timestamp() + interval '1 day' END + n * interval '1 microsecond', NULL::text, false, '\x7b7d'
			FROM generate_series($1::bigint, $2::bigint) n`},
		{name: "followers", table: "followers", queue: "a", rows: rows/10 + few, fill: `SELECT $3, clock_timestamp() - interval '1 hour' + n * interval '1 microsecond',
			CASE WHEN n > ` + strconv.Itoa(few) + ` THEN 'one' END, n > ` + strconv.Itoa(few+1) + `, '\x7b7d' FROM generate_series($1::bigint, $2::bigint) n`},
		{name: "queues", table: "queues", queue: "queue-7", rows: rows + few, fill: `SELECT CASE WHEN n <= ` + strconv.Itoa(few) + ` THEN $3 ELSE 'queue-' || (n % ` + strconv.Itoa(rows/1000) + `) END,
			clock_timestamp() - interval '1 hour' + n * interval '1 microsecond', NULL::text, false, '\x7b7d' FROM generate_series($1::bigint, $2::bigint) n`},
	}
	all := 0
	for _, g := range gs {
		all += g.rows
	}
	fmt.Fprintf(os.Stderr, "BenchmarkPostgresQueueGrowth fills tables with %d rows: it needs %.1f GB of the server's disk (%s=1000000 needs less)\n",
		all, float64(all)*messageBytes/1e9, rowsEnv)
	pool := openPool(b, testpg.NewDurable(b).URL)
	for _, g := range gs {
		g.open(b, pool)
	}
	b.ResetTimer()
	for round := range 2*rounds + 1 {
		for i := range gs {
			gs[(i+round)%len(gs)].round(b, round > 0)
		}
		for _, g := range gs {
			if round > 0 {
				g.beside = append(g.beside, float64(p50(g.took))/float64(p50(gs[0].took)))
			}
		}
	}
	b.ReportMetric(0, "ns/op")
	for _, g := range gs {
		slices.Sort(g.beside)
		n := len(g.beside)
		b.Logf("%-10s %9d rows: p50 %v, %.2f x the small table's (%.2f-%.2f), first receives %v", g.name, g.rows, p50(g.took), g.beside[n/2], g.beside[n/4], g.beside[3*n/4], g.first)
		b.ReportMetric(float64(p50(g.took))/1e6, g.name+"-p50-ms")
		b.ReportMetric(g.beside[n/2], g.name+"-x-small")
	}
}

func p50(ds []time.Duration) time.Duration {
	ds = slices.Sorted(slices.Values(ds))
	return ds[len(ds)/2]
}

// open makes the table and fills it.
func (g *growth) open(b *testing.B, pool *pgxpool.Pool) {
	b.Helper()
	var err error
	if g.q, err = pgbroker.New(pool, g.queue, &pgbroker.Options{Table: g.table, Visibility: time.Hour}); err == nil {
		err = g.q.Migrate(b.Context())
	}
	const part = 500_000
	for from := 1; from <= g.rows && err == nil; from += part {
		_, err = pool.Exec(b.Context(), `INSERT INTO `+pgx.Identifier{g.table}.Sanitize()+` (queue, due, grp, waits, body) `+g.fill, from, min(from+part-1, g.rows), g.queue)
	}
	if err == nil {
		_, err = pool.Exec(b.Context(), `VACUUM ANALYZE `+pgx.Identifier{g.table}.Sanitize())
	}
	if err != nil {
		b.Fatal(err)
	}
}

// round receives and acks; what does not count warms up.
func (g *growth) round(b *testing.B, counts bool) {
	b.Helper()
	g.took = g.took[:0]
	for n := range receives {
		from := time.Now()
		ms, err := g.q.Receive(b.Context(), broker.ReceiveOptions{Max: perBatch, Wait: time.Second})
		took := time.Since(from)
		if err != nil || len(ms) == 0 {
			b.Fatalf("%s: %d messages, %v", g.name, len(ms), err)
		}
		if n == 0 && counts {
			g.first = append(g.first, took.Round(time.Microsecond*10))
		}
		g.took = append(g.took, took)
		rs := make([]broker.Receipt, len(ms))
		for i, m := range ms {
			rs[i] = m.Receipt
		}
		if err := g.q.Ack(context.WithoutCancel(b.Context()), rs); err != nil {
			b.Fatal(err)
		}
	}
}
