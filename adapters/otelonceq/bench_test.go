package otelonceq_test

import (
	"context"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/adapters/otelonceq"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/memstore"
	"github.com/onceq/onceq/internal/must"
)

// benchTel records into an SDK as a program would: with a reader that is never read.
func benchTel(tb testing.TB, o otelonceq.Options, more ...sdkmetric.Option) *otelonceq.Telemetry {
	tb.Helper()
	o.MeterProvider = sdkmetric.NewMeterProvider(append(more, sdkmetric.WithReader(sdkmetric.NewManualReader()))...)
	return must.Get(otelonceq.New(&o))
}

// doneRecord is that of a job like any other.
func doneRecord() *onceq.JobReport {
	now := time.Now()
	return &onceq.JobReport{
		JobID: "0199f3a2-7c1e-7b3a-9d55-0242ac120002", Type: "charge", Key: dedupe.Key{Scope: "orders:charge", Key: "A-1"}, Queue: "orders",
		Outcome: onceq.OutcomeDone, Ran: true, Attempt: 1, Receives: 1, Fence: 1, QueueWait: 20 * time.Millisecond, Process: 35 * time.Millisecond,
		Began: now, Ended: now, Held: 2 * time.Millisecond, Settle: 3 * time.Millisecond, Age: 60 * time.Millisecond, Heartbeat: true,
	}
}

type nowhere struct{ broker.Broker }

func (nowhere) Send(_ context.Context, ms []broker.Outgoing) ([]string, error) { return nil, nil }
func (n nowhere) Unwrap() any                                                  { return n.Broker }

// BenchmarkJob is what one job costs, sent and done: all metrics, without the conventions, and with
// four histograms: attempts, duration, wait and age.
func BenchmarkJob(b *testing.B) {
	dropped := func(name string) sdkmetric.Option {
		return sdkmetric.WithView(sdkmetric.NewView(sdkmetric.Instrument{Name: name}, sdkmetric.Stream{Aggregation: sdkmetric.AggregationDrop{}}))
	}
	for _, c := range []struct {
		name  string
		o     otelonceq.Options
		views []sdkmetric.Option
	}{
		{"all", otelonceq.Options{}, nil},
		{"no-conventions", otelonceq.Options{NoConventions: true}, nil},
		{"four-histograms", otelonceq.Options{NoConventions: true}, []sdkmetric.Option{dropped("job.held"), dropped("job.settle")}},
	} {
		b.Run(c.name, func(b *testing.B) {
			tel := benchTel(b, c.o, c.views...)
			observer, sender := tel.Observer(), tel.Sender(nowhere{newQueue(b, "orders")})
			ms, rec, ctx := []broker.Outgoing{message("charge", "A-1")}, doneRecord(), context.Background()
			b.ReportAllocs()
			for b.Loop() {
				_, _ = sender.Send(ctx, ms)
				observer.JobEnded(ctx, rec)
			}
		})
	}
}

// BenchmarkFloor is what the SDK takes for one record, whoever makes it: two labels in a set that
// is kept, as job_duration_seconds has them.
func BenchmarkFloor(b *testing.B) {
	meter := sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewManualReader())).Meter("floor")
	h, err := meter.Float64Histogram("h", metric.WithExplicitBucketBoundaries(.01, .025, .1, .5, 1, 5, 10, 30, 60, 300, 1800, 7200))
	if err != nil {
		b.Fatal(err)
	}
	of := []metric.RecordOption{metric.WithAttributeSet(attribute.NewSet(attribute.String("queue", "orders"), attribute.String("type", "charge")))}
	ctx := context.Background()
	b.ReportAllocs()
	for b.Loop() {
		h.Record(ctx, .035, of...)
	}
}

// BenchmarkUnsampled is what a run costs whose span nobody keeps, with its metrics.
func BenchmarkUnsampled(b *testing.B) {
	inAHandler(b, func(run func()) {
		b.ReportAllocs()
		for b.Loop() {
			run()
		}
	})
}

