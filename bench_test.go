package onceq_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe/memstore"
)

// BenchmarkWorker runs jobs from send to ack: memory broker, bounded memory store, heartbeat on, 64 handlers.
func BenchmarkWorker(b *testing.B) {
	q, err := membroker.New(nil)
	if err != nil {
		b.Fatal(err)
	}
	st, err := memstore.New(&memstore.Options{MaxRecords: 100_000})
	if err != nil {
		b.Fatal(err)
	}
	var left atomic.Int64
	done := make(chan struct{})
	w, err := onceq.New(onceq.Config{
		ProcessorConfig: onceq.ProcessorConfig{
			Handler: onceq.HandlerFunc(func(ctx context.Context, j *onceq.Job) error {
				if left.Add(-1) == 0 {
					close(done)
				}
				return nil
			}),
			Store: st, Scope: "bench", DeadLetter: q,
		},
		Broker: q, Concurrency: 64,
	})
	if err != nil {
		b.Fatal(err)
	}
	left.Store(int64(b.N))
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	b.ReportAllocs()
	b.ResetTimer()
	var run sync.WaitGroup
	run.Go(func() {
		if err := w.Run(ctx); err != nil {
			b.Error(err)
		}
	})
	sendAll(b, ctx, q)
	<-done
	cancel()
	run.Wait()
}

// sendAll sends b.N jobs, no more than a few batches ahead of the workers.
func sendAll(b *testing.B, ctx context.Context, q *membroker.Broker) {
	body := []byte(`{"order":1}`)
	ms := make([]broker.Outgoing, 0, 100)
	for sent := 0; sent < b.N; sent += len(ms) {
		ms = ms[:0]
		for len(ms) < cap(ms) && sent+len(ms) < b.N {
			ms = append(ms, broker.Outgoing{Body: body})
		}
		if err := onceq.Send(ctx, q, ms); err != nil {
			b.Fatal(err)
		}
	}
}
