package acts

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/awssqs"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/memstore"
	"github.com/onceq/onceq/dlq"
	"github.com/onceq/onceq/internal/testserver/testaws"
	"github.com/onceq/onceq/ops"
	"github.com/onceq/onceq/sqsfake"
)

// This file owns what an operator's page rests on, over SQS as strict as AWS is: viewers share
// their requests, and a replay that is stopped has lost nothing. A world is one bubble's.

// world is a queue with letters, and the store of its jobs.
type world struct {
	testing.TB
	server       *sqsfake.Server
	orders, dead *awssqs.Broker
	store        *memstore.Store
	mu           sync.Mutex
	ran          map[string]int
}

func newWorld(t testing.TB) *world {
	w := &world{TB: t, server: sqsfake.New(&sqsfake.Options{StrandCancelled: true}), ran: map[string]int{}}
	t.Cleanup(w.server.Close)
	client := testaws.FakeClient(w.server)
	open := func(name string) *awssqs.Broker {
		url, err := w.server.CreateQueue(name, nil)
		require.NoError(t, err)
		b, err := awssqs.New(client, url, nil)
		require.NoError(t, err)
		return b
	}
	w.orders, w.dead = open("orders"), open("orders-dead")
	var err error
	w.store, err = memstore.New(nil)
	require.NoError(t, err)
	return w
}

func (w *world) ops() *ops.Ops {
	o, err := ops.New([]ops.Target{{Name: "orders", Queue: w.orders, DeadLetters: w.dead, Store: w.store, Scopes: []string{"orders"}}}, &ops.Options{By: "ana"})
	require.NoError(w, err)
	return o
}

// died fails n jobs, and puts their letters.
func (w *world) died(n int) {
	var ms []broker.Outgoing
	for i := range n {
		k := dedupe.Key{Scope: "orders", Key: fmt.Sprint("k-", i)}
		token := dedupe.Token{1, byte(i), byte(i >> 8)}
		cs, err := w.store.Claim(w.Context(), []dedupe.ClaimRequest{{Key: k, Token: token, TTL: time.Minute, Owner: "w"}})
		require.NoError(w, err)
		_, err = w.store.Settle(w.Context(), []dedupe.Settlement{{Key: k, Token: token, To: dedupe.Failed, ErrClass: "timeout"}})
		require.NoError(w, err)
		ms = append(ms, broker.Outgoing{Body: []byte("{}"), Meta: &broker.Meta{ID: k.Key, Key: k.Key, Dead: &broker.Letter{
			Fence: cs[0].Lease.Fence, Class: fmt.Sprint("class-", i%7), LastErr: "no answer", Attempts: 1, Source: "orders", Scope: k.Scope, Key: k.Key, At: time.Now(),
		}}})
		if len(ms) == 10 || i == n-1 {
			_, err := w.dead.Send(w.Context(), ms)
			require.NoError(w, err)
			ms = nil
		}
	}
	time.Sleep(time.Second)
}

// work runs a worker until stop is called.
func (w *world) work() (stop func()) {
	p, err := onceq.NewProcessor(onceq.ProcessorConfig{
		Scope: "orders", Store: w.store, Logger: slog.New(slog.DiscardHandler), Control: onceq.ControlOptions{Every: 5 * time.Second},
		Handler: onceq.HandlerFunc(func(_ context.Context, j *onceq.Job) error {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.ran[j.Key().Key]++
			return nil
		}),
	})
	require.NoError(w, err)
	worker, err := p.Worker(w.orders, onceq.WorkerConfig{DeadLetter: w.dead})
	require.NoError(w, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- worker.Run(ctx) }()
	return func() {
		cancel()
		if err := <-ended; err != nil {
			w.Error(err)
		}
	}
}

