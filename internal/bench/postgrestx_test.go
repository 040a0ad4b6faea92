package bench

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/pgstore"
	"github.com/onceq/onceq/internal/testserver/testpg"
)

// job is what a handler has in its hands.
type job struct{ lease dedupe.Lease }

func (j job) Lease() dedupe.Lease   { return j.lease }
func (j job) Retain() time.Duration { return dedupe.DefaultRetention }
func (j job) Join()                 {}

// BenchmarkPostgresCompleteTx runs a user's transaction, an insert and an update, from 16 callers: without a completion, with CompleteTx
// as its last statement, and in Commit. The claims are won beforehand.
func BenchmarkPostgresCompleteTx(b *testing.B) {
	db := testpg.NewDurable(b)
	pool := openPool(b, db.URL)
	st := openStore(b, pool, "bench_tx")
	if _, err := pool.Exec(b.Context(), `
		CREATE TABLE charges (order_id text PRIMARY KEY, cents bigint NOT NULL);
		CREATE TABLE accounts (id int PRIMARY KEY, cents bigint NOT NULL);
		INSERT INTO accounts SELECT generate_series(0, 999), 0`); err != nil {
		b.Fatal(err)
	}
	b.ResetTimer()
	cs := compare(b, shortRounds, 800, []variant{
		{"without", func(ctx context.Context, tb testing.TB, n int) (run, after func()) {
			return transactions(ctx, tb, nil, n, func(_ job, work func(tx pgx.Tx) error) error {
				return pgx.BeginFunc(ctx, pool, work)
			}), nil
		}},
		{"with CompleteTx", func(ctx context.Context, tb testing.TB, n int) (run, after func()) {
			return transactions(ctx, tb, st, n, func(j job, work func(tx pgx.Tx) error) error {
				return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
					if err := work(tx); err != nil {
						return err
					}
					return st.CompleteTx(ctx, tx, j, nil)
				})
			}), nil
		}},
		{"with Commit", func(ctx context.Context, tb testing.TB, n int) (run, after func()) {
			return transactions(ctx, tb, st, n, func(j job, work func(tx pgx.Tx) error) error {
				return st.Commit(ctx, j, func(tx pgx.Tx) (any, error) { return nil, work(tx) })
			}), nil
		}},
	}, nil)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(1e9/cs[0].wall, "without-tx/s")
	b.ReportMetric(1e9/cs[1].wall, "with-tx/s")
	b.ReportMetric(1e9/cs[2].wall, "commit-tx/s")
	b.ReportMetric(cs[1].beside, "x-without")
	b.ReportMetric(cs[2].beside, "commit-x-without")
}

// transactions claims n jobs, where st is given, and has transact run the work of each.
func transactions(ctx context.Context, tb testing.TB, st *pgstore.Store, n int, transact func(j job, work func(tx pgx.Tx) error) error) func() {
	tb.Helper()
	jobs := make(chan job, n)
	for len(jobs) < n {
		if st == nil {
			jobs <- job{dedupe.Lease{Key: dedupe.Key{Scope: "bench", Key: newKey()}}}
			continue
		}
		qs := make([]dedupe.ClaimRequest, min(perBatch, n-len(jobs)))
		for i := range qs {
			qs[i] = dedupe.ClaimRequest{Key: dedupe.Key{Scope: "bench", Key: newKey()}, Token: newToken(), TTL: time.Hour}
		}
		claims, err := st.Claim(ctx, qs)
		if err != nil {
			tb.Fatal(err)
		}
		for _, c := range claims {
			jobs <- job{c.Lease}
		}
	}
	return func() {
		err := share(n, connections, 1, func(int) error {
			j := <-jobs
			return transact(j, func(tx pgx.Tx) error {
				if _, err := tx.Exec(ctx, `INSERT INTO charges VALUES ($1, 995)`, j.lease.Key.Key); err != nil {
					return err
				}
				account := serial.Add(1) % 1000
				_, err := tx.Exec(ctx, `UPDATE accounts SET cents = cents - 995 WHERE id = $1`, account)
				return err
			})
		})
		if err != nil {
			tb.Fatal(err)
		}
	}
}

// BenchmarkPostgresOneKey lets a hundred callers claim one key at once, each on a connection of its own and a round trip of 200 ms away, so
// that the server's own time counts little: one wins, and what counts is how many round trips the others wait for their answer.
func BenchmarkPostgresOneKey(b *testing.B) {
	const rivals, roundTrip = 100, 200 * time.Millisecond
	db := testpg.NewDurable(b)
	c, err := pgxpool.ParseConfig(delayed(b, db.URL, roundTrip))
	if err != nil {
		b.Fatal(err)
	}
	c.MaxConns, c.MinConns = rivals, rivals
	pool, err := pgxpool.NewWithConfig(b.Context(), c)
	if err != nil {
		b.Fatal(err)
	}
	defer pool.Close()
	st := openStore(b, pool, "bench_one")
	var losers []time.Duration
	for round := range rounds + 3 {
		k := dedupe.Key{Scope: "bench", Key: newKey()}
		took := make([]time.Duration, rivals)
		won := make([]bool, len(took))
		var wg sync.WaitGroup
		for i := range took {
			wg.Go(func() {
				start := time.Now()
				cs, err := st.Claim(b.Context(), []dedupe.ClaimRequest{{Key: k, Token: newToken(), TTL: time.Minute}})
				if err != nil || cs[0].Err != nil {
					b.Error(err, cs)
					return
				}
				took[i], won[i] = time.Since(start), cs[0].Outcome == dedupe.Won
			})
		}
		wg.Wait()
		winners := 0
		for i := range took {
			if won[i] {
				winners++
			} else if round >= 3 { // by then every connection has prepared its statements
				losers = append(losers, took[i])
			}
		}
		if winners != 1 {
			b.Fatalf("%d of %d won the key", winners, len(took))
		}
	}
	slices.Sort(losers)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(losers[len(losers)/2])/float64(roundTrip), "median-x-roundtrip")
	b.ReportMetric(float64(losers[len(losers)*99/100])/float64(roundTrip), "p99-x-roundtrip")
}
