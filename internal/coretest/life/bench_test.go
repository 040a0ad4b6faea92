package life

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe/memstore"
	"github.com/onceq/onceq/internal/coretest/rig"
	"github.com/onceq/onceq/internal/cputime"
	"github.com/onceq/onceq/internal/must"
)

// What both loops run with.
const (
	benchHandlers = 64
	benchRecords  = 100_000
	// benchRounds is odd: the median is one of the rounds.
	benchRounds = 11
)

// BenchmarkWorker runs jobs from send to ack: memory broker, bounded memory store, heartbeat on, 64
// handlers.
func BenchmarkWorker(b *testing.B) {
	b.ReportAllocs()
	runWorker(b, benchStore(b), b.N)
}

// BenchmarkSkeleton runs the same jobs through the loop that a careful programmer would write for
// one program.
func BenchmarkSkeleton(b *testing.B) {
	b.ReportAllocs()
	runSkeleton(b, benchStore(b), b.N)
}

// BenchmarkSendToAck compares the two on one store. The store is at its bound, like that of a
// process that has been up for long. The two take turns, and the median over the pairs of rounds
// counts, because a machine that is slow for a while is slow for both of a pair. Its metrics:
//
//	ns/op, B/op, allocs/op  the worker's, for one job
//	cpu-ns/job              the processor time of all threads; 0 where the system does not tell it
//	skeleton-…              the skeleton's
//	x-skeleton              the worker's time by the skeleton's
//	x-skeleton-cpu          the same of the processor time
func BenchmarkSendToAck(b *testing.B) { sendToAck(b, runWorker, runSkeleton) }

// BenchmarkOneHandler is the same with one handler, so that each message has batches of its own.
func BenchmarkOneHandler(b *testing.B) { sendToAck(b, runAlone, runSkeletonAlone) }

func sendToAck(b *testing.B, runWorker, runSkeleton loop) {
	b.Helper()
	b.StopTimer()
	st := benchStore(b)
	runSkeleton(b, st, benchRecords)
	var worker, skeleton [benchRounds]cost
	var wall, cpu [benchRounds]float64
	for i := range benchRounds {
		if i%2 == 0 {
			worker[i] = measure(b, st, runWorker)
			skeleton[i] = measure(b, st, runSkeleton)
		} else {
			skeleton[i] = measure(b, st, runSkeleton)
			worker[i] = measure(b, st, runWorker)
		}
		wall[i] = worker[i].wall / skeleton[i].wall
		if skeleton[i].cpu > 0 {
			cpu[i] = worker[i].cpu / skeleton[i].cpu
		}
	}
	w, s := medians(worker[:]), medians(skeleton[:])
	b.ReportMetric(w.wall, "ns/op")
	b.ReportMetric(w.bytes, "B/op")
	b.ReportMetric(w.allocs, "allocs/op")
	b.ReportMetric(w.cpu, "cpu-ns/job")
	b.ReportMetric(s.wall, "skeleton-ns/job")
	b.ReportMetric(s.cpu, "skeleton-cpu-ns/job")
	b.ReportMetric(median(wall[:]), "x-skeleton")
	b.ReportMetric(median(cpu[:]), "x-skeleton-cpu")
}

// cost is what one job takes: times in nanoseconds.
type cost struct{ wall, cpu, allocs, bytes float64 }

// loop sends n jobs, runs them and returns when all are acked.
type loop func(tb testing.TB, st *memstore.Store, n int)

// measure runs b.N jobs. The garbage of the round before is collected first, at nobody's expense.
func measure(b *testing.B, st *memstore.Store, run loop) cost {
	b.Helper()
	runtime.GC()
	b.StartTimer()
	defer b.StopTimer()
	return measured(b, st, b.N, run)
}

func measured(tb testing.TB, st *memstore.Store, n int, run loop) cost {
	tb.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	start, used := time.Now(), cputime.Used()
	run(tb, st, n)
	wall, cpu := time.Since(start), cputime.Used()-used
	runtime.ReadMemStats(&after)
	jobs := float64(n)
	return cost{
		wall: float64(wall) / jobs, cpu: float64(cpu) / jobs,
		allocs: float64(after.Mallocs-before.Mallocs) / jobs, bytes: float64(after.TotalAlloc-before.TotalAlloc) / jobs,
	}
}

func medians(cs []cost) cost {
	of := func(part func(c cost) float64) float64 {
		vs := make([]float64, len(cs))
		for i, c := range cs {
			vs[i] = part(c)
		}
		return median(vs)
	}
	return cost{
		wall: of(func(c cost) float64 { return c.wall }), cpu: of(func(c cost) float64 { return c.cpu }),
		allocs: of(func(c cost) float64 { return c.allocs }), bytes: of(func(c cost) float64 { return c.bytes }),
	}
}

func median(vs []float64) float64 {
	slices.Sort(vs)
	return vs[len(vs)/2]
}

func runWorker(tb testing.TB, st *memstore.Store, n int) { runWorkerOf(tb, st, n, benchHandlers) }

// runAlone has a worker of one handler.
func runAlone(tb testing.TB, st *memstore.Store, n int) { runWorkerOf(tb, st, n, 1) }

func runWorkerOf(tb testing.TB, st *memstore.Store, n, handlers int) {
	tb.Helper()
	q := benchQueue(tb)
	var left atomic.Int64
	left.Store(int64(n))
	done := make(chan struct{})
	w := must.Get(rig.NewWorker(rig.Setup{
		ProcessorConfig: onceq.ProcessorConfig{
			Handler: onceq.HandlerFunc(func(ctx context.Context, j *onceq.Job) error {
				if left.Add(-1) == 0 {
					close(done)
				}
				return nil
			}),
			Store: st, Scope: "bench",
		},
		WorkerConfig: onceq.WorkerConfig{DeadLetter: onceq.KeepInQueue, Concurrency: handlers},
		Broker:       q,
	}))
	ctx, cancel := context.WithCancel(tb.Context())
	defer cancel()
	var run sync.WaitGroup
	run.Go(func() {
		if err := w.Run(ctx); err != nil {
			tb.Error(err)
		}
	})
	sendAll(ctx, tb, q, n)
	<-done
	cancel()
	run.Wait()
}

func benchQueue(tb testing.TB) *membroker.Broker {
	return must.Get(membroker.New(nil))
}

func benchStore(tb testing.TB) *memstore.Store {
	return must.Get(memstore.New(&memstore.Options{MaxRecords: benchRecords}))
}

// sendAll sends n jobs.
func sendAll(ctx context.Context, tb testing.TB, q *membroker.Broker, n int) {
	tb.Helper()
	body := []byte(`{"order":1}`)
	ms := make([]broker.Outgoing, 0, 100)
	for sent := 0; sent < n; sent += len(ms) {
		ms = ms[:0]
		for len(ms) < cap(ms) && sent+len(ms) < n {
			ms = append(ms, broker.Outgoing{Body: body})
		}
		if err := onceq.Send(ctx, q, ms); err != nil {
			tb.Fatal(err)
		}
	}
}
