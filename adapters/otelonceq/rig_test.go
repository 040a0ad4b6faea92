package otelonceq_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	otelprom "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/propagation"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/adapters/otelonceq"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/control"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/memstore"
	"github.com/onceq/onceq/dlq"
	"github.com/onceq/onceq/internal/controlstore"
	"github.com/onceq/onceq/internal/must"
	rigs "github.com/onceq/onceq/internal/rig"
)

// rig is a program with telemetry: what it records is scraped, and its spans are kept.
type rig struct {
	testing.TB
	tel      *otelonceq.Telemetry
	registry *prometheus.Registry
	meters   *sdkmetric.MeterProvider
	tracers  *sdktrace.TracerProvider
	spans    *spanLog
	log      *rigs.Log

	queue, dead broker.Broker // decorated
	raw, letter *membroker.Broker
	store       dedupe.Store
	bare        *memstore.Store
}

type rigOptions struct {
	otelonceq.Options
	noTraces bool
	sampler  sdktrace.Sampler
	meters   *sdkmetric.MeterProvider // nil = one that can be scraped
}

func newRig(tb testing.TB, o rigOptions) *rig {
	tb.Helper()
	r := &rig{TB: tb, registry: prometheus.NewRegistry(), log: new(rigs.Log)}
	exporter, err := otelprom.New(otelprom.WithRegisterer(r.registry), otelprom.WithoutScopeInfo(), otelprom.WithoutTargetInfo())
	if err != nil {
		tb.Fatal(err)
	}
	if r.meters = o.meters; r.meters == nil {
		r.meters = sdkmetric.NewMeterProvider(sdkmetric.WithReader(exporter))
	}
	o.MeterProvider = r.meters
	r.spans = &spanLog{}
	if !o.noTraces {
		if o.sampler == nil {
			o.sampler = sdktrace.AlwaysSample()
		}
		r.tracers = sdktrace.NewTracerProvider(sdktrace.WithSampler(o.sampler), sdktrace.WithSpanProcessor(r.spans))
		o.TracerProvider = r.tracers
	}
	o.Logger = r.log.Logger()
	if r.tel, err = otelonceq.New(&o.Options); err != nil {
		tb.Fatal(err)
	}
	r.raw, r.letter = newQueue(tb, "orders"), newQueue(tb, "orders-dead")
	if r.bare, err = memstore.New(nil); err != nil {
		tb.Fatal(err)
	}
	r.queue, r.dead, r.store = r.tel.Broker(r.raw), r.tel.Broker(r.letter), r.tel.Store(r.bare)
	return r
}

func newQueue(tb testing.TB, name string) *membroker.Broker {
	return must.Get(membroker.New(&membroker.Options{Name: name}))
}

// config is that of a Processor with the rig's telemetry.
func (r *rig) config(h onceq.Handler) onceq.ProcessorConfig {
	return onceq.ProcessorConfig{
		Handler: h, Store: r.store, Scope: "orders", Observer: r.tel.Observer(),
		Logger: slog.New(otelonceq.LogHandler(slog.NewTextHandler(r.log, nil))),
	}
}

func (r *rig) worker(c onceq.ProcessorConfig, w onceq.WorkerConfig) *onceq.Worker {
	r.Helper()
	p := must.Get(onceq.NewProcessor(c))
	if w.DeadLetter == nil {
		w.DeadLetter = r.dead
	}
	worker := must.Get(p.Worker(r.queue, w))
	if _, err := r.tel.Worker(worker); err != nil {
		r.Fatal(err)
	}
	return worker
}

// runFor lets the worker run for d.
func (r *rig) runFor(w *onceq.Worker, d time.Duration) {
	r.Helper()
	ctx, stop := context.WithTimeout(r.Context(), d)
	defer stop()
	if err := w.Run(ctx); err != nil {
		var drain *onceq.DrainError
		if !errors.As(err, &drain) {
			r.Fatal(err)
		}
	}
}

func (r *rig) send(ms ...broker.Outgoing) {
	r.Helper()
	if err := onceq.Send(r.Context(), r.queue, ms); err != nil {
		r.Fatal(err)
	}
}

func message(typ, key string) broker.Outgoing { return onceq.Message(typ, key, []byte(`{"n":1}`)) }

// scrape is what Prometheus would read.
func (r *rig) scrape() families {
	r.Helper()
	fs, err := r.registry.Gather()
	if err != nil {
		r.Fatal(err)
	}
	m := make(families)
	for _, f := range fs {
		m[f.GetName()] = f
	}
	return m
}

type families map[string]*dto.MetricFamily

// value is the value of the one series that has these labels among its own, and whether there is
// one. Of a histogram it is the number of records.
func (fs families) value(name string, labels ...string) (float64, bool) {
	f := fs[name]
	if f == nil {
		return 0, false
	}
	sum, found := 0.0, false
	for _, m := range f.GetMetric() {
		if !hasLabels(m, labels) {
			continue
		}
		found = true
		switch f.GetType() {
		case dto.MetricType_COUNTER:
			sum += m.GetCounter().GetValue()
		case dto.MetricType_GAUGE:
			sum += m.GetGauge().GetValue()
		case dto.MetricType_HISTOGRAM:
			sum += float64(m.GetHistogram().GetSampleCount())
		}
	}
	return sum, found
}