// view looks at a board as a browser's stream does.
func view(ctx context.Context, b *ops.Board) {
	for {
		changed := b.Changed()
		if _, err := b.Look(ctx); err != nil {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// TestViewersCostWhatOneDoes: requests to SQS, of each kind, over a minute with a pass in it.
func TestViewersCostWhatOneDoes(t *testing.T) {
	var costs []map[string]int
	for _, viewers := range []int{1, 50} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			w.died(200)
			b, err := ops.NewBoard(w.ops(), nil)
			require.NoError(t, err)
			w.server.ResetLog()
			ctx, leave := context.WithTimeout(t.Context(), time.Minute-time.Second)
			defer leave()
			var all sync.WaitGroup
			for range viewers {
				all.Go(func() { view(ctx, b) })
				all.Go(func() {
					_, err := b.Pass("orders")
					require.NoError(t, err)
				})
			}
			all.Wait()
			counts := maps.Clone(w.server.Counts())
			delete(counts, "ReceiveMessage") // how many a draw of SQS's samples takes is chance
			costs = append(costs, counts)
			l, err := b.Letters("orders")
			require.NoError(t, err)
			require.NoError(t, l.Err)
			require.Equal(t, 200, l.Seen)
			require.Len(t, l.Groups, 7)
			require.NoError(t, b.Close(context.Background()))
		})
	}
	require.NotZero(t, costs[0]["GetQueueAttributes"])
	require.Equal(t, costs[0]["GetQueueAttributes"], costs[1]["GetQueueAttributes"])
	require.InDelta(t, costs[0]["ChangeMessageVisibilityBatch"], costs[1]["ChangeMessageVisibilityBatch"], 3)
}

// TestAServerStopsAmidAReplay: the program of the page ends while it replays, while calls of the
// queue go wrong. What it had is there again, a second plan does the rest, and each job runs once.
func TestAServerStopsAmidAReplay(t *testing.T) {
	for _, fault := range []sqsfake.Fault{
		{},
		{Action: "SendMessageBatch", Rate: 0.2, Status: 500},
		{Action: "DeleteMessageBatch", Rate: 0.2, Reset: true},
		{Action: "SendMessageBatch", Rate: 0.3, ReplyDelay: 4 * time.Second},
	} {
		t.Run(fmt.Sprintf("%s %d %v", fault.Action, fault.Status, fault.Reset), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.died(120)
				stop := w.work()
				o := w.ops()
				acts, err := ops.NewRunning(nil)
				require.NoError(t, err)
				request, ends := context.WithCancel(t.Context())
				plan, err := o.PlanReplay(request, ops.ReplaySpec{Queue: "orders", Reason: "mended", ReplayOptions: dlq.ReplayOptions{Canary: 5, Ramp: true, PerSecond: 20}})
				require.NoError(t, err)
				require.Len(t, plan.Letters, 120)
				if fault.Action != "" {
					w.server.SetFaults(fault)
				}
				id, err := acts.Replay(request, o, plan)
				require.NoError(t, err)
				ends()
				for {
					changed := acts.Changed()
					if a, _ := acts.Act(id); a.Sent >= 30 || !a.Ended.IsZero() {
						break
					}
					<-changed
				}
				require.NoError(t, acts.Close(context.Background()))
				a, _ := acts.Act(id)
				require.ErrorIs(t, a.Err, dlq.ErrStopped)
				w.server.SetFaults()

				time.Sleep(2 * time.Minute) // what a lost answer has hidden comes again
				plan, err = o.PlanReplay(t.Context(), ops.ReplaySpec{Queue: "orders", Reason: "the rest"})
				require.NoError(t, err)
				require.GreaterOrEqual(t, a.Sent+len(plan.Letters), 120)
				_, _, err = o.Replay(t.Context(), plan)
				require.NoError(t, err)
				time.Sleep(2 * time.Minute)
				stop()
				require.Len(t, w.ran, 120)
				for k, n := range w.ran {
					require.Equal(t, 1, n, k)
				}
				d, err := w.dead.Depth(t.Context())
				require.NoError(t, err)
				require.Zero(t, d.Visible+d.InFlight)
			})
		})
	}
}

// BenchmarkPass is a pass through 10,000 letters: when the first groups are there, and when all
// are.
func BenchmarkPass(b *testing.B) {
	w := newWorld(b)
	w.died(10_000)
	board, err := ops.NewBoard(w.ops(), nil)
	require.NoError(b, err)
	var first, all time.Duration
	for b.Loop() {
		began, some := time.Now(), false
		_, err = board.Pass("orders")
		require.NoError(b, err)
		for {
			changed := board.Changed()
			l, err := board.Letters("orders")
			require.NoError(b, err)
			if l != nil && l.Began.After(began) && len(l.Groups) > 0 && !some {
				first, some = first+time.Since(began), true
			}
			if l != nil && l.Began.After(began) && !l.Ended.IsZero() {
				require.NoError(b, l.Err)
				require.Equal(b, 10_000, l.Seen)
				all += time.Since(began)
				break
			}
			<-changed
		}
	}
	b.ReportMetric(float64(first.Milliseconds())/float64(b.N), "first-ms")
	b.ReportMetric(float64(all.Milliseconds())/float64(b.N), "all-ms")
	require.NoError(b, board.Close(context.Background()))
}
