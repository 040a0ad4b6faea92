package bench

import (
	"context"
	"crypto/rand"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/pgstore"
	"github.com/onceq/onceq/internal/testserver/testpg"
	"github.com/riverqueue/river"
)

const (
	// connections is every variant's pool.
	connections = 16
	// perBatch and inFlight are what a worker under load sends: batches of a hundred, four at once.
	perBatch = 100
	inFlight = 4
	// singles is how many callers share the connections where each transition is a transaction of
	// its own.
	singles = 64
)

// BenchmarkPostgres claims and completes jobs on a server that waits for the disk. The variants:
//
//	one by one    each claim and each completion is a statement and a transaction of its own, by hand, from 64 callers
//	by hand       hand-written batches of a hundred, four at once: the limit to come near
//	store         pgstore's Claim and Settle, batches of a hundred, four at once
//	worker        a whole onceq.Worker over pgstore, 500 handlers, queue in memory
//	river         River, 500 workers; its jobs are inserted beforehand, which is not measured
//	river tuned   the same with a FetchCooldown of 1 ms, its shortest, and a poll of 5 ms
func BenchmarkPostgres(b *testing.B) {
	db := testpg.NewDurable(b)
	for _, c := range []struct {
		name string
		url  string
		jobs int
	}{
		{"loopback", db.URL, 20_000},
		{"roundtrip=5ms", delayed(b, db.URL, 5*time.Millisecond), 10_000},
	} {
		b.Run(c.name, func(b *testing.B) {
			pool := openPool(b, c.url)
			st := openStore(b, pool, "bench_"+c.name[:4])
			hand := openHand(b, pool)
			quick := func(c *river.Config) { c.FetchCooldown, c.FetchPollInterval = time.Millisecond, 5*time.Millisecond }
			vs := []variant{
				{"one by one", straight(hand.oneByOne)},
				{"by hand", straight(hand.batches)},
				{"store", straight(func(ctx context.Context, n int) error { return storeBatches(ctx, st, n) })},
				{"worker", func(ctx context.Context, tb testing.TB, n int) (run, after func()) {
					return readyWorker(ctx, tb, st, n), nil
				}},
				{"river", openRiver(b, pool)},
				{"river tuned", openRiver(b, pool, quick)},
			}
			b.ResetTimer()
			cs := compare(b, rounds, c.jobs, vs, nil)
			b.ReportMetric(0, "ns/op")
			for i, v := range []string{"single", "hand", "store", "worker", "river", "river-tuned"} {
				b.ReportMetric(1e9/cs[i].wall, v+"-jobs/s")
				if i > 0 {
					b.ReportMetric(cs[0].wall/cs[i].wall, v+"-x-single")
				}
				b.ReportMetric(cs[i].cpu/1e3, v+"-cpu-µs/job")
			}
			b.ReportMetric(cs[2].cpu/cs[1].cpu, "store-cpu-x-hand")
		})
	}
}

// straight is a variant that needs nothing to be made ready.
func straight(run func(ctx context.Context, n int) error) func(context.Context, testing.TB, int) (run, after func()) {
	return func(ctx context.Context, tb testing.TB, n int) (do, after func()) {
		return func() {
			if err := run(ctx, n); err != nil {
				tb.Fatal(err)
			}
		}, nil
	}
}

func openPool(tb testing.TB, addr string) *pgxpool.Pool {
	tb.Helper()
	c, err := pgxpool.ParseConfig(addr)
	if err != nil {
		tb.Fatal(err)
	}
	c.MaxConns, c.MinConns = connections, connections
	pool, err := pgxpool.NewWithConfig(tb.Context(), c)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(pool.Close)
	return pool
}

func openStore(tb testing.TB, pool *pgxpool.Pool, table string) *pgstore.Store {
	tb.Helper()
	st, err := pgstore.New(pool, &pgstore.Options{Table: table})
	if err != nil {
		tb.Fatal(err)
	}
	if err := st.Migrate(tb.Context()); err != nil {
		tb.Fatal(err)
	}
	return st
}

// serial makes every key of a run new.
var serial atomic.Int64

func newKey() string { return fmt.Sprintf("order-%012d", serial.Add(1)) }

func newToken() (t dedupe.Token) {
	rand.Read(t[:])
	return t
}

// share lets so many goroutines run n jobs, up to most at a time each.
func share(n, callers, most int, do func(n int) error) error {
	var left atomic.Int64
	left.Store(int64(n))
	errs := make(chan error, callers)
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			for {
				mine := min(most, int(left.Add(int64(-most)))+most)
				if mine <= 0 {
					return
				}
				if err := do(mine); err != nil {
					errs <- err
					return
				}
			}
		})
	}
	wg.Wait()
	close(errs)
	return <-errs
}

func storeBatches(ctx context.Context, st dedupe.Store, n int) error {
	return share(n, inFlight, perBatch, func(n int) error {
		qs := make([]dedupe.ClaimRequest, n)
		ss := make([]dedupe.Settlement, n)
		for i := range qs {
			k := dedupe.Key{Scope: "bench", Key: newKey()}
			qs[i] = dedupe.ClaimRequest{Key: k, Token: newToken(), TTL: 30 * time.Second, Owner: "bench", MessageID: k.Key}
			ss[i] = dedupe.Settlement{Key: k, Token: qs[i].Token, To: dedupe.Done}
		}
		cs, err := st.Claim(ctx, qs)
		if err != nil {
			return err
		}
		for _, c := range cs {
			if c.Outcome != dedupe.Won {
				return fmt.Errorf("claim answered %v, %w", c.Outcome, c.Err)
			}
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
		return nil
	})
}

// readyWorker sends n jobs; what it answers runs them, from the first receive to the last ack.
func readyWorker(ctx context.Context, tb testing.TB, st dedupe.Store, n int) func() {
	tb.Helper()
	q, err := membroker.New(nil)
	if err != nil {
		tb.Fatal(err)
	}
	ms := make([]broker.Outgoing, n)
	for i := range ms {
		ms[i] = broker.Outgoing{Body: []byte(`{"order":1}`), Meta: &broker.Meta{Key: newKey()}}
	}
	if err := onceq.Send(ctx, q, ms); err != nil {
		tb.Fatal(err)
	}
	var left atomic.Int64
	left.Store(int64(n))
	ctx, cancel := context.WithCancel(ctx)
	p, err := onceq.NewProcessor(onceq.ProcessorConfig{
		Handler: onceq.HandlerFunc(func(context.Context, *onceq.Job) error {
			if left.Add(-1) == 0 {
				cancel() // the drain settles and acks
			}
			return nil
		}),
		Store: st, Scope: "bench",
	})
	if err != nil {
		tb.Fatal(err)
	}
	w, err := p.Worker(q, onceq.WorkerConfig{DeadLetter: onceq.KeepInQueue, Concurrency: 500})
	if err != nil {
		tb.Fatal(err)
	}
	return func() {
		defer cancel()
		if err := w.Run(ctx); err != nil {
			tb.Fatal(err)
		}
	}
}
