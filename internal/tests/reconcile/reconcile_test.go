package reconcile

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync"
	"testing"
	"time"

	"cloud.google.com/go/firestore"
	apiv1 "cloud.google.com/go/firestore/apiv1"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"google.golang.org/api/option"
	_ "modernc.org/sqlite"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/dynamostore"
	"github.com/onceq/onceq/dedupe/firestorestore"
	"github.com/onceq/onceq/dedupe/firestorestore/firestorefake"
	"github.com/onceq/onceq/dedupe/memstore"
	"github.com/onceq/onceq/dedupe/pgstore"
	"github.com/onceq/onceq/dlq"
	"github.com/onceq/onceq/internal/storetest"
	"github.com/onceq/onceq/internal/testserver/testsqlite"
	"github.com/onceq/onceq/localstack"
	"github.com/onceq/onceq/ops"
)

// This file owns a bad night that is planted in each store, found exactly, and mended
// by two operators at once.

var stores = []struct {
	name string
	open func(t *testing.T) dedupe.Store
}{
	{"memory", func(t *testing.T) dedupe.Store {
		s, err := memstore.New(nil)
		require.NoError(t, err)
		return s
	}},
	{"sqlite", func(t *testing.T) dedupe.Store {
		_, s := testsqlite.Open(t, testsqlite.Path(t), nil)
		return s
	}},
	{"postgres", func(t *testing.T) dedupe.Store { s, _ := postgres(t); return s }},
	{"dynamodb", func(t *testing.T) dedupe.Store { return dynamoDB(t) }},
	{"firestore", func(t *testing.T) dedupe.Store {
		_, conn := firestorefake.Conn(t, nil)
		client, err := firestore.NewClient(t.Context(), "p", option.WithGRPCConn(conn))
		require.NoError(t, err)
		api, err := apiv1.NewClient(t.Context(), option.WithGRPCConn(conn))
		require.NoError(t, err)
		s, err := firestorestore.New(client, api, "onceq", nil)
		require.NoError(t, err)
		return s
	}},
}

func postgres(t *testing.T) (*pgstore.Store, *pgxpool.Pool) {
	pool, err := pgxpool.New(t.Context(), localstack.Postgres(t).URL)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	s, err := pgstore.New(pool, nil)
	require.NoError(t, err)
	require.NoError(t, s.Migrate(t.Context()))
	return s, pool
}

func dynamoDB(t *testing.T) *dynamostore.Store {
	server := localstack.DynamoDB(t)
	s, err := dynamostore.New(server.Client(t), server.TableName(t, "records"), nil)
	require.NoError(t, err)
	require.NoError(t, s.CreateTable(t.Context()))
	return s
}

const (
	charges = "orders:charge"
	mails   = "orders:mail"
)

// a night is what should have run, and what the ledger has.
type night struct {
	*testing.T
	s        dedupe.Store
	expected []ops.Expected
	effects  []ops.Effect
}

func (n *night) claim(scope, key, owner string, ttl time.Duration) dedupe.Lease {
	n.Helper()
	q := dedupe.ClaimRequest{Key: dedupe.Key{Scope: scope, Key: key}, TTL: ttl, Owner: owner}
	for tick := time.NewTicker(20 * time.Millisecond); ; <-tick.C {
		q.Token = storetest.Token()
		cs, err := n.s.Claim(n.Context(), []dedupe.ClaimRequest{q})
		require.NoError(n, err)
		if errors.Is(cs[0].Err, dedupe.ErrBusy) || cs[0].Outcome == dedupe.InProgress {
			continue // a dead lease is dead for others a margin later
		}
		require.NoError(n, cs[0].Err)
		require.Equal(n, dedupe.Won, cs[0].Outcome)
		return cs[0].Lease
	}
}

