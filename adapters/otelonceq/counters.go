package otelonceq

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"go.opentelemetry.io/otel/metric"
)

// This file owns the counters of what happens to every job: sent, ended, done. A job adds to a
// number of our own, which takes a tenth of the time of the SDK's Add; a scrape reads the numbers.
// They have no exemplars for that, so what counts failures stays with the SDK. Many goroutines add,
// without a lock. A scrape takes mu, as does a new set of labels.

// A counter is one series.
type counter struct {
	n  atomic.Int64
	of metric.ObserveOption
}

func (c *counter) add(n int64) { c.n.Add(n) }

// counters are the series of one instrument. They keep their order: where an SDK bounds the sets of
// an instrument, the same ones stay within the bound at each scrape.
type counters struct {
	mu     sync.Mutex
	series []*counter
	shown  metric.Int64ObservableCounter
}

// with makes the series of a set of labels. It is not shown until something is counted.
func (c *counters) with(of set) *counter {
	made := &counter{of: of.obs}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.series = append(c.series, made)
	return made
}

func (c *counters) observe(o metric.Observer) {
	c.mu.Lock()
	series := slices.Clone(c.series)
	c.mu.Unlock()
	for _, s := range series {
		if n := s.n.Load(); n > 0 {
			o.ObserveInt64(c.shown, n, s.of)
		}
	}
}

// observeCounters is called by a scrape.
func (t *Telemetry) observeCounters(_ context.Context, o metric.Observer) error {
	for _, c := range t.counted() {
		c.observe(o)
	}
	return nil
}

// counted are the instruments of this file that exist.
func (t *Telemetry) counted() []*counters {
	cs := []*counters{&t.m.enqueued, &t.m.completed, &t.m.ended}
	if t.m.process != nil {
		cs = append(cs, &t.m.sent, &t.m.consumed)
	}
	return cs
}
