package schedules

import (
	"context"
	"database/sql"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	_ "modernc.org/sqlite"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/dynamostore"
	"github.com/onceq/onceq/dedupe/pgstore"
	"github.com/onceq/onceq/dedupe/sqlitestore"
	"github.com/onceq/onceq/internal/proof"
	"github.com/onceq/onceq/localstack"
	"github.com/onceq/onceq/onceqtest"
	"github.com/onceq/onceq/ops"
	"github.com/onceq/onceq/schedule"
)

// This file owns schedulers that share a real store and die, beside a worker that counts what runs.

var stores = []struct {
	name string
	open func(t *testing.T) dedupe.Store
}{
	{"sqlite", func(t *testing.T) dedupe.Store {
		db, err := sql.Open("sqlite", sqlitestore.DSN(filepath.Join(t.TempDir(), "keys.db")))
		require.NoError(t, err)
		t.Cleanup(func() { db.Close() })
		s, err := sqlitestore.New(db, nil)
		require.NoError(t, err)
		t.Cleanup(func() { s.Close() })
		require.NoError(t, s.Migrate(t.Context()))
		return s
	}},
	{"postgres", func(t *testing.T) dedupe.Store {
		pool, err := pgxpool.New(t.Context(), localstack.Postgres(t).URL)
		require.NoError(t, err)
		t.Cleanup(pool.Close)
		s, err := pgstore.New(pool, nil)
		require.NoError(t, err)
		require.NoError(t, s.Migrate(t.Context()))
		return s
	}},
	{"dynamodb", func(t *testing.T) dedupe.Store {
		server := localstack.DynamoDB(t)
		s, err := dynamostore.New(server.Client(t), server.TableName(t, "records"), nil)
		require.NoError(t, err)
		require.NoError(t, s.CreateTable(t.Context()))
		return s
	}},
}

// deaths leave no claim behind that others wait for: those that do are played in virtual time, by
// TestKilledAtRandom of package schedule.
var deaths = []onceqtest.Fault{
	{Op: onceqtest.Send, Kind: onceqtest.CrashAfter},
	{Op: onceqtest.Settle, Kind: onceqtest.CrashBefore},
	{Op: onceqtest.Settle, Kind: onceqtest.CrashAfter},
	{Op: onceqtest.Get, Kind: onceqtest.CrashBefore},
	{Op: onceqtest.Claim, Kind: onceqtest.CrashBefore},
}

// ledger counts how often each key ran.
type ledger struct {
	mu   sync.Mutex
	runs map[string]int
}

func (l *ledger) add(key string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.runs[key]++
}

func (l *ledger) read() map[string]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.runs)
}

// TestSchedulersOnRealStores: five schedulers die at any call, also after a send, and come back.
// Each instant runs once, and operators see it.
func TestSchedulersOnRealStores(t *testing.T) {
	seed := proof.Seed(t)
	for _, kind := range stores {
		t.Run(kind.name, func(t *testing.T) {
			t.Parallel()
			store := kind.open(t)
			ctx, cancel := context.WithCancel(t.Context())
			var all sync.WaitGroup
			defer all.Wait()
			defer cancel()
			queue, err := membroker.New(nil)
			require.NoError(t, err)
			dead, err := membroker.New(nil)
			require.NoError(t, err)
			ran := &ledger{runs: map[string]int{}}
			p, err := onceq.NewProcessor(onceq.ProcessorConfig{Store: store, Scope: "jobs", Handler: onceq.HandlerFunc(func(_ context.Context, j *onceq.Job) error {
				ran.add(j.Message.Meta.Key)
				return nil
			})})
			require.NoError(t, err)
			w, err := p.Worker(queue, onceq.WorkerConfig{DeadLetter: dead})
			require.NoError(t, err)
			all.Go(func() { _ = w.Run(ctx) })

			names := []string{"d e/☃"} // a second one might be claimed by who dies for the first, for 30 s
			for n := range 5 {
				all.Go(func() { dieAgainAndAgain(ctx, rand.New(rand.NewPCG(seed, uint64(n))), store, queue, names) })
			}
			o, err := ops.New([]ops.Target{{Store: store, Scopes: []string{"jobs"}}}, nil)
			require.NoError(t, err)
			time.Sleep(2500 * time.Millisecond)
			states, err := o.Schedules(ctx)
			require.NoError(t, err)
			require.Len(t, states, len(names))
			until := time.Now()
			var want []string
			for i, s := range states {
				require.Equal(t, names[i], s.Name)
				every := schedule.Every(time.Second)
				for at := every.Next(s.Born); at.Before(until); at = every.Next(at) {
					want = append(want, schedule.Key(s.Name, at))
				}
			}
			require.Eventually(t, func() bool {
				for _, key := range want {
					if ran.read()[key] == 0 {
						return false
					}
				}
				return true
			}, time.Minute, 50*time.Millisecond)
			// Each of those who sent may have died before it recorded that. Another one does.
			require.Eventually(t, func() bool {
				states, err := o.Schedules(ctx)
				return err == nil && !slices.ContainsFunc(states, func(s ops.ScheduleState) bool { return s.Job == nil })
			}, time.Minute, 100*time.Millisecond)
			cancel()
			all.Wait()
			for key, n := range ran.read() {
				require.Equal(t, 1, n, key)
			}
		})
	}
}

// dieAgainAndAgain runs schedulers one after the other, each a process that dies.
func dieAgainAndAgain(ctx context.Context, r *rand.Rand, store dedupe.Store, queue broker.Sender, names []string) {
	for ctx.Err() == nil {
		p := new(onceqtest.Process)
		death := deaths[r.IntN(len(deaths))]
		death.N = 1 + r.IntN(8)
		p.At(death)
		var entries []schedule.Entry
		for _, name := range names {
			entries = append(entries, schedule.Entry{
				Name: name, Schedule: schedule.Every(time.Second), To: p.Producer(queue), CatchUp: 10 * time.Minute,
				Message: func(at time.Time) (broker.Outgoing, error) {
					return onceq.Message("", "", []byte(at.UTC().String())), nil
				},
			})
		}
		life, end := context.WithCancel(p.Context(ctx))
		_ = schedule.Run(life, p.Store(store), func(context.Context) ([]schedule.Entry, error) { return entries, nil }, nil)
		end()
	}
}
