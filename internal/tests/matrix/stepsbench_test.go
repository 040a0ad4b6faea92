package matrix

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/dynamostore"
	"github.com/onceq/onceq/dedupe/memstore"
	"github.com/onceq/onceq/dedupe/pgstore"
	"github.com/onceq/onceq/dedupe/sqlitestore"
	"github.com/onceq/onceq/internal/cputime"
	"github.com/onceq/onceq/internal/testserver/testpg"
	"github.com/onceq/onceq/localstack"
)

// This file owns what steps cost beside the store's own Renew of the same bytes.

// benchStores are the stores as they are set in earnest: each write is on the disk when it is
// answered.
var benchStores = map[string]func(b *testing.B) dedupe.Store{
	"memory": func(b *testing.B) dedupe.Store { return must(b)(memstore.New(nil)) },
	"sqlite": func(b *testing.B) dedupe.Store {
		db, err := sql.Open("sqlite", sqlitestore.DSN(filepath.Join(b.TempDir(), "steps.db")))
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { db.Close() })
		s, err := sqlitestore.New(db, nil)
		if err == nil {
			err = s.Migrate(b.Context())
		}
		return must(b)(s, err)
	},
	"postgres": func(b *testing.B) dedupe.Store { return durablePostgres(b) },
	"dynamodb": func(b *testing.B) dedupe.Store {
		server := localstack.DynamoDB(b)
		s, err := dynamostore.New(server.Client(b), server.TableName(b, "steps"), nil)
		if err == nil {
			err = s.CreateTable(b.Context())
		}
		return must(b)(s, err)
	},
}

func durablePostgres(b *testing.B) dedupe.Store {
	b.Helper()
	c, err := pgxpool.ParseConfig(testpg.NewDurable(b).URL)
	if err != nil {
		b.Fatal(err)
	}
	c.MaxConns = 16
	pool, err := pgxpool.NewWithConfig(b.Context(), c)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(pool.Close)
	s, err := pgstore.New(pool, nil)
	if err == nil {
		err = s.Migrate(b.Context())
	}
	return must(b)(s, err)
}

func must(b *testing.B) func(dedupe.Store, error) dedupe.Store {
	b.Helper()
	return func(s dedupe.Store, err error) dedupe.Store {
		b.Helper()
		if err != nil {
			b.Fatal(err)
		}
		return s
	}
}

// seen is a store that notes the states that it is given.
type seen struct {
	dedupe.Store
	states atomic.Pointer[[][]byte] // of one job; nil = they are not asked for
}

func (s *seen) Renew(ctx context.Context, rs []dedupe.Renewal) ([]dedupe.Renewed, error) {
	if all := s.states.Load(); all != nil && rs[0].State != nil {
		*all = append(*all, rs[0].State)
	}
	return s.Store.Renew(ctx, rs)
}

func benchProcessor(b *testing.B, s dedupe.Store) *onceq.Processor {
	b.Helper()
	p, err := onceq.NewProcessor(onceq.ProcessorConfig{
		Scope: "bench", Store: s, Logger: slog.New(slog.DiscardHandler), Control: onceq.ControlOptions{Every: -1},
	})
	if err != nil {
		b.Fatal(err)
	}
	return p
}

// BenchmarkStep runs jobs of ten steps, each of which answers 100 bytes, and renewals of the same
// bytes by the store alone, in turns: a job of each. Its metrics are the medians over all calls:
//
//	step-µs, renew-µs   one call
//	x-renew             the step's time by the renewal's: the median of the jobs' own ratios
func BenchmarkStep(b *testing.B) {
	const steps = 10
	value := strings.Repeat("v", 100)
	for _, name := range []string{"memory", "sqlite", "postgres", "dynamodb"} {
		b.Run(name, func(b *testing.B) {
			s := &seen{Store: benchStores[name](b)}
			p := benchProcessor(b, s)
			var step, renew, ratios []float64
			micros := func(began time.Time) float64 { return float64(time.Since(began).Nanoseconds()) / 1e3 }
			for n := range b.N {
				var states [][]byte
				s.states.Store(&states)
				mine := make([]float64, 0, steps)
				runtime.GC()
				_, err := onceq.Do(b.Context(), p, dedupe.Key{Key: fmt.Sprint("steps-", n)}, nil, func(ctx context.Context, j *onceq.Job) (int, error) {
					for i := range steps {
						began := time.Now()
						_, err := onceq.Step(ctx, j, fmt.Sprint("step-", i), func(context.Context) (string, error) { return value, nil })
						mine = append(mine, micros(began))
						if err != nil {
							return 0, err
						}
					}
					return 0, nil
				})
				s.states.Store(nil)
				if err != nil || len(states) != steps {
					b.Fatal(len(states), err)
				}
				theirs := renewed(b, s.Store, fmt.Sprint("renews-", n), states, micros)
				step, renew = append(step, mine...), append(renew, theirs...)
				ratios = append(ratios, middle(mine)/middle(theirs))
			}
			b.ReportMetric(middle(step), "step-µs")
			b.ReportMetric(middle(renew), "renew-µs")
			b.ReportMetric(middle(ratios), "x-renew")
		})
	}
}

