package otelonceq

import (
	"context"
	"log/slog"

	"go.opentelemetry.io/otel/trace"

	"github.com/onceq/onceq/internal/values"
)

// LogHandler adds to every line that is logged with the context of a job's handler: trace_id and
// span_id, where there is a span, and job, key and attempt; fence too, under Options.Fences. They
// stand beside the line's own attributes, within the logger's groups. Make it before the worker
// runs. It needs the Observer of a Telemetry; other lines get the ids of their span alone. nil
// stays nil, which slog.New refuses.
func LogHandler(h slog.Handler) slog.Handler {
	if values.IsNil(h) {
		return nil
	}
	logs.Store(true)
	return &logHandler{h}
}

type logHandler struct{ slog.Handler }

func (h *logHandler) Handle(ctx context.Context, r slog.Record) error {
	if ctx == nil {
		return h.Handler.Handle(ctx, r)
	}
	c, span := jobIn(ctx), trace.SpanContextFromContext(ctx)
	if c == nil && !span.IsValid() {
		return h.Handler.Handle(ctx, r)
	}
	r = r.Clone()
	if span.IsValid() {
		r.AddAttrs(slog.String("trace_id", span.TraceID().String()), slog.String("span_id", span.SpanID().String()))
	}
	if c != nil {
		r.AddAttrs(slog.String("job", label(c.id)), slog.String("key", c.key.Key), slog.Int("attempt", c.attempt))
		if c.fence != 0 {
			r.AddAttrs(slog.Uint64("fence", c.fence))
		}
	}
	return h.Handler.Handle(ctx, r)
}

func (h *logHandler) WithAttrs(as []slog.Attr) slog.Handler {
	if len(as) == 0 {
		return h
	}
	return &logHandler{h.Handler.WithAttrs(as)}
}

func (h *logHandler) WithGroup(name string) slog.Handler {
	if name == "" {
		return h
	}
	return &logHandler{h.Handler.WithGroup(name)}
}
