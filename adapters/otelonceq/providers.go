package otelonceq

import (
	"context"
	"fmt"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	tracenoop "go.opentelemetry.io/otel/trace/noop"
)

var background = context.Background()

// tracing answers tracers, and says when there is nobody who would keep a span.
type tracing struct {
	given  trace.TracerProvider // nil = the global one
	unset  trace.TracerProvider // what the global one is as long as nobody has set it; nil = unknown
	tracer trace.Tracer
}

func newTracing(given trace.TracerProvider) tracing {
	t := tracing{given: given}
	p := given
	if p == nil {
		p = otel.GetTracerProvider()
		// OpenTelemetry does not say whether a provider was set. Its stand-in has this type; should
		// it get another name, spans are started for nobody, which costs time and nothing else.
		if fmt.Sprintf("%T", p) == "*global.tracerProvider" {
			t.unset = p
		}
	}
	t.tracer = p.Tracer(scopeName, trace.WithInstrumentationVersion(version()), trace.WithSchemaURL(schemaURL))
	return t
}

// on reports whether spans are worth starting.
func (t *tracing) on() bool {
	if t.given == nil {
		p := otel.GetTracerProvider()
		return (t.unset == nil || p != t.unset) && !isNoop(p)
	}
	return !isNoop(t.given)
}

func isNoop(p trace.TracerProvider) bool {
	switch p.(type) {
	case tracenoop.TracerProvider, *tracenoop.TracerProvider:
		return true
	}
	return false
}

// propagators answer what carries contexts over a queue.
type propagators struct{ given propagation.TextMapPropagator }

var w3c propagation.TraceContext

// now is looked up for each job, because a program may set the global one after New.
func (p *propagators) now() propagation.TextMapPropagator {
	if p.given != nil {
		return p.given
	}
	if g := otel.GetTextMapPropagator(); len(g.Fields()) > 0 {
		return g
	}
	return w3c
}