func (n *night) end(l dedupe.Lease, to dedupe.Status) {
	n.Helper()
	_, err := storetest.Settle(n.T, n.s, dedupe.Settlement{Key: l.Key, Token: l.Token, To: to, ErrClass: "timeout", ErrText: "no answer"})
	require.NoError(n, err)
}

func (n *night) effect(l dedupe.Lease, id string) {
	n.effects = append(n.effects, ops.Effect{Key: l.Key, ID: id, At: time.Now(), Fence: l.Fence})
}

// expect is a job that was due an hour ago, or is not due yet.
func (n *night) expect(key string, ago time.Duration) {
	n.expected = append(n.expected, ops.Expected{
		Key: dedupe.Key{Scope: charges, Key: key}, Due: time.Now().Add(-ago), Ref: "order " + key,
		Send: &broker.Outgoing{Body: []byte(key), Meta: &broker.Meta{Type: "charge"}},
	})
}

// plant is what the issue asks for: 4 missing, 3 lost failures, 2 duplicates, 5 late, 1 wrong
// scope, among 20 that are well.
func (n *night) plant() {
	n.Helper()
	for i := range 4 {
		n.expect(fmt.Sprint("missing-", i), time.Hour)
	}
	for i := range 3 {
		key := fmt.Sprint("lost-", i)
		n.end(n.claim(charges, key, "w-1/1", time.Minute), dedupe.Failed)
		n.expect(key, time.Hour)
	}
	twice := n.claim(charges, "twice", "w-1/1", time.Minute)
	n.effect(twice, "twice-1")
	n.effect(twice, "twice-2")
	n.effect(twice, "twice-2") // the ledger was read twice
	n.end(twice, dedupe.Done)
	n.expect("twice", -time.Hour)
	n.effect(n.claim(charges, "over", "w-dead/1", 50*time.Millisecond), "over-1")
	over := n.claim(charges, "over", "w-2/2", time.Minute)
	n.effect(over, "over-2")
	n.end(over, dedupe.Done)
	n.expect("over", -time.Hour)
	for i := range 5 {
		l := n.claim(charges, fmt.Sprint("late-", i), "w-1/1", time.Minute)
		n.effect(l, l.Key.Key)
		n.end(l, dedupe.Done)
		n.expect(l.Key.Key, time.Hour)
	}
	n.end(n.claim(mails, "elsewhere", "w-1/1", time.Minute), dedupe.Done)
	n.expect("elsewhere", time.Hour)
	for i := range 20 {
		l := n.claim(charges, fmt.Sprint("well-", i), "w-1/1", time.Minute)
		n.effect(l, l.Key.Key)
		n.end(l, dedupe.Done)
		n.expect(l.Key.Key, -time.Hour)
	}
}

func listed[V any](vs []V) iter.Seq2[V, error] {
	return func(yield func(V, error) bool) {
		for _, v := range vs {
			if !yield(v, nil) {
				return
			}
		}
	}
}

