package awssqs_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe/memstore"
	"github.com/onceq/onceq/internal/must"
	"github.com/onceq/onceq/internal/retry"
	"github.com/onceq/onceq/onceqtest"
	"github.com/onceq/onceq/sqsfake"
)

// relay runs a relay from the outbox to the queue, in a process whose calls go wrong as the faults
// say, until stop is called.
func relay(t testing.TB, outbox broker.Receiver, queue broker.Sender, fs ...onceqtest.Fault) (stop func()) {
	t.Helper()
	var process onceqtest.Process
	process.At(fs...)
	p := must.Get(onceq.NewProcessor(onceq.ProcessorConfig{
		Handler: onceq.Forward(process.Producer(queue)), Store: onceq.NoStore, Scope: "outbox", Logger: slog.New(slog.DiscardHandler),
	}))
	w := must.Get(p.Worker(process.Receiver(outbox), onceq.WorkerConfig{DeadLetter: onceq.KeepInQueue, Concurrency: 1000}))
	ctx, cancel := context.WithCancel(process.Context(t.Context()))
	var all sync.WaitGroup
	all.Go(func() {
		if err := w.Run(ctx); err != nil && len(fs) == 0 {
			t.Error(err)
		}
	})
	return func() { cancel(); all.Wait() }
}

func outboxOf(t testing.TB, n, groups int) *membroker.Broker {
	t.Helper()
	box := must.Get(membroker.New(nil))
	ms := make([]broker.Outgoing, n)
	for i := range ms {
		ms[i] = broker.Outgoing{Body: fmt.Appendf(nil, "order %d", i), Meta: &broker.Meta{Key: fmt.Sprintf("%06d", i)}}
		if groups > 0 {
			ms[i].Group = fmt.Sprintf("group-%d", i%groups)
		}
	}
	if err := onceq.Send(t.Context(), box, ms); err != nil {
		t.Fatal(err)
	}
	return box
}

// A relay with a backlog sends full batches: at most 0.11 requests a message.
func TestRelaySendsFullBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := fake(t, nil)
		c := fakeClient(srv)
		queue := makeBroker(t, c, makeQueue(t, c, false, nil), nil)
		const n = 2000
		box := outboxOf(t, n, 0)
		stop := relay(t, box, queue)
		retry.Rest(context.Background(), time.Minute)
		stop()
		d, err := queue.Depth(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		calls := srv.Counts()["SendMessageBatch"] + srv.Counts()["SendMessage"]
		t.Logf("%d messages in %d requests: %.3f a message", d.Visible, calls, float64(calls)/n)
		if d.Visible != n || float64(calls) > 0.11*n {
			t.Errorf("%d messages in %d requests, want %d in at most %v", d.Visible, calls, n, 0.11*n)
		}
	})
}

// Through outages of the send and deaths of relays, each job is done once, and in the order of its
// group on a FIFO queue.
func TestRelayToSQS(t *testing.T) {
	for _, fifo := range []bool{false, true} {
		for _, kind := range []onceqtest.FaultKind{onceqtest.CrashBefore, onceqtest.CrashAfter, onceqtest.Fail, onceqtest.LoseReply} {
			for _, op := range []onceqtest.Op{onceqtest.Send, onceqtest.Ack} {
				t.Run(fmt.Sprintf("fifo %v, %v of %s", fifo, kind, op), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) { relayed(t, fifo, onceqtest.Fault{Op: op, N: 2, Times: 2, Kind: kind}) })
				})
			}
		}
	}
}

func relayed(t *testing.T, fifo bool, f onceqtest.Fault) {
	srv := fake(t, &sqsfake.Options{})
	c := fakeClient(srv)
	queue, dead := makeBroker(t, c, makeQueue(t, c, fifo, nil), nil), makeBroker(t, c, makeQueue(t, c, fifo, nil), nil)
	groups := 0
	if fifo {
		groups = 7
	}
	box := outboxOf(t, 70, groups)
	defer relay(t, box, queue, f)()
	retry.Rest(context.Background(), 20*time.Second)
	defer relay(t, box, queue)()

	store := must.Get(memstore.New(nil))
	var mu sync.Mutex
	effects, last := make(map[string]int), make(map[string]string)
	p := must.Get(onceq.NewProcessor(onceq.ProcessorConfig{
		Store: store, Scope: "orders", Logger: slog.New(slog.DiscardHandler),
		Handler: onceq.HandlerFunc(func(_ context.Context, j *onceq.Job) error {
			mu.Lock()
			defer mu.Unlock()
			k, g := j.Key().Key, j.Message.Group
			effects[k]++
			if fifo && k < last[g] {
				t.Errorf("%s of %s was done after %s", k, g, last[g])
			}
			last[g] = k
			return nil
		}),
	}))
	w := must.Get(p.Worker(queue, onceq.WorkerConfig{DeadLetter: dead}))
	ctx, stop := context.WithCancel(t.Context())
	var all sync.WaitGroup
	all.Go(func() {
		if err := w.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	retry.Rest(context.Background(), 5*time.Minute)
	stop()
	all.Wait()
	if len(effects) != 70 {
		t.Errorf("%d jobs were done, want 70", len(effects))
	}
	for k, n := range effects {
		if n != 1 {
			t.Errorf("%s was done %d times", k, n)
		}
	}
	if d, err := box.Depth(t.Context()); err != nil || d != (broker.Depth{}) {
		t.Errorf("the outbox holds %+v, %v", d, err)
	}
}

// BenchmarkRelay is a message's way from an outbox in memory to SQS's stand-in in the process, in
// real time. Its metrics are the messages a second, and the requests a message.
func BenchmarkRelay(b *testing.B) {
	srv := fake(b, nil)
	c := fakeClient(srv)
	queue := makeBroker(b, c, makeQueue(b, c, false, nil), nil)
	box := outboxOf(b, b.N, 0)
	b.ResetTimer()
	stop := relay(b, box, queue)
	for {
		d, err := box.Depth(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		if d == (broker.Depth{}) {
			break
		}
		retry.Rest(b.Context(), time.Millisecond)
	}
	stop()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "messages/s")
	b.ReportMetric(float64(srv.Counts()["SendMessageBatch"])/float64(b.N), "requests/message")
}
