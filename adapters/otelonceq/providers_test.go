package otelonceq_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/otelonceq"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/must"
)

// succeed is a handler that does nothing.
var succeed = onceq.HandlerFunc(func(context.Context, *onceq.Job) error { return nil })

// done counts the jobs that are done, by the bare store.
func (r *rig) done(keys ...string) (n int) {
	r.Helper()
	for _, k := range keys {
		if statusOf(r, k) == "done" {
			n++
		}
	}
	return n
}

// Spans and metrics name the conventions that they follow, so that a collector can translate them.
func TestScopesNameTheConventions(t *testing.T) {
	bubble(t, rigOptions{}, func(t *testing.T, r *rig) {
		r.send(message("charge", "A-1"))
		r.runFor(r.worker(r.config(succeed), onceq.WorkerConfig{Concurrency: 1}), time.Minute)
		const schema = "https://opentelemetry.io/schemas/1."
		if s := r.spans.one(t, "process orders").InstrumentationScope; !strings.HasPrefix(s.SchemaURL, schema) {
			t.Errorf("a span is of %+v", s)
		}
		reader := sdkmetric.NewManualReader()
		tel := must.Get(otelonceq.New(&otelonceq.Options{MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))}))
		if _, err := tel.Broker(r.raw).Send(t.Context(), []broker.Outgoing{{Body: []byte("a")}}); err != nil {
			t.Fatal(err)
		}
		var all metricdata.ResourceMetrics
		if err := reader.Collect(t.Context(), &all); err != nil {
			t.Fatal(err)
		}
		for _, m := range all.ScopeMetrics {
			if !strings.HasPrefix(m.Scope.SchemaURL, schema) {
				t.Errorf("a metric is of %+v", m.Scope)
			}
		}
		if len(all.ScopeMetrics) == 0 {
			t.Error("there are no metrics, so there is nothing to test")
		}
	})
}

// A program that stops its metrics first still works off its jobs.
func TestProvidersAreShutDown(t *testing.T) {
	bubble(t, rigOptions{}, func(t *testing.T, r *rig) {
		shut := onceq.HandlerFunc(func(ctx context.Context, j *onceq.Job) error {
			if j.Key().Key == "A-1" {
				return errors.Join(r.meters.Shutdown(ctx), r.tracers.Shutdown(ctx))
			}
			return nil
		})
		stop, err := r.tel.Queues(otelonceq.QueueOptions{}, otelonceq.Queue{Broker: r.raw, Store: r.bare})
		if err != nil {
			t.Fatal(err)
		}
		r.send(message("charge", "A-1"), message("charge", "A-2"))
		w := r.worker(r.config(shut), onceq.WorkerConfig{Concurrency: 1})
		r.runFor(w, time.Minute)
		r.send(message("charge", "A-3"))
		r.runFor(w, time.Minute)
		stop()
		if n := r.done("A-1", "A-2", "A-3"); n != 3 {
			t.Errorf("%d of 3 jobs are done", n)
		}
		reg := must.Get(r.tel.Worker(w)) // as well as everything else
		if err := errors.Join(reg.Unregister(), reg.Unregister()); err != nil {
			t.Error(err)
		}
		if stop, err = r.tel.Queues(otelonceq.QueueOptions{}, otelonceq.Queue{Broker: r.raw}); err != nil {
			t.Fatal(err)
		}
		stop()
		stop()
	})
}

// Two parts of a program may each make a Telemetry: on one provider their jobs add up, on two each
// has its own.
func TestTwoTelemetries(t *testing.T) {
	for _, shared := range []bool{true, false} {
		t.Run(fmt.Sprint("shared ", shared), func(t *testing.T) {
			bubble(t, rigOptions{}, func(t *testing.T, r *rig) {
				reader := sdkmetric.NewManualReader()
				o := otelonceq.Options{MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)), TracerProvider: r.tracers}
				if shared {
					o.MeterProvider = r.meters
				}
				second := must.Get(otelonceq.New(&o))
				c := r.config(succeed)
				first := r.worker(c, onceq.WorkerConfig{Concurrency: 1})
				r.send(message("charge", "A-1"), message("charge", "A-2"))
				r.runFor(first, time.Minute)
				c.Observer, c.Store = second.Observer(), second.Store(r.bare)
				r.send(message("charge", "A-3"))
				r.runFor(r.worker(c, onceq.WorkerConfig{Concurrency: 1}), time.Minute)
				want := 2.0
				if shared {
					want = 3
				}
				r.want(r.scrape(), want, "jobs_completed_total", "queue=orders", "type=charge")
				r.want(r.scrape(), want, "job_duration_seconds", "queue=orders", "type=charge")
				if shared {
					return
				}
				if n := sumOf(t, reader, "jobs.completed"); n != 1 {
					t.Errorf("the second provider counts %d jobs", n)
				}
			})
		})
	}
}

// sumOf reads a counter as an exporter does.
func sumOf(t *testing.T, reader sdkmetric.Reader, name string) (n int64) {
	t.Helper()
	var rm metricdata.ResourceMetrics
	if err := reader.Collect(context.Background(), &rm); err != nil {
		t.Fatal(err)
	}
	for _, scope := range rm.ScopeMetrics {
		for _, m := range scope.Metrics {
			if m.Name != name {
				continue
			}
			sum, ok := m.Data.(metricdata.Sum[int64])
			if !ok || !sum.IsMonotonic {
				t.Fatalf("%s is a %T", name, m.Data)
			}
			for _, p := range sum.DataPoints {
				n += p.Value
			}
		}
	}
	return n
}

