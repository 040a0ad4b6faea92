package otelonceq

import (
	"context"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"sync/atomic"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/dlq"
)

// This file owns what becomes a label: the bound on what senders and handlers choose, and the sets
// of attributes, which are built once and used again. Every job goes through it, in many
// goroutines. Reading takes no lock; a new entry takes its map's lock and copies the map, which
// happens once for each, and the bounds keep the maps small.

// A table is a map that is read often and grows seldom.
type table[K comparable, V any] struct {
	at atomic.Pointer[map[K]V]
	mu sync.Mutex
}

func (t *table[K, V]) get(k K) (v V, ok bool) {
	if m := t.at.Load(); m != nil {
		v, ok = (*m)[k]
	}
	return v, ok
}

// add puts what make answers, unless another goroutine was first.
func (t *table[K, V]) add(k K, make func() V) V {
	t.mu.Lock()
	defer t.mu.Unlock()
	old := t.at.Load()
	grown := map[K]V{}
	if old != nil {
		if v, ok := (*old)[k]; ok {
			return v
		}
		grown = maps.Clone(*old)
	}
	v := make()
	grown[k] = v
	t.at.Store(&grown)
	return v
}

// A guard lets a bounded number of texts become labels.
type guard struct {
	what, field string
	most        int
	log         *slog.Logger

	texts  table[string, string] // as given → as a label
	mu     sync.Mutex
	free   map[string]bool // known labels, which do not count
	taken  map[string]bool // labels that count
	logged bool
}

// maxLabel is the most bytes of a label's text. Core and stores take longer types, and a person
// reading a dashboard does not.
const maxLabel = 100

func newGuard(what, field string, most int, known []string, log *slog.Logger) *guard {
	g := &guard{what: what, field: field, most: most, log: log, free: map[string]bool{"": true, other: true}, taken: map[string]bool{}}
	g.know(known)
	return g
}

func (g *guard) know(texts []string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, s := range texts {
		l := label(s)
		g.free[l] = true
		delete(g.taken, l)
	}
}

func (g *guard) label(s string) string {
	if s == "" {
		return s
	}
	if l, ok := g.texts.get(s); ok {
		return l
	}
	l, ok := g.admit(s)
	if !ok {
		return other
	}
	if l != s { // any number of texts are cut or mended to one label: they are not kept
		return l
	}
	return g.texts.add(l, func() string { return l })
}

func (g *guard) admit(s string) (string, bool) {
	l := label(s)
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.free[l] || g.taken[l]:
		return l, true
	case len(g.taken) < g.most:
		g.taken[l] = true
		return l, true
	}
	if !g.logged {
		g.logged = true
		g.log.LogAttrs(background, slog.LevelWarn, "otelonceq: too many "+g.what+"; the label of further ones is "+other,
			slog.Int("most", g.most), slog.String("first", l), slog.String("raise", "Options."+g.field))
	}
	return "", false
}

// label cuts a text and makes it UTF-8, because one label that is not fails a whole scrape.
func label(s string) string {
	if len(s) > maxLabel {
		s = s[:maxLabel]
	}
	return strings.Clone(strings.ToValidUTF8(s, "_"))
}

// A set is a set of labels in the form in which recording them allocates nothing.
type set struct {
	add []metric.AddOption
	rec []metric.RecordOption
	obs metric.ObserveOption
}

func newSet(kvs ...attribute.KeyValue) set {
	o := metric.WithAttributeSet(attribute.NewSet(kvs...))
	return set{add: []metric.AddOption{o}, rec: []metric.RecordOption{o}, obs: o}
}

// queueLabels are the sets of one queue, and those of its types.
type queueLabels struct {
	name  string
	spans spanNames
	of    set
	types table[string, *typeLabels]

	operations table[operation, called]
	processes  table[string, set] // of messaging.process.duration, by class
	lost       table[string, set]
	states     table[string, set]
}

// spanNames are the names of a queue's spans.
type spanNames struct{ create, send, process, settle, receive string }

func newQueueLabels(name string) *queueLabels {
	return &queueLabels{
		name: name, of: newSet(labelQueue.String(name)),
		spans: spanNames{"create " + name, "send " + name, "process " + name, "settle " + name, "receive " + name},
	}
}

