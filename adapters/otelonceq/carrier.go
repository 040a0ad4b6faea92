package otelonceq

import (
	"context"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"go.opentelemetry.io/otel/baggage"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/onceq/onceq/broker"
)

// This file owns the way of a context across the queue: in the attributes of a message, as far as
// there is room. Senders inject, in the goroutine of whoever sends; the Observer extracts, in that
// of the handler. Nothing here keeps state.

// contextOf is the trace context that the message has brought.
func (t *Telemetry) contextOf(m *broker.Message) trace.SpanContext {
	from, _ := t.extracted(m.Attributes)
	return from
}

func (t *Telemetry) extracted(attributes map[string]string) (trace.SpanContext, baggage.Baggage) {
	if len(attributes) == 0 {
		return trace.SpanContext{}, baggage.Baggage{}
	}
	ctx := t.carry.now().Extract(background, propagation.MapCarrier(attributes))
	return trace.SpanContextFromContext(ctx), baggage.FromContext(ctx)
}

// hasContext reports whether a message has a context already, which it keeps.
func (t *Telemetry) hasContext(attributes map[string]string) bool {
	if attributes[broker.TraceAttribute] != "" {
		return true
	}
	from, _ := t.extracted(attributes)
	return from.IsValid()
}

// inject puts the context into the message, as far as there is room: the most important part first.
// The message's attributes are copied before, because they are the caller's.
func (t *Telemetry) inject(ctx context.Context, m *broker.Outgoing, l *broker.Limits, queue *queueLabels) {
	parts := propagation.MapCarrier{}
	t.carry.now().Inject(ctx, parts)
	if len(parts) == 0 {
		return
	}
	taken := len(m.Attributes)
	if m.Meta != nil {
		taken++
	}
	room := -1 // any
	if l.MaxBody > 0 {
		room = max(0, l.MaxBody-sizeOf(m, l.MaxBody))
	}
	owned := false
	for _, name := range slices.SortedFunc(maps.Keys(parts), byImportance) {
		size := len(name) + len(parts[name]) + attributeOverhead
		if _, has := m.Attributes[name]; has || l.MaxAttributes > 0 && taken >= l.MaxAttributes || room >= 0 && size > room {
			count(background, t.m.contextLost, 1, queue.byPart(name))
			continue
		}
		if !owned {
			owned = true
			m.Attributes = cloned(m.Attributes)
		}
		m.Attributes[name] = parts[name]
		taken++
		if room >= 0 {
			room -= size
		}
	}
}

// attributeOverhead is what a service counts for an attribute beside its name and value, such as
// the name of its type.
const attributeOverhead = 16

// byImportance puts traceparent first and tracestate last, because it is the first to be left out.
func byImportance(a, b string) int {
	rank := func(name string) int {
		switch name {
		case broker.TraceAttribute:
			return 0
		case "tracestate":
			return 2
		}
		return 1
	}
	if n := rank(a) - rank(b); n != 0 {
		return n
	}
	return strings.Compare(a, b)
}

func cloned(attributes map[string]string) map[string]string {
	c := make(map[string]string, len(attributes)+2)
	maps.Copy(c, attributes)
	return c
}

// sizeOf is no less than what a service counts for the message. What cannot travel as text is sent
// as base64, and counted so; whether it can is looked at only where that matters.
func sizeOf(m *broker.Outgoing, most int) int {
	n := len(m.Body) + len(broker.EncodeMeta(m.Meta)) + len(broker.MetaAttribute) + 2*attributeOverhead
	for name, value := range m.Attributes {
		n += len(name) + len(value) + len(value)/3 + attributeOverhead
	}
	if worst := n + len(m.Body)/3 + 4; worst <= most || !plain(m.Body) {
		return worst
	}
	return n
}

// plain reports whether a service carries the bytes as they are.
func plain(b []byte) bool {
	for _, c := range b {
		if c < 0x20 && c != '\t' && c != '\n' && c != '\r' {
			return false
		}
	}
	return utf8.Valid(b)
}
