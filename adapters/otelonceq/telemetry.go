package otelonceq

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"runtime/debug"
	"sync"
	"sync/atomic"

	"go.opentelemetry.io/otel/metric"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dlq"
)

// This file owns Telemetry and its instruments. New makes them, once; after that nothing changes
// but the tables of labels, which have locks of their own, and the list of workers, under mu.

// Telemetry tells OpenTelemetry what onceq does. One is enough for a program, whatever it runs; its
// methods may be called from many goroutines.
type Telemetry struct {
	o      Options
	log    *slog.Logger
	traces tracing
	carry  propagators

	types, classes, limiters *guard
	queues                   table[string, *queueLabels]
	systems                  table[string, string]      // of decorated brokers, by the queue's name
	stores                   table[storeOperation, set] // of store.call
	letters                  table[string, bool]        // queues of dead letters, by name
	fates                    table[letterFate, set]

	panicked atomic.Bool // and one log line was written

	meter metric.Meter
	m     instruments

	mu      sync.Mutex
	workers []*worker
	pauses  map[pause]float64 // since when
}

// instruments are those of the table in names.go.
type instruments struct {
	enqueued, completed, ended                                         counters
	failed, retried, postponed, stalled, lateEnd, letters, contextLost metric.Int64Counter

	attempts, duration, wait, age, held, settle, margin, storeCall metric.Float64Histogram

	depth, deadLetters, active, slots, state, seats metric.Int64ObservableGauge
	utilization, pauseSince                         metric.Float64ObservableGauge

	// The conventions'; nil where they are switched off.
	process, operation metric.Float64Histogram
	sent, consumed     counters
}

func (t *Telemetry) instruments() error {
	var errs []error
	counter := func(i *instrument) metric.Int64Counter {
		c, err := t.meter.Int64Counter(i.name, metric.WithUnit(i.unit), metric.WithDescription(i.about))
		errs = append(errs, err)
		return c
	}
	observed := func(to *counters, i *instrument) {
		c, err := t.meter.Int64ObservableCounter(i.name, metric.WithUnit(i.unit), metric.WithDescription(i.about))
		to.shown, errs = c, append(errs, err)
	}
	histogram := func(i *instrument) metric.Float64Histogram {
		h, err := t.meter.Float64Histogram(i.name, metric.WithUnit(i.unit), metric.WithDescription(i.about),
			metric.WithExplicitBucketBoundaries(i.buckets...))
		errs = append(errs, err)
		return h
	}
	whole := func(i *instrument) metric.Int64ObservableGauge {
		g, err := t.meter.Int64ObservableGauge(i.name, metric.WithUnit(i.unit), metric.WithDescription(i.about))
		errs = append(errs, err)
		return g
	}
	float := func(i *instrument) metric.Float64ObservableGauge {
		g, err := t.meter.Float64ObservableGauge(i.name, metric.WithUnit(i.unit), metric.WithDescription(i.about))
		errs = append(errs, err)
		return g
	}
	m := &t.m
	observed(&m.enqueued, &jobEnqueued)
	observed(&m.completed, &jobCompleted)
	observed(&m.ended, &jobEnded)
	m.failed, m.retried, m.stalled = counter(&jobFailed), counter(&jobRetried), counter(&jobStalled)
	m.postponed = counter(&jobPostponed)
	m.lateEnd, m.letters, m.contextLost = counter(&jobLateEnd), counter(&letterFates), counter(&contextLost)
	m.attempts, m.duration, m.wait, m.age = histogram(&jobAttempts), histogram(&jobDuration), histogram(&jobWait), histogram(&jobAge)
	m.held, m.settle, m.margin, m.storeCall = histogram(&jobHeld), histogram(&jobSettle), histogram(&leaseMargin), histogram(&storeCall)
	m.depth, m.deadLetters, m.active, m.slots = whole(&queueDepth), whole(&deadLetters), whole(&jobsActive), whole(&workerSlots)
	m.state, m.seats, m.utilization, m.pauseSince = whole(&workerStates), whole(&workerSeats), float(&workerBusy), float(&pauseSince)
	if !t.o.NoConventions {
		m.process, m.operation = histogram(&messagingProcess), histogram(&messagingOperation)
		observed(&m.sent, &messagingSent)
		observed(&m.consumed, &messagingConsumed)
	}
	return errors.Join(errs...)
}

// observeCounters is called by a scrape.
func (t *Telemetry) observeCounters(_ context.Context, o metric.Observer) error {
	for _, c := range t.counted() {
		c.show(o)
	}
	return nil
}

// counted are the own counters that exist.
func (t *Telemetry) counted() []*counters {
	cs := []*counters{&t.m.enqueued, &t.m.completed, &t.m.ended}
	if t.m.process != nil {
		cs = append(cs, &t.m.sent, &t.m.consumed)
	}
	return cs
}

// survive is deferred around what a program gives to OpenTelemetry: processors of spans,
// propagators, filters. A panic there must not lose a message, or the answer of a call that was
// made.
func (t *Telemetry) survive() {
	if v := recover(); v != nil && !t.panicked.Swap(true) {
		t.log.LogAttrs(background, slog.LevelError, "otelonceq: OpenTelemetry has panicked; spans or metrics are missing, and jobs go on. Logged once",
			slog.Any("panic", v), slog.String("stack", string(debug.Stack())))
	}
}

// describe answers the queue's name and the system's, as labels have them.
func (t *Telemetry) describe(v any) (name, system string) {
	d, ok := broker.As[broker.Describer](v)
	if !ok {
		return unknown, defaultSystem
	}
	of := d.Describe()
	name, system = label(cmp.Or(of.Name, unknown)), label(cmp.Or(of.System, defaultSystem))
	t.systems.add(name, func() string { return system })
	return name, system
}

// defaultSystem is the messaging.system of a queue whose driver does not tell it.
const defaultSystem = "onceq"

func (t *Telemetry) system(queue string) string {
	if s, ok := t.systems.get(queue); ok {
		return s
	}
	return defaultSystem
}

// Letters answers a function for the field Each of dlq.ReplayOptions and dlq.PurgeOptions: it
// counts what became of each letter of the queue, whose name is that of the queue that the letters
// come from. each is called as well; nil = nothing. A dry run is not to be counted: do not give it
// the function.
func (t *Telemetry) Letters(queue string, each func(dlq.Step)) func(dlq.Step) {
	queue = label(queue)
	return func(s dlq.Step) {
		k := letterFate{queue, s.Result}
		of, ok := t.fates.get(k)
		if !ok {
			of = t.fates.add(k, func() set { return newSet(labelQueue.String(queue), labelFate.String(s.Result.String())) })
		}
		count(background, t.m.letters, 1, of)
		if each != nil {
			each(s)
		}
	}
}

func (t *Telemetry) queue(name string) *queueLabels {
	if q, ok := t.queues.get(name); ok {
		return q
	}
	return t.queues.add(name, func() *queueLabels { return newQueueLabels(label(name)) })
}

// job answers the sets of a type, which is a message's word.
func (t *Telemetry) job(q *queueLabels, typ string) *typeLabels {
	if l, ok := q.types.get(typ); ok {
		return l // only labels are kept, so it is one
	}
	typ = t.types.label(typ)
	if l, ok := q.types.get(typ); ok {
		return l
	}
	return q.types.add(typ, func() *typeLabels { return newTypeLabels(&t.m.enqueued, &t.m.completed, &t.m.ended, q, typ) })
}

// worker is a Worker that was registered.
type worker struct {
	w interface {
		Stats() onceq.Stats
		Health() onceq.Health
	}
	queue string
	times int // how often it is registered
}