// typeLabels are the sets of a queue's type.
type typeLabels struct {
	queue     *queueLabels
	typ       string
	of        set
	completed *counter
	done      *counter // ended with the outcome done
	atOnce    set      // of attempts: done, and there was no failure before

	sends    *counters
	enqueued table[string, *counter] // by source
	ends     *counters
	ended    table[onceq.Outcome, *counter] // the others
	failed   table[failure, set]            // final or not
	retried  table[string, set]             // by class
	limited  table[string, set]             // by limiter
	attempts table[ending, set]
}

func newTypeLabels(sends, completed, ends *counters, q *queueLabels, typ string) *typeLabels {
	l := &typeLabels{sends: sends, ends: ends, queue: q, typ: typ}
	l.of = l.with()
	l.completed, l.done = completed.of(l.of.obs), ends.of(l.with(labelOutcome.String(string(onceq.OutcomeDone))).obs)
	l.atOnce = l.byEnding("", string(onceq.OutcomeDone))
	return l
}

type failure struct {
	class string
	final bool
}

type ending struct{ class, outcome string }

func (l *typeLabels) with(kvs ...attribute.KeyValue) set {
	return newSet(append(kvs, labelQueue.String(l.queue.name), labelType.String(l.typ))...)
}

func (l *typeLabels) bySource(source string) *counter {
	if c, ok := l.enqueued.get(source); ok {
		return c
	}
	return l.enqueued.add(source, func() *counter { return l.sends.of(l.with(labelSource.String(source)).obs) })
}

func (l *typeLabels) byOutcome(outcome onceq.Outcome) *counter {
	if outcome == onceq.OutcomeDone {
		return l.done
	}
	if c, ok := l.ended.get(outcome); ok {
		return c
	}
	return l.ended.add(outcome, func() *counter { return l.ends.of(l.with(labelOutcome.String(string(outcome))).obs) })
}

func (l *typeLabels) byFailure(class string, final bool) set {
	k := failure{class, final}
	if s, ok := l.failed.get(k); ok {
		return s
	}
	return l.failed.add(k, func() set {
		text := "false"
		if final {
			text = "true"
		}
		return l.with(labelClass.String(class), labelFinal.String(text))
	})
}

func (l *typeLabels) byClass(class string) set {
	if s, ok := l.retried.get(class); ok {
		return s
	}
	return l.retried.add(class, func() set { return l.with(labelClass.String(class)) })
}

func (l *typeLabels) byLimiter(limiter string) set {
	if s, ok := l.limited.get(limiter); ok {
		return s
	}
	return l.limited.add(limiter, func() set { return l.with(labelLimiter.String(limiter)) })
}

func (l *typeLabels) byEnding(class, outcome string) set {
	k := ending{class, outcome}
	if s, ok := l.attempts.get(k); ok {
		return s
	}
	return l.attempts.add(k, func() set { return l.with(labelClass.String(class), labelOutcome.String(outcome)) })
}

// count and record are the two ways to use a set. ctx matters for exemplars alone.
func count(ctx context.Context, c metric.Int64Counter, n int64, s set) { c.Add(ctx, n, s.add...) }

func record(ctx context.Context, h metric.Float64Histogram, v float64, s set) {
	if h.Enabled(ctx) { // a View may drop it; the SDK would look at the labels all the same
		h.Record(ctx, v, s.rec...)
	}
}

func (q *queueLabels) byState(state string) set {
	if s, ok := q.states.get(state); ok {
		return s
	}
	return q.states.add(state, func() set { return newSet(labelQueue.String(q.name), labelState.String(state)) })
}

// A pause is a reason why a queue, or a scope or type on it, is paused.
type pause struct{ queue, scope, typ, reason string }

type storeOperation struct{ store, operation, outcome string }

type letterFate struct {
	queue string
	fate  dlq.Result
}

// operation names a set of messaging.client.*.
type operation struct{ name, class string }

// called are the labels of one operation that ended in one way.
type called struct {
	of             set
	sent, consumed *counter // nil where the operation does not count messages, or nothing is recorded
}

// conventions are the labels of messaging.*.
func conventions(system, queue, operation, class string) []attribute.KeyValue {
	kvs := []attribute.KeyValue{attrSystem.String(system), attrDestination.String(queue), attrOperationName.String(operation)}
	if class != "" {
		kvs = append(kvs, attrErrorType.String(class))
	}
	return kvs
}

func (q *queueLabels) byPart(part string) set {
	if s, ok := q.lost.get(part); ok {
		return s
	}
	return q.lost.add(part, func() set { return newSet(labelQueue.String(q.name), labelPart.String(part)) })
}
