package otelonceq

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/onceq/onceq"
)

// This file owns what is recorded of jobs. A worker calls the Observer from many goroutines, and
// everything here is held up when it is slow: so no lock is taken and, once the labels of a type
// are known, nothing is allocated. spans.go has the spans.

// Observer tells of every job. Give it to ProcessorConfig.Observer; one may serve many Processors.
// It is an onceq.WorkerObserver, too.
func (t *Telemetry) Observer() onceq.Observer { return &observer{t} }

type observer struct{ t *Telemetry }

var (
	_ onceq.Observer       = (*observer)(nil)
	_ onceq.WorkerObserver = (*observer)(nil)
)

func (o *observer) JobStarted(ctx context.Context, j *onceq.Job) context.Context {
	return o.t.started(ctx, j)
}

func (o *observer) JobEnded(ctx context.Context, r *onceq.TimingRecord) {
	began, of := o.t.ended(ctx, r)
	o.t.measure(began, of, r)
}

// late are the outcomes of a run whose end could not be recorded.
func late(o onceq.Outcome) bool {
	return o == onceq.OutcomeLeaseLost || o == onceq.OutcomeUnsettled || o == onceq.OutcomeAbandoned
}

// refused are the outcomes of a delivery that became a dead letter and never ran.
func refused(o onceq.Outcome) bool {
	switch o {
	case onceq.OutcomeExpired, onceq.OutcomeUnproven, onceq.OutcomeTooEarly, onceq.OutcomeNoKey, onceq.OutcomeBadKey, onceq.OutcomeBadMeta,
		onceq.OutcomeBadFingerprint, onceq.OutcomeClaimRefused, onceq.OutcomeNoHandler, onceq.OutcomeConfig, onceq.OutcomeMismatch,
		onceq.OutcomeDuplicate:
		return true
	}
	return false
}

// failure says whether the delivery counts as a failure, of which class, and whether it was the
// last: no attempt follows.
func failureOf(r *onceq.TimingRecord) (class string, final, failed bool) {
	switch {
	case r.Outcome == onceq.OutcomeFailed || r.Outcome == onceq.OutcomeParked || refused(r.Outcome):
		if class = r.ErrClass; class == "" {
			class = string(r.Outcome)
		}
		return class, true, true
	case r.Ran && r.ErrClass != "" && r.Outcome != onceq.OutcomeDone && r.Outcome != onceq.OutcomeHandedBack:
		return r.ErrClass, false, true
	}
	return "", false, false
}

// measure records the metrics of a delivery. ctx has the span, for exemplars.
func (t *Telemetry) measure(ctx context.Context, of *typeLabels, r *onceq.TimingRecord) {
	m := &t.m
	count(ctx, m.ended, 1, of.byOutcome(string(r.Outcome)))
	if late(r.Outcome) {
		count(ctx, m.lateEnd, 1, of.of)
	}
	if r.From != "" {
		count(ctx, m.stalled, 1, of.of)
	}
	class, final, failed := failureOf(r)
	class = t.classes.label(class)
	if failed {
		count(ctx, m.failed, 1, of.byFailure(class, final))
	}
	switch r.Outcome {
	case onceq.OutcomeDone:
		count(ctx, m.completed, 1, of.of)
		t.attempted(ctx, of, r, t.classes.label(r.PrevClass))
		if r.Age > 0 {
			record(ctx, m.age, r.Age.Seconds(), of.of)
		}
	case onceq.OutcomeRetried:
		count(ctx, m.retried, 1, of.byClass(class))
	case onceq.OutcomeFailed, onceq.OutcomeParked:
		t.attempted(ctx, of, r, class)
	default: // of the others no attempt is over
	}
	if !r.Ran {
		return
	}
	record(ctx, m.duration, r.Process.Seconds(), of.of)
	if r.Attempt == 1 && r.QueueWait > 0 {
		record(ctx, m.wait, r.QueueWait.Seconds(), of.of)
	}
	queue := t.queue(r.Queue)
	record(ctx, m.held, r.Held.Seconds(), queue.of)
	if !r.Ended.IsZero() {
		record(ctx, m.settle, r.Settle.Seconds(), queue.of)
	}
	if m.process != nil && (r.Receives > 0 || r.Age > 0) { // else it is a call of Do, which has no message
		record(ctx, m.process, r.Process.Seconds(), t.processing(queue.name, class))
	}
}

func (t *Telemetry) attempted(ctx context.Context, of *typeLabels, r *onceq.TimingRecord, class string) {
	if r.Attempt > 0 {
		record(ctx, t.m.attempts, float64(r.Attempt), of.byEnding(class, string(r.Outcome)))
	}
}

// process names a set of messaging.process.duration.
type process struct{ queue, class string }

func (t *Telemetry) processing(queue, class string) set {
	k := process{queue, class}
	if s, ok := t.processes.get(k); ok {
		return s
	}
	return t.processes.add(k, func() set {
		return newSet(conventions(t.system(queue), queue, "process", class)...)
	})
}

// A pause is a reason why a queue, or a scope or type on it, is paused.
type pause struct{ queue, scope, typ, reason string }

// WorkerEvent keeps since when a worker is paused, and for whom.
func (o *observer) WorkerEvent(_ context.Context, e *onceq.WorkerEvent) {
	t := o.t
	k := pause{queue: label(e.Queue), reason: e.Reason}
	t.mu.Lock()
	defer t.mu.Unlock()
	switch e.Kind {
	case onceq.EventPaused:
		t.pauses[k] = float64(e.Since.UnixMilli()) / 1000
	case onceq.EventResumed:
		delete(t.pauses, k)
	case onceq.EventDrained, onceq.EventStarted:
		for p := range t.pauses {
			if p.queue == k.queue && (p.reason == onceq.ReasonLocal || p.reason == onceq.ReasonRules) {
				delete(t.pauses, p)
			}
		}
	default: // the others are in worker_state, or in the log
	}
}

// exemplar is the context that metrics are recorded with: the span's where somebody keeps it, and
// else none of the delivery's, because to look into that one costs allocations.
func exemplar(ctx context.Context, span trace.Span) context.Context {
	if span.SpanContext().IsSampled() {
		return ctx
	}
	return background
}

// millis is a duration in the unit of our attributes.
func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
