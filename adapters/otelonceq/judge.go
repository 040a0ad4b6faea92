package otelonceq

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/onceq/onceq"
)

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

// failureOf says whether the delivery counts as a failure, of which class, and whether it was the
// last: no attempt follows.
func failureOf(r *onceq.JobReport) (class string, final, failed bool) {
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

// secret reports whether the fence is a permission: that of a job which has failed, or is parked,
// may reopen the failure.
func secret(r *onceq.JobReport) bool {
	return r.ErrClass != "" && r.Outcome != onceq.OutcomeRetried && r.Outcome != onceq.OutcomeLeaseLost
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
func millis(d time.Duration) float64 {
	return float64(d.Microseconds()) / 1000
}