// inAHandler gives f a run to tell of, whose span nobody keeps, of a job that was sent with a
// trace.
func inAHandler(tb testing.TB, f func(run func())) {
	tb.Helper()
	tel := benchTel(tb, otelonceq.Options{TracerProvider: sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.NeverSample()))})
	rig := &spanRig{o: tel.Observer(), rec: doneRecord()}
	queue := newQueue(tb, "orders")
	store := must.Get(memstore.New(nil))
	done := make(chan struct{})
	p := must.Get(onceq.NewProcessor(onceq.ProcessorConfig{
		Store: store, Scope: "bench", Logger: slog.New(slog.DiscardHandler),
		Handler: onceq.HandlerFunc(func(_ context.Context, j *onceq.Job) error {
			defer close(done)
			f(func() { rig.run(context.Background(), j) })
			return nil
		}),
	}))
	w := must.Get(p.Worker(queue, onceq.WorkerConfig{DeadLetter: onceq.KeepInQueue}))
	sent := message("charge", "A-1")
	sent.Attributes = map[string]string{broker.TraceAttribute: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"}
	if err := onceq.SendOne(tb.Context(), queue, &sent); err != nil {
		tb.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	<-done
	stop()
	if err := <-ended; err != nil {
		tb.Fatal(err)
	}
}

type spanRig struct {
	o   onceq.Observer
	rec *onceq.JobReport
}

func (r *spanRig) run(ctx context.Context, j *onceq.Job) { r.o.JobEnded(r.o.JobStarted(ctx, j), r.rec) }

// TestAllocations holds what a job may allocate: without spans, and with one that nobody keeps.
func TestAllocations(t *testing.T) {
	tel := benchTel(t, otelonceq.Options{})
	observer, sender := tel.Observer(), tel.Sender(nowhere{newQueue(t, "orders")})
	ms, rec, ctx := []broker.Outgoing{message("charge", "A-1")}, doneRecord(), context.Background()
	if n := testing.AllocsPerRun(1000, func() {
		_, _ = sender.Send(ctx, ms)
		observer.JobEnded(ctx, rec)
	}); n > 1 {
		t.Errorf("%v allocations a job", n)
	}
	inAHandler(t, func(run func()) {
		if n := testing.AllocsPerRun(1000, run); n > 14 {
			t.Errorf("%v allocations a job with a span that nobody keeps", n)
		}
	})
}

// BenchmarkWorker runs jobs from send to ack, with and without telemetry, by turns. x-bare is the
// median of the ratios of the rounds.
func BenchmarkWorker(b *testing.B) {
	unsampled := sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.NeverSample()))
	for name, o := range map[string]otelonceq.Options{"metrics": {}, "metrics-and-unsampled-spans": {TracerProvider: unsampled}} {
		b.Run(name, func(b *testing.B) {
			tel := benchTel(b, o)
			var with, bare, ratios []float64
			for range 11 {
				bare = append(bare, perJob(b, nil))
				with = append(with, perJob(b, tel))
				ratios = append(ratios, with[len(with)-1]/bare[len(bare)-1])
			}
			slices.Sort(ratios)
			slices.Sort(with)
			slices.Sort(bare)
			b.ReportMetric(with[5], "ns/job")
			b.ReportMetric(bare[5], "bare-ns/job")
			b.ReportMetric(ratios[5], "x-bare")
			b.ReportMetric(0, "ns/op")
		})
	}
}

func perJob(b *testing.B, tel *otelonceq.Telemetry) float64 {
	b.Helper()
	const jobs = 20_000
	raw := must.Get(membroker.New(&membroker.Options{Name: "orders"}))
	bare := must.Get(memstore.New(&memstore.Options{MaxRecords: 100_000}))
	var queue broker.Broker = raw
	var store dedupe.Store = bare
	c := onceq.ProcessorConfig{Scope: "bench", Logger: slog.New(slog.DiscardHandler)}
	if tel != nil {
		queue, store, c.Observer = tel.Broker(queue), tel.Store(store), tel.Observer()
	}
	c.Store = store
	var left atomic.Int64
	left.Store(jobs)
	done := make(chan struct{})
	c.Handler = onceq.HandlerFunc(func(context.Context, *onceq.Job) error {
		if left.Add(-1) == 0 {
			close(done)
		}
		return nil
	})
	p := must.Get(onceq.NewProcessor(c))
	w := must.Get(p.Worker(queue, onceq.WorkerConfig{DeadLetter: onceq.KeepInQueue, Concurrency: 64}))
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	began := time.Now()
	go func() { ended <- w.Run(ctx) }()
	ms := make([]broker.Outgoing, 100)
	for range jobs / len(ms) {
		for i := range ms {
			ms[i] = onceq.Message("charge", "", []byte("1"))
		}
		if err := onceq.Send(ctx, queue, ms); err != nil {
			b.Fatal(err)
		}
	}
	<-done
	took := time.Since(began)
	stop()
	if err := <-ended; err != nil {
		b.Fatal(err)
	}
	return float64(took) / jobs
}
