package otelonceq

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/ahead"
	"github.com/onceq/onceq/internal/values"
)

// This file owns the decorated sender: its spans, the contexts that it puts into messages, and what
// it counts. Whoever sends calls it, in many goroutines. It keeps no state.

// Sender is s with spans for what is sent, a trace context in each message, and
// jobs_enqueued_total. Every optional interface of s is found through it by broker.As. nil stays
// nil.
func (t *Telemetry) Sender(s broker.Sender) broker.Sender {
	if values.IsNil(s) {
		return s
	}
	return t.sender(s)
}

func (t *Telemetry) sender(s broker.Sender) *sender {
	name, system := t.describe(s)
	return &sender{Sender: s, t: t, queue: t.queue(name), system: system}
}

type sender struct {
	broker.Sender
	t      *Telemetry
	queue  *queueLabels
	system string
}

// Unwrap is what is decorated.
func (s *sender) Unwrap() any { return s.Sender }

// Describe is that of what is decorated; the zero value where it does not tell.
func (s *sender) Describe() broker.Description { return described(s.Sender) }

// The sources of a message.
const (
	sourceSend   = "send"
	sourceReplay = "replay"
	sourceCarry  = "carry"
)

func (s *sender) Send(ctx context.Context, ms []broker.Outgoing) ([]string, error) {
	var began time.Time
	if s.t.m.operation != nil {
		began = time.Now()
	}
	ctx, sent, span := s.before(ctx, ms)
	ids, err := s.Sender.Send(ctx, sent)
	if span != nil && len(ids) == 1 && ids[0] != "" {
		s.name(span, ids[0])
	}
	s.t.endCall(span, err)
	s.count(began, ms, ahead.Carries(ctx), err)
	return ids, err
}

// name gives the span of one message the id that the queue has for it, which is also that of its
// process span. The ids of a batch have no place on a span.
func (s *sender) name(span trace.Span, id string) {
	defer s.t.survive()
	span.SetAttributes(attrMessageID.String(id))
}

// before answers what to send, and with which context. After a panic of a span processor or a
// propagator that is what came, because the message matters more.
func (s *sender) before(ctx context.Context, ms []broker.Outgoing) (with context.Context, out []broker.Outgoing, span trace.Span) {
	with, out = ctx, ms
	if len(ms) == 0 || !s.t.traces.on() && !trace.SpanContextFromContext(ctx).IsValid() {
		return with, out, nil
	}
	defer s.t.survive()
	sent, span := s.traced(ctx, ms)
	if span != nil {
		with = trace.ContextWithSpan(ctx, span)
	}
	return with, sent, span
}

// count counts what the queue has accepted. An error without positions says of no entry that it
// was. carried says that a worker sends messages anew.
func (s *sender) count(began time.Time, ms []broker.Outgoing, carried bool, err error) {
	defer s.t.survive()
	m := &s.t.m
	for i := 0; i < len(ms); {
		typ, source := typeOf(&ms[i]), sourceOf(&ms[i], carried)
		n := int64(0)
		// Neighbours with one type are counted together.
		for ; i < len(ms) && typeOf(&ms[i]) == typ && sourceOf(&ms[i], carried) == source; i++ {
			if broker.ErrAt(err, i) == nil {
				n++
			}
		}
		if n > 0 && !(source == sourceReplay && s.ofLetters()) {
			s.t.job(s.queue, typ).bySource(source).grow(n)
		}
	}
	if m.operation == nil || len(ms) == 0 {
		return
	}
	of := s.t.operation(s.queue, s.system, "send", "send", err)
	of.sent.grow(int64(len(ms)))
	record(background, m.operation, time.Since(began).Seconds(), of.of)
}

// ofLetters reports whether the queue is known as one of dead letters.
func (s *sender) ofLetters() bool {
	letters, _ := s.t.letters.get(s.queue.name)
	return letters
}

