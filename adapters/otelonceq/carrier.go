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

func (t *Telemetry) extracted(attributes map[string]string) (_ trace.SpanContext, _ baggage.Baggage) {
	if len(attributes) == 0 {
		return trace.SpanContext{}, baggage.Baggage{}
	}
	defer t.survive()
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

// An injection puts contexts into the messages of one Send. It is a propagator's carrier, too.
type injection struct {
	t      *Telemetry
	limits broker.Limits
	queue  *queueLabels
	parts  []part // of the message in hand
}

type part struct{ name, value string }

var _ propagation.TextMapCarrier = (*injection)(nil)

func (in *injection) Get(name string) string {
	for _, p := range in.parts {
		if p.name == name {
			return p.value
		}
	}
	return ""
}

func (in *injection) Set(name, value string) {
	for i := range in.parts {
		if in.parts[i].name == name {
			in.parts[i].value = value
			return
		}
	}
	in.parts = append(in.parts, part{name, value})
}

func (in *injection) Keys() []string {
	names := make([]string, len(in.parts))
	for i, p := range in.parts {
		names[i] = p.name
	}
	return names
}

// into puts the context into the message, as far as there is room: the most important part first.
// The message's attributes are copied before, because they are the caller's.
func (in *injection) into(ctx context.Context, m *broker.Outgoing) {
	in.parts = in.parts[:0]
	in.t.carry.now().Inject(ctx, in)
	if len(in.parts) == 0 {
		return
	}
	slices.SortFunc(in.parts, byImportance)
	l := &in.limits
	taken := len(m.Attributes)
	if m.Meta != nil {
		taken++
	}
	room := -1 // any
	if l.MaxBody > 0 {
		room = max(0, l.MaxBody-sizeOf(m, l.MaxBody))
	}
	owned := false
	for _, p := range in.parts {
		size := len(p.name) + len(p.value) + attributeOverhead
		if _, has := m.Attributes[p.name]; has || l.MaxAttributes > 0 && taken >= l.MaxAttributes || room >= 0 && size > room {
			count(background, in.t.m.contextLost, 1, in.queue.byPart(in.known(p.name)))
			continue
		}
		if !owned {
			owned = true
			m.Attributes = cloned(m.Attributes)
		}
		m.Attributes[p.name] = p.value
		taken++
		if room >= 0 {
			room -= size
		}
	}
}

// known is the name of a part that is left out. A propagator may make names of what a caller has in
// his baggage, and these do not become labels.
func (in *injection) known(name string) string {
	if slices.Contains(in.t.carry.now().Fields(), name) {
		return name
	}
	return other
}

// attributeOverhead is what a service counts for an attribute beside its name and value, such as
// the name of its type.
const attributeOverhead = 16

// byImportance puts traceparent first and tracestate last, because it is the first to be left out.
func byImportance(a, b part) int {
	rank := func(name string) int {
		switch name {
		case broker.TraceAttribute:
			return 0
		case "tracestate":
			return 2
		}
		return 1
	}
	if n := rank(a.name) - rank(b.name); n != 0 {
		return n
	}
	return strings.Compare(a.name, b.name)
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