// renewed stores the states one after the other, and answers how long each took.
func renewed(b *testing.B, s dedupe.Store, key string, states [][]byte, micros func(time.Time) float64) (took []float64) {
	b.Helper()
	token := dedupe.Token([]byte(fmt.Sprintf("%-16s", key)[:16]))
	k := dedupe.Key{Scope: "bench", Key: key}
	cs, err := s.Claim(b.Context(), []dedupe.ClaimRequest{{Key: k, Token: token, TTL: time.Minute, Owner: "bench"}})
	if err != nil || cs[0].Outcome != dedupe.Won {
		b.Fatal(cs, err)
	}
	for i, state := range states {
		began := time.Now()
		as, err := s.Renew(b.Context(), []dedupe.Renewal{{Key: k, Token: token, TTL: time.Minute, State: state, StateNo: i + 1}})
		took = append(took, micros(began))
		if err != nil || as[0].Err != nil {
			b.Fatal(as, err)
		}
	}
	return took
}

func middle(all []float64) float64 {
	all = slices.Sorted(slices.Values(all))
	return all[len(all)/2]
}

// BenchmarkSaves lets 500 jobs at once save a cursor of ten bytes on PostgreSQL, 20 times each, and
// renews claims of as many jobs with the same bytes by the store alone, in batches of 100, four at
// once, in turns. One operation is a round of both. Its metrics are the medians of the rounds:
//
//	saves/s, renewals/s           of all jobs
//	x-renewals                    the first by the second
//	save-cpu-µs, renewal-cpu-µs   of this process alone, for one of them
func BenchmarkSaves(b *testing.B) {
	const jobs, each, size, flight = 500, 20, 100, 4
	s := durablePostgres(b)
	p := benchProcessor(b, s)
	var saves, renewals, ratios, saveCPU, renewCPU []float64
	for n := range b.N {
		a, ac := saveRound(b, p, n, jobs, each)
		r, rc := renewRound(b, s, n, jobs, each, size, flight)
		saves, renewals, ratios = append(saves, a), append(renewals, r), append(ratios, a/r)
		saveCPU, renewCPU = append(saveCPU, ac), append(renewCPU, rc)
	}
	b.ReportMetric(middle(saves), "saves/s")
	b.ReportMetric(middle(renewals), "renewals/s")
	b.ReportMetric(middle(ratios), "x-renewals")
	b.ReportMetric(middle(saveCPU), "save-cpu-µs")
	b.ReportMetric(middle(renewCPU), "renewal-cpu-µs")
}

// rated begins to measure n writes, and answers what tells how many were made in a second, and what
// one has used of this process's processor time, in µs.
func rated(n int) (end func() (each, cpu float64)) {
	began, used := time.Now(), cputime.Used()
	return func() (each, cpu float64) {
		return float64(n) / time.Since(began).Seconds(), float64((cputime.Used() - used).Nanoseconds()) / 1e3 / float64(n)
	}
}

// saveRound answers how many saves a second the jobs made. They begin when all are claimed.
func saveRound(b *testing.B, p *onceq.Processor, round, jobs, each int) (rate, cpu float64) {
	b.Helper()
	var all, claimed, saved sync.WaitGroup
	claimed.Add(jobs)
	saved.Add(jobs)
	start, end := make(chan struct{}), make(chan struct{})
	for n := range jobs {
		all.Go(func() {
			_, err := onceq.Do(b.Context(), p, dedupe.Key{Key: fmt.Sprint("saves-", round, "-", n)}, nil, func(ctx context.Context, j *onceq.Job) (int, error) {
				claimed.Done()
				<-start
				for i := range each {
					if err := onceq.Save(ctx, j, "cursor", 1_000_000_000+i); err != nil {
						b.Error(err)
					}
				}
				saved.Done()
				<-end
				return 0, nil
			})
			if err != nil {
				b.Error(err)
			}
		})
	}
	claimed.Wait()
	measured := rated(jobs * each)
	close(start)
	saved.Wait()
	rate, cpu = measured()
	close(end)
	all.Wait()
	return rate, cpu
}

// renewRound answers how many renewals a second the store made.
func renewRound(b *testing.B, s dedupe.Store, round, jobs, each, size, flight int) (rate, cpu float64) {
	b.Helper()
	ctx := b.Context()
	rs := make([]dedupe.Renewal, jobs)
	for from := 0; from < jobs; from += size {
		qs := make([]dedupe.ClaimRequest, size)
		for i := range qs {
			token := dedupe.Token(fmt.Appendf(nil, "%016d", round*jobs+from+i))
			k := dedupe.Key{Scope: "bench", Key: fmt.Sprint("renewals-", round, "-", from+i)}
			qs[i] = dedupe.ClaimRequest{Key: k, Token: token, TTL: time.Minute, Owner: "bench"}
			rs[from+i] = dedupe.Renewal{Key: k, Token: token, TTL: time.Minute}
		}
		if cs, err := s.Claim(ctx, qs); err != nil || slices.ContainsFunc(cs, func(c dedupe.Claim) bool { return c.Outcome != dedupe.Won }) {
			b.Fatal(err)
		}
	}
	var all sync.WaitGroup
	turn := make(chan struct{}, flight)
	measured := rated(jobs * each)
	for part := range slices.Chunk(rs, size) { // a job's next save waits for the one before
		all.Go(func() {
			for i := range each {
				for k := range part {
					part[k].State = fmt.Appendf(nil, `{"s":{"cursor":{"n":%d,"at":"2026-01-02T03:04:05.006Z","v":%d}},"v":1}`, i+1, 1_000_000_000+i)
					part[k].StateNo = i + 1
				}
				turn <- struct{}{}
				as, err := s.Renew(ctx, part)
				if <-turn; err != nil || slices.ContainsFunc(as, func(a dedupe.Renewed) bool { return a.Err != nil }) {
					b.Error(as, err)
				}
			}
		})
	}
	all.Wait()
	return measured()
}