func typeOf(m *broker.Outgoing) string {
	if m.Meta == nil {
		return ""
	}
	return m.Meta.Type
}

func sourceOf(m *broker.Outgoing, carried bool) string {
	if carried {
		return sourceCarry
	}
	if m.Meta != nil && m.Meta.Dead != nil {
		return sourceReplay
	}
	return sourceSend
}

// traced makes the spans, and copies of the messages with their contexts. The conventions call a
// message's first context its creation context. A message that has one keeps it, and gets no span
// of its own.
func (s *sender) traced(ctx context.Context, ms []broker.Outgoing) ([]broker.Outgoing, trace.Span) {
	out := make([]broker.Outgoing, len(ms))
	copy(out, ms)
	in := injection{t: s.t, limits: s.Limits(), queue: s.queue}
	if !s.t.traces.on() {
		for i := range out {
			if !s.t.hasContext(out[i].Attributes) {
				in.into(ctx, &out[i])
			}
		}
		return out, nil
	}
	if len(ms) == 1 || s.t.o.NoCreateSpans {
		return out, s.together(ctx, out, &in)
	}
	links := make([]trace.Link, 0, len(out))
	for i := range out {
		m := &out[i]
		if from, _ := s.t.extracted(m.Attributes); from.IsValid() || m.Attributes[broker.TraceAttribute] != "" {
			links = append(links, trace.Link{SpanContext: from})
			continue
		}
		made, span := s.t.traces.tracer.Start(ctx, s.queue.spans.create, ofProducer, trace.WithAttributes(s.about(m, "create")...))
		in.into(made, m)
		links = append(links, trace.Link{SpanContext: span.SpanContext()})
		span.End()
	}
	_, span := s.t.traces.tracer.Start(ctx, s.queue.spans.send, ofClient, trace.WithLinks(links...),
		trace.WithAttributes(append(s.about(nil, "send"), attrBatch.Int(len(out)))...))
	return out, span
}

// together makes one span, whose context goes into every message that has none.
func (s *sender) together(ctx context.Context, out []broker.Outgoing, in *injection) trace.Span {
	attrs := s.about(nil, "send")
	if len(out) == 1 {
		attrs = s.about(&out[0], "send")
	} else {
		attrs = append(attrs, attrBatch.Int(len(out)))
	}
	kind := ofProducer
	var links []trace.Link
	parent := ctx
	for i := range out {
		from, _ := s.t.extracted(out[i].Attributes)
		if !from.IsValid() {
			continue
		}
		if len(out) == 1 {
			kind = ofClient // the message was created before
			if s.t.o.Parent && !trace.SpanContextFromContext(ctx).IsValid() {
				parent = trace.ContextWithRemoteSpanContext(ctx, from)
				continue
			}
		}
		links = append(links, trace.Link{SpanContext: from})
	}
	made, span := s.t.traces.tracer.Start(parent, s.queue.spans.send, kind, trace.WithAttributes(attrs...), trace.WithLinks(links...))
	for i := range out {
		if !s.t.hasContext(out[i].Attributes) {
			in.into(made, &out[i])
		}
	}
	return span
}

func (s *sender) about(m *broker.Outgoing, operation string) []attribute.KeyValue {
	attrs := make([]attribute.KeyValue, 0, 8)
	attrs = append(attrs, attrSystem.String(s.system), attrDestination.String(s.queue.name),
		attrOperationName.String(operation), attrOperationType.String(operation))
	if m == nil || m.Meta == nil {
		return attrs
	}
	attrs = append(attrs, attrJob.String(m.Meta.ID), attrJobKey.String(m.Meta.Key))
	if m.Meta.Type != "" {
		attrs = append(attrs, attrJobType.String(m.Meta.Type))
	}
	if m.Meta.CorrelationID != "" {
		attrs = append(attrs, attrConversation.String(m.Meta.CorrelationID))
	}
	return attrs
}
