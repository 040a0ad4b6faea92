package otelonceq

import (
	"cmp"
	"fmt"
	"log/slog"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/onceq/onceq/internal/values"
)

// The defaults of Options.MaxTypes and Options.MaxClasses, and how much they may be raised.
const (
	defaultTypes   = 100
	defaultClasses = 50
	minLabels      = 10
	maxLabels      = 10_000
)

// Options set up telemetry. nil and the zero value take OpenTelemetry's global providers.
type Options struct {
	// MeterProvider makes the instruments. Default: the global one, also where it is set later.
	MeterProvider metric.MeterProvider
	// TracerProvider makes the spans. Default: the global one, also where it is set later. Where
	// none is set, no span is made, and a job costs nothing for it.
	TracerProvider trace.TracerProvider
	// Propagator carries contexts across the queue. Default: the global one; where that carries
	// nothing, W3C trace context.
	Propagator propagation.TextMapPropagator
	// Parent makes the sender's span the parent of the handler's. Default false: a trace of its
	// own, with a link, as the conventions have it.
	Parent bool
	// MaxTypes and MaxClasses are how many distinct job types, and error classes, become labels;
	// others are "_other". Default 100 and 50; 10 to 10,000 each. MaxClasses bounds the limiters as
	// well.
	MaxTypes, MaxClasses int
	// KnownTypes are job types that always become labels, beside the first MaxTypes others. Give
	// mux.Types(), so that types that somebody made up cannot take the place of those that have a
	// handler. The types of the Workers that Telemetry.Worker is given are known without this.
	KnownTypes []string
	// NoConventions leaves out messaging.*, the metrics of OpenTelemetry's conventions. Default
	// false: they are recorded beside jobs.*.
	NoConventions bool
	// NoCreateSpans: one span for a Send of many, and its context in each message. Default: a
	// create span for each message.
	NoCreateSpans bool
	// Spans chooses spans that are off by default.
	Spans SpanOptions
	// Fences writes the number of a running claim into the log lines of its handler. Set it where
	// ProcessorConfig.LetterKeys is set. Without those keys, whoever may send messages and reads
	// the fence of a job that has failed for good can run that job again. Default false: the fence
	// is on the spans of jobs that did not fail, as it is in the core's own log, and in no other
	// place.
	Fences bool
	// Logger gets one line when a type or a class becomes "_other", and when a depth cannot be
	// read. nil = slog.Default, as it is when New is called.
	Logger *slog.Logger
}

// SpanOptions choose spans that are off by default.
type SpanOptions struct {
	// Receive makes a span for every receive. An idle worker makes 324,000 of these a month.
	Receive bool
}

// withDefaults is o with what it leaves out. A nil pointer in an interface stays, for check.
func (o *Options) withDefaults() Options {
	var c Options
	if o != nil {
		c = *o
	}
	if c.MeterProvider == nil {
		c.MeterProvider = otel.GetMeterProvider()
	}
	c.MaxTypes = cmp.Or(c.MaxTypes, defaultTypes)
	c.MaxClasses = cmp.Or(c.MaxClasses, defaultClasses)
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return c
}

func (o *Options) check() error {
	for _, f := range []struct {
		field string
		n     int
	}{{"MaxTypes", o.MaxTypes}, {"MaxClasses", o.MaxClasses}} {
		if f.n < minLabels || f.n > maxLabels {
			return fmt.Errorf("otelonceq: Options.%s is %d, want %d to %d, or 0 for the default", f.field, f.n, minLabels, maxLabels)
		}
	}
	for _, f := range []struct {
		field string
		v     any
	}{{"MeterProvider", o.MeterProvider}, {"TracerProvider", o.TracerProvider}, {"Propagator", o.Propagator}} {
		if f.v != nil && values.IsNil(f.v) {
			return fmt.Errorf("otelonceq: Options.%s is a nil pointer of type %T; leave the field out for the global one", f.field, f.v)
		}
	}
	return nil
}
