package bench

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/pgbroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/testserver/testpg"
)

func openPGQueue(tb testing.TB, pool *pgxpool.Pool, name string) *pgbroker.Queue {
	tb.Helper()
	q, err := pgbroker.New(pool, name, nil)
	if err == nil {
		err = q.Migrate(tb.Context())
	}
	if err != nil {
		tb.Fatal(err)
	}
	return q
}

// outgoing are n jobs, each with a key of its own.
func outgoing(n int) []broker.Outgoing {
	ms := make([]broker.Outgoing, n)
	for i := range ms {
		k := newKey()
		ms[i] = broker.Outgoing{Body: []byte(`{"order":1}`), Meta: &broker.Meta{ID: k, Key: k, Created: time.Now()}}
	}
	return ms
}

func fillQueue(ctx context.Context, tb testing.TB, q *pgbroker.Queue, n int) {
	tb.Helper()
	for part := range slices.Chunk(outgoing(n), 1000) {
		if _, err := q.Send(ctx, part); err != nil {
			tb.Fatal(err)
		}
	}
}

// BenchmarkPostgresQueue runs prefilled queues empty, on a server that waits for the disk:
//
//	river       River, 500 workers, fetch and complete, FetchCooldown as it comes (100 ms)
//	river tuned the same with a FetchCooldown of 1 ms, its shortest
//	by batches  pgbroker and pgstore in one database: receive, claim, settle, ack of a hundred, four callers
//	queue alone receive and ack of a hundred, four callers
//	worker      a whole onceq.Worker on both, 500 handlers
func BenchmarkPostgresQueue(b *testing.B) {
	db := testpg.NewDurable(b)
	pool := openPool(b, db.URL)
	q, st := openPGQueue(b, pool, "bench"), openStore(b, pool, "bench_queue")
	quick := func(c *river.Config) { c.FetchCooldown, c.FetchPollInterval = time.Millisecond, 5*time.Millisecond }
	prefilled := func(run func(ctx context.Context, n int) error) func(context.Context, testing.TB, int) (do, after func()) {
		return func(ctx context.Context, tb testing.TB, n int) (do, after func()) {
			fillQueue(ctx, tb, q, n)
			return straight(run)(ctx, tb, n)
		}
	}
	b.ResetTimer()
	cs := compare(b, rounds, 20_000, []variant{
		{"river", openRiver(b, pool)},
		{"river tuned", openRiver(b, pool, quick)},
		{"by batches", prefilled(func(ctx context.Context, n int) error { return drain(ctx, q, st, n) })},
		{"queue alone", prefilled(func(ctx context.Context, n int) error { return drain(ctx, q, nil, n) })},
		{"worker", queueWorker(q, st, func(context.Context, *onceq.Job) error { return nil })},
	}, nil)
	b.ReportMetric(0, "ns/op")
	for i, v := range []string{"river", "river-tuned", "batches", "queue", "worker"} {
		b.ReportMetric(1e9/cs[i].wall, v+"-jobs/s")
		b.ReportMetric(1/cs[i].beside, v+"-x-river")
	}
}

// drain takes n messages through the queue and, where there is one, the store.
func drain(ctx context.Context, q *pgbroker.Queue, st dedupe.Store, n int) error {
	return share(n, inFlight, perBatch, func(n int) error {
		for n > 0 {
			ms, err := q.Receive(ctx, broker.ReceiveOptions{Max: n, Wait: time.Second})
			if err != nil {
				return err
			}
			n -= len(ms)
			cs := make([]dedupe.ClaimRequest, len(ms))
			ss := make([]dedupe.Settlement, len(ms))
			rs := make([]broker.Receipt, len(ms))
			for i, m := range ms {
				k := dedupe.Key{Scope: "bench", Key: m.Meta.Key}
				cs[i] = dedupe.ClaimRequest{Key: k, Token: newToken(), TTL: 30 * time.Second, Owner: "bench", MessageID: m.ID}
				ss[i] = dedupe.Settlement{Key: k, Token: cs[i].Token, To: dedupe.Done}
				rs[i] = m.Receipt
			}
			if st != nil && len(ms) > 0 {
				if _, err := st.Claim(ctx, cs); err != nil {
					return err
				}
				as, err := st.Settle(ctx, ss)
				if err != nil {
					return err
				}
				for _, a := range as {
					if a.Status != dedupe.Done {
						return fmt.Errorf("settlement answered %v, %w", a.Status, a.Err)
					}
				}
			}
			if err := q.Ack(ctx, rs); err != nil {
				return err
			}
		}
		return nil
	})
}

