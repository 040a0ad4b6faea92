package otelonceq

import (
	"go.opentelemetry.io/otel/metric"

	"github.com/onceq/onceq"
)

// New makes the instruments. It registers nothing global, and does no I/O. An error names the field
// of Options, or is the MeterProvider's.
func New(o *Options) (*Telemetry, error) {
	c := o.withDefaults()
	if err := c.check(); err != nil {
		return nil, err
	}
	t := &Telemetry{
		o: c, log: c.Logger, traces: newTracing(c.TracerProvider), carry: propagators{c.Propagator},
		types:    newGuard("job types", "MaxTypes", c.MaxTypes, c.KnownTypes, c.Logger),
		limiters: newGuard("limiters", "MaxClasses", c.MaxClasses, nil, c.Logger),
		classes:  newGuard("error classes", "MaxClasses", c.MaxClasses-len(ownClasses), ownClasses, c.Logger),
		pauses:   make(map[pause]float64),
	}
	t.meter = c.MeterProvider.Meter(scopeName, metric.WithInstrumentationVersion(version()), metric.WithSchemaURL(schemaURL))
	if err := t.instruments(); err != nil {
		return nil, err
	}
	counted := make([]metric.Observable, 0, 5)
	for _, c := range t.counted() {
		counted = append(counted, c.shown)
	}
	if _, err := t.meter.RegisterCallback(t.observeCounters, counted...); err != nil {
		return nil, err
	}
	_, err := t.meter.RegisterCallback(t.observeWorkers, t.m.active, t.m.slots, t.m.utilization, t.m.state, t.m.pauseSince)
	if err != nil {
		return nil, err
	}
	return t, nil
}

// ownClasses are those of the library that always become labels, because alerts and people ask for
// them. They count among Options.MaxClasses.
var ownClasses = []string{
	onceq.ClassInterrupted, onceq.ClassAttempts, onceq.ClassError, onceq.ClassPermanent, onceq.ClassTimeout, onceq.ClassPanic,
	onceq.ClassLease, onceq.ClassDecode,
}