// hasLabels: labels are "name=value".
func hasLabels(m *dto.Metric, labels []string) bool {
	for _, l := range labels {
		name, value, _ := strings.Cut(l, "=")
		if !slices.ContainsFunc(m.GetLabel(), func(p *dto.LabelPair) bool { return p.GetName() == name && p.GetValue() == value }) &&
			(value != "" || slices.ContainsFunc(m.GetLabel(), func(p *dto.LabelPair) bool { return p.GetName() == name })) {
			return false
		}
	}
	return true
}

// want checks the value of a series, summed over the labels that are not given.
func (r *rig) want(fs families, want float64, name string, labels ...string) {
	r.Helper()
	if got, ok := fs.value(name, labels...); !ok || got != want {
		r.Errorf("%s{%s} is %v (there: %v), want %v", name, strings.Join(labels, ","), got, ok, want)
	}
}

// spanLog keeps spans, and how often each was started and ended.
type spanLog struct {
	mu      sync.Mutex
	started map[string]int
	ended   []sdktrace.ReadOnlySpan
}

func (l *spanLog) OnStart(_ context.Context, s sdktrace.ReadWriteSpan) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.started == nil {
		l.started = make(map[string]int)
	}
	l.started[s.SpanContext().SpanID().String()]++
}

func (l *spanLog) OnEnd(s sdktrace.ReadOnlySpan) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = append(l.ended, s)
}

func (l *spanLog) Shutdown(context.Context) error   { return nil }
func (l *spanLog) ForceFlush(context.Context) error { return nil }

// named are the ended spans of a name, in the order of their ends.
func (l *spanLog) named(name string) (ss tracetest.SpanStubs) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range tracetest.SpanStubsFromReadOnlySpans(l.ended) {
		if s.Name == name {
			ss = append(ss, s)
		}
	}
	return ss
}

func (l *spanLog) one(tb testing.TB, name string) tracetest.SpanStub {
	tb.Helper()
	ss := l.named(name)
	if len(ss) != 1 {
		tb.Fatalf("%d spans %q, want 1", len(ss), name)
	}
	return ss[0]
}

// attribute is the text of a span's attribute; "" = it has none.
func attributeOf(s tracetest.SpanStub, name string) string {
	for _, a := range s.Attributes {
		if string(a.Key) == name {
			return a.Value.String()
		}
	}
	return ""
}

// bubble runs f in virtual time.
func bubble(t *testing.T, o rigOptions, f func(t *testing.T, r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, newRig(t, o)) })
}

var errBoom = errors.New("boom")

// replay sends all letters back.
func (r *rig) replay() {
	r.Helper()
	letters := must.Get(dlq.New(r.dead, nil))
	report, err := letters.Replay(r.Context(), dlq.ReplayOptions{To: r.queue, Each: r.tel.Letters("orders", nil)})
	if err != nil || report.Replayed == 0 {
		r.Fatal(report, err)
	}
}

// otelNothing is a propagator that carries nothing, and says that it does.
type otelNothing struct{}

func (otelNothing) Inject(context.Context, propagation.TextMapCarrier) {}
func (otelNothing) Extract(ctx context.Context, _ propagation.TextMapCarrier) context.Context {
	return ctx
}
func (otelNothing) Fields() []string { return []string{"none"} }

// seat takes a seat for a worker of the queue, and sees to it that the worker lives until the test
// ends.
func (r *rig) seat(queue string) {
	r.Helper()
	s := must.Get(controlstore.NewSeat(r.bare, controlstore.SeatOptions{Queue: queue, Owner: "w-1"}))
	ctx, stop := context.WithCancel(r.Context())
	r.Cleanup(stop)
	if err := s.Beat(ctx, &control.WorkerStatus{}); err != nil {
		r.Fatal(err)
	}
	go func() {
		for ctx.Err() == nil {
			select {
			case <-time.After(10 * time.Second):
				_ = s.Beat(ctx, &control.WorkerStatus{})
			case <-ctx.Done():
			}
		}
	}()
}

// addPause adds an operator's rule that holds for a day.
func (r *rig) addPause(rule control.Rule) {
	r.Helper()
	rule.Until, rule.By, rule.Reason = time.Now().Add(24*time.Hour), "ana", "SMTP migration"
	if _, err := controlstore.Change(r.Context(), r.bare, func(rs *controlstore.Rules) error {
		rs.Rules = append(rs.Rules, rule)
		return nil
	}); err != nil {
		r.Fatal(err)
	}
}

// trapped is a propagator that panics where it is told to.
type trapped struct {
	propagation.TraceContext
	inject, extract bool
}

func (p *trapped) Inject(ctx context.Context, c propagation.TextMapCarrier) {
	if p.inject {
		panic("Inject")
	}
	p.TraceContext.Inject(ctx, c)
}

func (p *trapped) Extract(ctx context.Context, c propagation.TextMapCarrier) context.Context {
	if p.extract {
		panic("Extract")
	}
	return p.TraceContext.Extract(ctx, c)
}

// statusOf is what the store says of a job.
func statusOf(r *rig, key string) string {
	r.Helper()
	rs, err := r.bare.Get(r.Context(), []dedupe.Key{{Scope: "orders", Key: key}})
	if err != nil {
		r.Fatal(err)
	}
	if rs[0] == nil {
		return ""
	}
	return rs[0].Status.String()
}