// BenchmarkPostgresSend inserts, on a server that waits for the disk: single messages by a bare
// INSERT into the same table and by Send, from one caller; and batches of a hundred, from four.
func BenchmarkPostgresSend(b *testing.B) {
	db := testpg.NewDurable(b)
	pool := openPool(b, db.URL)
	q := openPGQueue(b, pool, "bench")
	meta := `{"v":1,"id":"order-000000000001","k":"order-000000000001","cr":1764000000000}`
	each := func(do func(ctx context.Context) error) func(context.Context, testing.TB, int) (run, after func()) {
		return straight(func(ctx context.Context, n int) error {
			return share(n, 1, 1, func(int) error { return do(ctx) })
		})
	}
	b.ResetTimer()
	cs := compare(b, shortRounds, 300, []variant{
		{"bare INSERT", each(func(ctx context.Context) error {
			var seq int64
			return pool.QueryRow(ctx, `INSERT INTO onceq_messages (queue, meta, body) VALUES ($1, $2, $3) RETURNING seq`, "bench", meta, []byte(`{"order":1}`)).Scan(&seq)
		})},
		{"Send", each(func(ctx context.Context) error {
			_, err := q.Send(ctx, outgoing(1))
			return err
		})},
		{"Tx", each(func(ctx context.Context) error {
			return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
				_, err := q.Tx(tx).Send(ctx, outgoing(1))
				return err
			})
		})},
		{"INSERT in a transaction", each(func(ctx context.Context) error {
			return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
				var seq int64
				return tx.QueryRow(ctx, `INSERT INTO onceq_messages (queue, meta, body) VALUES ($1, $2, $3) RETURNING seq`, "bench", meta, []byte(`{"order":1}`)).Scan(&seq)
			})
		})},
	}, nil)
	batches := compare(b, rounds, 40_000, []variant{{"batches of 100", straight(func(ctx context.Context, n int) error {
		return share(n, inFlight, perBatch, func(n int) error {
			_, err := q.Send(ctx, outgoing(n))
			return err
		})
	})}}, nil)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(cs[0].wall/1e3, "insert-µs")
	b.ReportMetric(cs[1].beside, "send-x-insert")
	b.ReportMetric(cs[2].wall/cs[3].wall, "tx-x-insert-in-tx")
	b.ReportMetric(1e9/batches[0].wall, "batches-msgs/s")
}

// pinnedEnv is how long BenchmarkPinnedHorizon runs, such as "3m". Default 1 min.
const pinnedEnv = "ONCEQ_PINNED"

// BenchmarkPinnedHorizon sends and receives 2,000 messages a second while somebody's REPEATABLE
// READ transaction stays open, so that nothing can be vacuumed; and one message's transaction is
// committed half way, 30 s late or, in a shorter run, a third of it.
func BenchmarkPinnedHorizon(b *testing.B) {
	length := time.Minute
	if s := os.Getenv(pinnedEnv); s != "" {
		var err error
		if length, err = time.ParseDuration(s); err != nil {
			b.Fatal(err)
		}
	}
	db := testpg.NewDurable(b)
	pool := openPool(b, db.URL)
	q := openPGQueue(b, pool, "bench")
	ctx, cancel := context.WithTimeout(b.Context(), length)
	defer cancel()
	pin, err := pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err != nil {
		b.Fatal(err)
	}
	defer pin.Rollback(context.Background())
	if _, err := pin.Exec(ctx, "SELECT count(*) FROM onceq_messages"); err != nil {
		b.Fatal(err)
	}
	late, err := pool.Begin(ctx)
	if err != nil {
		b.Fatal(err)
	}
	if _, err := q.Tx(late).Send(ctx, []broker.Outgoing{{Body: []byte("late")}}); err != nil {
		b.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for {
			if _, err := q.Send(ctx, outgoing(20)); err != nil {
				return
			}
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
	})
	begun := time.Now()
	var committed time.Time
	wait := min(30*time.Second, length/3)
	var first, last []time.Duration
	var all int
	var lateness time.Duration
	for ctx.Err() == nil {
		if committed.IsZero() && time.Since(begun) > wait {
			if err := late.Commit(ctx); err != nil {
				b.Fatal(err)
			}
			committed = time.Now()
		}
		from := time.Now()
		ms, err := q.Receive(ctx, broker.ReceiveOptions{Max: 100})
		if err != nil {
			break
		}
		took := time.Since(from)
		if len(ms) == 0 {
			<-time.After(2 * time.Millisecond)
			continue
		}
		switch age := time.Since(begun); {
		case age < time.Second:
			first = append(first, took)
		case age > length-length/6:
			last = append(last, took)
		}
		all += len(ms)
		rs := make([]broker.Receipt, len(ms))
		for i, m := range ms {
			if rs[i] = m.Receipt; string(m.Body) == "late" {
				lateness = time.Since(committed)
			}
		}
		if err := q.Ack(ctx, rs); err != nil && ctx.Err() == nil {
			b.Fatal(err)
		}
	}
	cancel()
	wg.Wait()
	slices.Sort(first)
	slices.Sort(last)
	if len(first) == 0 || len(last) == 0 {
		b.Fatal("nothing was received")
	}
	p50 := func(ds []time.Duration) float64 { return float64(ds[len(ds)/2]) / 1e6 }
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(all)/time.Since(begun).Seconds(), "msgs/s")
	b.ReportMetric(p50(first), "first-p50-ms")
	b.ReportMetric(p50(last), "last-p50-ms")
	b.ReportMetric(p50(last)/p50(first), "last-x-first")
	b.ReportMetric(lateness.Seconds(), "late-commit-s")
	if lateness == 0 {
		b.Error("the message of the late commit did not come")
	}
}
