package otelonceq

import (
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

func (c *counter) grow(n int64) { c.n.Add(n) }

// counters are the series of one instrument. They keep their order: where an SDK bounds the sets of
// an instrument, the same ones stay within the bound at each scrape.
type counters struct {
	mu     sync.Mutex
	series []*counter
	shown  metric.Int64ObservableCounter
}

// of makes the series of a set of labels. It is not shown until something is counted.
func (c *counters) of(labels metric.ObserveOption) *counter {
	made := &counter{of: labels}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.series = append(c.series, made)
	return made
}

func (c *counters) show(o metric.Observer) {
	c.mu.Lock()
	series := slices.Clone(c.series)
	c.mu.Unlock()
	for _, s := range series {
		if n := s.n.Load(); n > 0 {
			o.ObserveInt64(c.shown, n, s.of)
		}
	}
}