// TestFoundExactly: what was planted is found, each for what it is, and explained by the lease that
// died. Two operators send what is missing at once, and each job is done once.
func TestFoundExactly(t *testing.T) {
	for _, kind := range stores {
		t.Run(kind.name, func(t *testing.T) {
			t.Parallel()
			n := &night{T: t, s: kind.open(t)}
			n.plant()
			queue, err := membroker.New(&membroker.Options{Name: "orders"})
			require.NoError(t, err)
			dead, err := membroker.New(nil)
			require.NoError(t, err)
			look := func(by string) (*ops.Ops, *ops.Evidence) {
				letters, err := dlq.New(dead, &dlq.Options{Wait: 10 * time.Millisecond})
				require.NoError(t, err)
				o, err := ops.New([]ops.Target{{Name: "orders", Queue: queue, DeadLetters: dead, Letters: letters, Store: n.s, Scopes: []string{charges, mails}}}, &ops.Options{By: by})
				require.NoError(t, err)
				e, err := o.Reconcile(t.Context(), ops.ReconcileOptions{Expected: listed(n.expected), Effects: listed(n.effects), Letters: true, Grace: -1})
				require.NoError(t, err)
				require.NoError(t, e.LettersErr)
				return o, e
			}
			ana, first := look("ana")
			ben, second := look("ben")
			require.Equal(t, map[ops.FindingKind]int{
				ops.FoundMissing: 4, ops.FoundLost: 3, ops.FoundDuplicate: 2, ops.FoundLate: 5, ops.FoundElsewhere: 1,
			}, first.Counts)
			require.Equal(t, first.Findings, second.Findings)
			require.Equal(t, 35, first.Expected)
			require.Equal(t, 20, first.OK)
			require.Equal(t, 7, first.ToSend())
			for _, f := range first.Findings {
				name, _, _ := strings.Cut(f.Key.Key, "-")
				require.Equal(t, "order "+f.Key.Key, f.Ref)
				switch name {
				case "twice":
					require.Contains(t, f.Why, "2 effects: one claim did it twice: attempt 1 of w-1/1")
				case "over":
					require.Contains(t, f.Why, "taken over between effect and record: the lease of w-dead/1 died at ")
					require.Contains(t, f.Why, ", and w-2/2 took the job over at ")
				case "elsewhere":
					require.Contains(t, f.Why, "the scope orders:mail has the key, and it is done there")
				default:
					require.Equal(t, map[string]ops.FindingKind{"missing": ops.FoundMissing, "lost": ops.FoundLost, "late": ops.FoundLate}[name], f.Kind)
				}
			}
			var all sync.WaitGroup
			for _, x := range []struct {
				o *ops.Ops
				e *ops.Evidence
			}{{ana, first}, {ben, second}} {
				all.Go(func() {
					_, audit, err := x.o.Resend(t.Context(), ops.ResendSpec{Evidence: x.e, Reason: "INC-311"})
					require.NoError(t, err)
					require.NotEmpty(t, audit)
				})
			}
			all.Wait()
			n.work(queue, dead, 7)
			_, after := look("ana")
			require.Equal(t, map[ops.FindingKind]int{
				ops.FoundNoEffect: 7, ops.FoundDuplicate: 2, ops.FoundLate: 5, ops.FoundElsewhere: 1,
			}, after.Counts, "the effects of the seven are not in this ledger")
		})
	}
}

// work runs a worker until the queue is empty, and checks that so many jobs ran, each once.
func (n *night) work(queue, dead broker.Broker, jobs int) {
	n.Helper()
	var mu sync.Mutex
	ran := map[string]int{}
	var mux onceq.Mux
	mux.On("charge", onceq.HandlerFunc(func(_ context.Context, j *onceq.Job) error {
		mu.Lock()
		defer mu.Unlock()
		ran[j.Key().Key]++
		return nil
	}), nil)
	p, err := onceq.NewProcessor(onceq.ProcessorConfig{Handler: &mux, Scope: "orders", Store: n.s})
	require.NoError(n, err)
	// One at a time: a copy that comes while its job runs would wait for the rest of a lease.
	w, err := p.Worker(queue, onceq.WorkerConfig{DeadLetter: dead, Concurrency: 1})
	require.NoError(n, err)
	ctx, stop := context.WithCancel(n.Context())
	ended := make(chan error)
	go func() { ended <- w.Run(ctx) }()
	for tick := time.NewTicker(10 * time.Millisecond); ; <-tick.C {
		d, err := queue.(broker.Depther).Depth(n.Context())
		require.NoError(n, err)
		if d.Visible+d.InFlight+d.Delayed == 0 {
			break
		}
	}
	stop()
	require.NoError(n, <-ended)
	require.Len(n, ran, jobs)
	for key, times := range ran {
		require.Equal(n, 1, times, key)
	}
	d, err := dead.(broker.Depther).Depth(n.Context())
	require.NoError(n, err)
	require.Zero(n, d.Visible)
}
