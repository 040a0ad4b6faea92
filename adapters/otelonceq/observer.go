package otelonceq

import (
	"context"

	"github.com/onceq/onceq"
)

// This file owns what is recorded of jobs. A worker calls the Observer from many goroutines, and a
// slow Observer slows every job. So this takes no lock and, after the first job of a type,
// allocates nothing. spans.go has the spans.

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

func (o *observer) JobEnded(ctx context.Context, r *onceq.JobReport) {
	began, of := o.t.ended(ctx, r)
	o.t.measure(began, of, r)
}

// measure records the metrics of a delivery. ctx has the span, for exemplars.
func (t *Telemetry) measure(ctx context.Context, of *typeLabels, r *onceq.JobReport) {
	m := &t.m
	of.byOutcome(r.Outcome).grow(1)
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
		of.completed.grow(1)
		t.attempted(ctx, of, r, t.classes.label(r.PrevClass))
		if r.Age > 0 {
			record(ctx, m.age, r.Age.Seconds(), of.of)
		}
	case onceq.OutcomeRetried:
		count(ctx, m.retried, 1, of.byClass(class))
	case onceq.OutcomePostponed:
		if r.Limiter != "" {
			count(ctx, m.postponed, 1, of.byLimiter(t.limiters.label(r.Limiter)))
		}
	case onceq.OutcomeFailed, onceq.OutcomeParked:
		t.attempted(ctx, of, r, class)
	default: // of the others no attempt is over
	}
	if !r.Ran {
		return
	}
	record(ctx, m.duration, r.Process.Seconds(), of.of)
	if r.Attempt == 1 && r.PrevClass == "" && r.QueueWait > 0 { // a job that was postponed has not waited for a worker
		record(ctx, m.wait, r.QueueWait.Seconds(), of.of)
	}
	queue := of.queue
	record(ctx, m.held, r.Held.Seconds(), queue.of)
	if !r.Ended.IsZero() {
		record(ctx, m.settle, r.Settle.Seconds(), queue.of)
	}
	if m.process != nil && (r.Receives > 0 || r.Age > 0) { // else it is a call of Do, which has no message
		record(ctx, m.process, r.Process.Seconds(), t.processing(queue, class))
	}
}

func (t *Telemetry) attempted(ctx context.Context, of *typeLabels, r *onceq.JobReport, class string) {
	if r.Attempt <= 0 {
		return
	}
	labels := of.atOnce
	if class != "" || r.Outcome != onceq.OutcomeDone {
		labels = of.byEnding(class, string(r.Outcome))
	}
	record(ctx, t.m.attempts, float64(r.Attempt), labels)
}

func (t *Telemetry) processing(q *queueLabels, class string) set {
	if s, ok := q.processes.get(class); ok {
		return s
	}
	return q.processes.add(class, func() set {
		return newSet(conventions(t.system(q.name), q.name, "process", class)...)
	})
}

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
			if p.queue == k.queue && (p.reason == onceq.ReasonLocal || p.reason == onceq.ReasonRules || p.reason == onceq.ReasonBreaker) {
				delete(t.pauses, p)
			}
		}
	default: // the others are in worker_state, or in the log
	}
}
