package otelonceq

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/baggage"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/broker"
)

// This file owns the spans of jobs: process, settle and do. The Observer starts one in the
// goroutine of the handler, and ends it in the one that tells of the job's end. Both find it in the
// context that the core hands from one to the other; its end is marked, so that it ends once.

// Options that are the same for every span, made once.
var (
	ofConsumer = trace.WithSpanKind(trace.SpanKindConsumer)
	ofProducer = trace.WithSpanKind(trace.SpanKindProducer)
	ofClient   = trace.WithSpanKind(trace.SpanKindClient)
	ofInternal = trace.WithSpanKind(trace.SpanKindInternal)
	asRoot     = trace.WithNewRoot()
)

// started makes the context of a handler.
func (t *Telemetry) started(ctx context.Context, j *onceq.Job) context.Context {
	spans := t.traces.on()
	if !spans && !logs.Load() {
		return t.passOn(ctx, j)
	}
	c := &jobContext{Context: ctx, id: j.ID(), key: j.Key(), attempt: j.Attempt}
	if t.o.Fences {
		c.fence = j.Fence()
	}
	if !spans {
		c.Context = t.passOn(ctx, j)
		return c
	}
	m := j.Message
	c.do = isDo(m)
	parent, name := ctx, ""
	var options []trace.SpanStartOption
	if c.do {
		name = "do " + c.key.Scope
		options = append(options, ofInternal, trace.WithAttributes(attrJobKey.String(c.key.Key)))
	} else {
		queue := t.queue(j.Queue())
		name = queue.spans.process
		parent, options = t.received(ctx, j, queue.name)
	}
	c.Context, c.span = t.begin(ctx, parent, name, options...)
	return c
}

// begin starts a span. Where that panics there is none, and the context is ctx.
func (t *Telemetry) begin(ctx, parent context.Context, name string, options ...trace.SpanStartOption) (with context.Context, span trace.Span) {
	with = ctx
	defer t.survive()
	return t.traces.tracer.Start(parent, name, options...)
}

// passOn hands a caller's trace on to the handler where nobody makes spans.
func (t *Telemetry) passOn(ctx context.Context, j *onceq.Job) context.Context {
	if !t.o.Parent {
		return ctx
	}
	if from := t.contextOf(j.Message); from.IsSampled() {
		return trace.ContextWithRemoteSpanContext(ctx, from)
	}
	return ctx
}

// received answers the parent and the options of a process span.
func (t *Telemetry) received(ctx context.Context, j *onceq.Job, queue string) (context.Context, []trace.SpanStartOption) {
	m := j.Message
	attrs := make([]attribute.KeyValue, 0, 12)
	attrs = append(attrs, attrSystem.String(t.system(queue)), attrDestination.String(queue), attrOperationName.String("process"), attrOperationType.String("process"), attrMessageID.String(m.ID),
		attrJob.String(j.ID()), attrJobKey.String(j.Key().Key), attrAttempt.Int(j.Attempt))
	if typ := j.Type(); typ != "" {
		attrs = append(attrs, attrJobType.String(typ))
	}
	if m.Meta != nil && m.Meta.CorrelationID != "" {
		attrs = append(attrs, attrConversation.String(m.Meta.CorrelationID))
	}
	if m.Attempt > 0 {
		attrs = append(attrs, attrReceives.Int(m.Attempt))
	}
	options := make([]trace.SpanStartOption, 0, 4)
	options = append(options, ofConsumer, trace.WithAttributes(attrs...))
	from, carried := t.extracted(m.Attributes)
	if carried.Len() > 0 {
		ctx = baggage.ContextWithBaggage(ctx, carried)
	}
	ambient := trace.SpanContextFromContext(ctx) // such as that of the Lambda function
	var links []trace.Link
	root := true
	switch {
	case t.o.Parent && from.IsValid():
		ctx, root = trace.ContextWithRemoteSpanContext(ctx, from), false
	case from.IsValid():
		links = append(links, trace.Link{SpanContext: from})
	}
	if ambient.IsValid() && !ambient.Equal(from) {
		links = append(links, trace.Link{SpanContext: ambient})
	}
	if root && ambient.HasTraceID() { // where nothing is around it, it is a root all the same
		options = append(options, asRoot)
	}
	if len(links) > 0 {
		options = append(options, trace.WithLinks(links...))
	}
	return ctx, options
}

