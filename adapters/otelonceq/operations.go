package otelonceq

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/onceq/onceq/broker"
)

// operation answers the labels of a call. It is not asked where the conventions are switched off.
func (t *Telemetry) operation(q *queueLabels, system, name, kind string, err error) called {
	k := operation{name: name}
	if err != nil {
		k.class = errorType(err)
	}
	if s, ok := q.operations.get(k); ok {
		return s
	}
	return q.operations.add(k, func() called {
		c := called{of: newSet(append(conventions(system, q.name, k.name, k.class), attrOperationType.String(kind))...)}
		switch name {
		case "send":
			c.sent = t.m.sent.of(c.of.obs)
		case "receive":
			c.consumed = t.m.consumed.of(c.of.obs)
		}
		return c
	})
}

// errorType is a word for an error of a call: a handful, whatever the service says.
func errorType(err error) string {
	var batch *broker.BatchError
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return "timeout"
	case errors.Is(err, context.Canceled):
		return "canceled"
	case errors.Is(err, broker.ErrThrottled):
		return "throttled"
	case errors.Is(err, broker.ErrReceiptExpired):
		return "receipt_expired"
	case errors.Is(err, broker.ErrNotFound):
		return "not_found"
	case errors.Is(err, broker.ErrTooLarge):
		return "too_large"
	case errors.Is(err, broker.ErrUnsupported):
		return "unsupported"
	case errors.Is(err, broker.ErrBadMeta):
		return "bad_metadata"
	case errors.Is(err, broker.ErrClosed):
		return "closed"
	case errors.As(err, &batch):
		return "partial"
	}
	return "_OTHER"
}

func described(v any) broker.Description {
	if d, ok := broker.As[broker.Describer](v); ok {
		return d.Describe()
	}
	return broker.Description{}
}

// endCall ends the span of a call; nil is none.
func (t *Telemetry) endCall(span trace.Span, err error) {
	if span == nil {
		return
	}
	defer t.survive()
	if err != nil {
		span.SetAttributes(attrErrorType.String(errorType(err)))
		span.SetStatus(codes.Error, err.Error())
	}
	span.End()
}
