package jobs

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/coretest/rig"
	"github.com/onceq/onceq/internal/must"
)

// sink is a destination in the process, whose calls take a while.
type sink struct {
	l           broker.Limits
	takes       time.Duration
	want        int64
	done        chan struct{}
	sent, calls atomic.Int64
}

func (s *sink) Limits() broker.Limits { return s.l }

func (s *sink) Send(_ context.Context, ms []broker.Outgoing) ([]string, error) {
	if s.takes > 0 {
		rig.Takes(s.takes)
	}
	s.calls.Add(1)
	if s.sent.Add(int64(len(ms))) == s.want {
		close(s.done)
	}
	return make([]string, len(ms)), nil
}

// BenchmarkForward relays a full outbox to a destination whose calls take 10 ms and ten messages,
// as SQS's do. Its metrics are the messages a second, and the calls a message.
func BenchmarkForward(b *testing.B) {
	box := fullOutbox(b, b.N)
	to := &sink{l: broker.Limits{SendBatch: 10}, takes: 10 * time.Millisecond, want: int64(b.N), done: make(chan struct{})}
	w := must.Get(rig.NewWorker(rig.Setup{
		ProcessorConfig: onceq.ProcessorConfig{Handler: onceq.Forward(to), Store: onceq.NoStore, Scope: "outbox", Logger: slog.New(slog.DiscardHandler)},
		WorkerConfig:    onceq.WorkerConfig{DeadLetter: onceq.KeepInQueue, Concurrency: 1000},
		Broker:          box,
	}))
	b.ReportAllocs()
	b.ResetTimer()
	untilDone(b, w, to.done)
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "messages/s")
	b.ReportMetric(float64(to.calls.Load())/float64(b.N), "calls/message")
}

// BenchmarkBatched is what a job costs in batches of 100, beside the same handler for each alone.
func BenchmarkBulk(b *testing.B) {
	for name, h := range map[string]func(done func(n int)) onceq.Handler{
		"alone": func(done func(n int)) onceq.Handler {
			return onceq.HandlerFunc(func(context.Context, *onceq.Job) error { done(1); return nil })
		},
		"by 100": func(done func(n int)) onceq.Handler {
			return onceq.Bulk(onceq.BulkOptions{Linger: time.Millisecond}, func(_ context.Context, js []*onceq.Job) []error { done(len(js)); return nil })
		},
	} {
		b.Run(name, func(b *testing.B) {
			box := fullOutbox(b, b.N)
			var n atomic.Int64
			over := make(chan struct{})
			w := must.Get(rig.NewWorker(rig.Setup{
				ProcessorConfig: onceq.ProcessorConfig{Handler: h(func(done int) {
					if n.Add(int64(done)) == int64(b.N) {
						close(over)
					}
				}), Store: onceq.NoStore, Scope: "bench", Defaults: onceq.JobOptions{MaxAttempts: -1}, Logger: slog.New(slog.DiscardHandler)},
				WorkerConfig: onceq.WorkerConfig{DeadLetter: onceq.KeepInQueue, Concurrency: 200},
				Broker:       box,
			}))
			b.ReportAllocs()
			b.ResetTimer()
			untilDone(b, w, over)
		})
	}
}

func fullOutbox(b *testing.B, n int) *membroker.Broker {
	b.Helper()
	box := must.Get(membroker.New(nil))
	ms := make([]broker.Outgoing, n)
	for i := range ms {
		ms[i] = broker.Outgoing{Body: []byte("a message of the usual size, more or less")}
	}
	if err := onceq.Send(b.Context(), box, ms); err != nil {
		b.Fatal(err)
	}
	return box
}

// untilDone runs the worker until done is closed, and lets it drain.
func untilDone(b *testing.B, w *onceq.Worker, done <-chan struct{}) {
	b.Helper()
	ctx, stop := context.WithCancel(b.Context())
	defer stop()
	var all sync.WaitGroup
	all.Go(func() {
		if err := w.Run(ctx); err != nil {
			b.Error(err)
		}
	})
	<-done
	stop()
	all.Wait()
}