// An exporter that asks for differences gets each job once.
func TestDeltas(t *testing.T) {
	reader := sdkmetric.NewManualReader(sdkmetric.WithTemporalitySelector(func(sdkmetric.InstrumentKind) metricdata.Temporality { return metricdata.DeltaTemporality }))
	tel := must.Get(otelonceq.New(&otelonceq.Options{MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))}))
	for round, jobs := range []int64{3, 0, 5} {
		for range jobs {
			tel.Observer().JobEnded(context.Background(), doneRecord())
		}
		if n := sumOf(t, reader, "jobs.completed"); n != jobs {
			t.Errorf("round %d: %d jobs, want %d", round, n, jobs)
		}
	}
}

// hung is an exporter of spans whose service does not answer.
type hung struct{ until chan struct{} }

func (h *hung) ExportSpans(context.Context, []sdktrace.ReadOnlySpan) error {
	<-h.until
	return nil
}

func (h *hung) Shutdown(context.Context) error { return nil }

// Behind a batcher, an exporter that hangs holds up no job. What finds no room there is dropped.
func TestExporterThatHangs(t *testing.T) {
	bubble(t, rigOptions{}, func(t *testing.T, r *rig) {
		h := &hung{until: make(chan struct{})}
		batcher := sdktrace.NewBatchSpanProcessor(h, sdktrace.WithMaxQueueSize(4), sdktrace.WithMaxExportBatchSize(2))
		r.tracers.RegisterSpanProcessor(batcher)
		var keys []string
		for i := range 50 {
			keys = append(keys, fmt.Sprint("A-", i))
			r.send(message("charge", keys[i]))
		}
		began := time.Now()
		w := r.worker(r.config(onceq.HandlerFunc(func(context.Context, *onceq.Job) error {
			if time.Since(began) > time.Second {
				t.Error("a job waits for the exporter")
			}
			return nil
		})), onceq.WorkerConfig{Concurrency: 2})
		r.runFor(w, time.Minute)
		if n := r.done(keys...); n != 50 {
			t.Errorf("%d of 50 jobs are done", n)
		}
		close(h.until)
		if err := batcher.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// panicking is a processor of spans that panics where it is told to.
type panicking struct{ start, end bool }

func (p *panicking) OnStart(context.Context, sdktrace.ReadWriteSpan) {
	if p.start {
		panic("OnStart")
	}
}

func (p *panicking) OnEnd(sdktrace.ReadOnlySpan) {
	if p.end {
		panic("OnEnd")
	}
}

func (p *panicking) Shutdown(context.Context) error   { return nil }
func (p *panicking) ForceFlush(context.Context) error { return nil }

// What panics in somebody's OpenTelemetry loses spans: no message, no job, no other metric.
func TestTelemetryThatPanics(t *testing.T) {
	for name, p := range map[string]*panicking{"start": {start: true}, "end": {end: true}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, rigOptions{Options: otelonceq.Options{Spans: otelonceq.SpanOptions{Receive: true}}}, func(t *testing.T, r *rig) {
				r.tracers.RegisterSpanProcessor(p)
				r.withJobs(t)
			})
		})
	}
	for name, p := range map[string]*trapped{"inject": {inject: true}, "extract": {extract: true}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, rigOptions{Options: otelonceq.Options{Propagator: p}}, func(t *testing.T, r *rig) { r.withJobs(t) })
		})
	}
	t.Run("filter", func(t *testing.T) {
		filter := func(attribute.KeyValue) bool { panic("filter") }
		reader := sdkmetric.NewManualReader()
		meters := sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader),
			sdkmetric.WithView(sdkmetric.NewView(sdkmetric.Instrument{Name: "store.call"}, sdkmetric.Stream{AttributeFilter: filter})),
			sdkmetric.WithView(sdkmetric.NewView(sdkmetric.Instrument{Name: "messaging.client.operation.duration"}, sdkmetric.Stream{AttributeFilter: filter})))
		bubble(t, rigOptions{meters: meters}, func(t *testing.T, r *rig) { r.checkJobsGoOn(t) })
	})
}

// withJobs sees to it that jobs go on, and are counted.
func (r *rig) withJobs(t *testing.T) {
	t.Helper()
	r.checkJobsGoOn(t)
	fs := r.scrape()
	r.want(fs, 2, "jobs_completed_total", "queue=orders", "type=charge")
	r.want(fs, 2, "job_duration_seconds", "queue=orders", "type=charge")
	r.want(fs, 2, "jobs_enqueued_total", "queue=orders", "source=send")
}

func (r *rig) checkJobsGoOn(t *testing.T) {
	t.Helper()
	traced := message("charge", "A-2")
	traced.Attributes = map[string]string{broker.TraceAttribute: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
	r.send(message("charge", "A-1"), traced)
	r.runFor(r.worker(r.config(succeed), onceq.WorkerConfig{}), time.Minute)
	if n := r.done("A-1", "A-2"); n != 2 {
		t.Errorf("%d of 2 jobs are done", n)
	}
	if got := r.log.Lines("OpenTelemetry has panicked"); len(got) != 1 {
		t.Errorf("%d log lines: %v", len(got), got)
	}
}