// isDo reports whether a Job is a call of Do: it has no delivery.
func isDo(m *broker.Message) bool {
	return m.Receipt == "" && m.ID == "" && m.Published.IsZero() && m.Meta != nil && m.Meta.Created.IsZero()
}

// ended ends the span, if there is one, and answers what the job's metrics are recorded with.
func (t *Telemetry) ended(ctx context.Context, r *onceq.JobReport) (context.Context, *typeLabels) {
	labels := t.job(t.queue(r.Queue), r.Type)
	if !r.Ran {
		return background, labels
	}
	c, ok := ctx.(*jobContext)
	if !ok && t.traces.on() {
		// Somebody has wrapped the Observer, or its context. The job itself must be the same,
		// because a handler that calls Do has a job around it.
		if c = jobIn(ctx); c != nil && (c.key != r.Key || c.attempt != r.Attempt) {
			c = nil
		}
	}
	if c == nil || c.span == nil || c.over {
		return background, labels
	}
	c.over = true
	t.endSpan(c, r)
	return exemplar(c.Context, c.span), labels
}

// slowSettle is from when on a settlement has a span of its own.
const slowSettle = 100 * time.Millisecond

func (t *Telemetry) endSpan(c *jobContext, r *onceq.JobReport) {
	defer t.survive() // the metrics are still to be recorded
	end := r.Ended
	if end.IsZero() {
		end = time.Now()
	}
	if c.span.IsRecording() {
		if !c.do {
			c.span.SetAttributes(attrQueueWait.Float64(millis(r.QueueWait)), attrBeats.Int(r.Beats))
		}
		c.span.SetAttributes(attrOutcome.String(string(r.Outcome)))
		if r.Fence != 0 && (t.o.Fences || !secret(r)) {
			c.span.SetAttributes(attrFence.Int64(int64(r.Fence)))
		}
		t.tell(c.span, r, end)
		c.span.End(trace.WithTimestamp(end))
	} else {
		c.span.End()
	}
	if failed := r.Outcome == onceq.OutcomeUnsettled; !r.Ended.IsZero() && (failed || r.Settle >= slowSettle) {
		t.settleSpan(c, r, end, failed)
	}
}

// tell writes what a person looks for in a run that did not go well.
func (t *Telemetry) tell(span trace.Span, r *onceq.JobReport, end time.Time) {
	if r.From != "" {
		span.SetAttributes(attrFrom.String(r.From))
		span.AddEvent("took_over", trace.WithTimestamp(r.Began), trace.WithAttributes(
			attribute.String("from", r.From), attrDead.Float64(millis(r.DeadFor))))
	}
	if r.Heartbeat && r.Beats == 0 && r.Visibility > 0 && r.Process > r.Visibility {
		span.AddEvent("beat.late", trace.WithTimestamp(end))
	}
	switch r.Outcome {
	case onceq.OutcomeLeaseLost:
		span.AddEvent("lease.lost", trace.WithTimestamp(end))
	case onceq.OutcomeParked:
		span.AddEvent("parked", trace.WithTimestamp(end))
	default: // the outcome says it
	}
	class, final, failed := failureOf(r)
	if !failed {
		return
	}
	// The conventions want error.type and the status Error together or not at all. A run that is
	// tried again is no failed operation: the job may still succeed.
	if !final {
		span.SetAttributes(attrErrorClass.String(t.classes.label(class)))
		return
	}
	span.SetAttributes(attrErrorType.String(t.classes.label(class)))
	span.SetStatus(codes.Error, r.Err)
}

func (t *Telemetry) settleSpan(c *jobContext, r *onceq.JobReport, began time.Time, failed bool) {
	of := t.queue(r.Queue)
	queue := of.name
	_, span := t.traces.tracer.Start(c.Context, of.spans.settle, ofClient, trace.WithTimestamp(began),
		trace.WithAttributes(attrSystem.String(t.system(queue)), attrDestination.String(queue), attrOperationName.String("settle"),
			attrOperationType.String("settle"), attrOutcome.String(string(r.Outcome)), attrSettleMs.Float64(millis(r.Settle))))
	if failed {
		span.SetStatus(codes.Error, "the end could not be recorded")
	}
	span.End(trace.WithTimestamp(began.Add(r.Settle)))
}
