package otelonceq

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/embedded"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/internal/values"
)

// This file owns the gauges of workers. A scrape asks the workers, by one callback for all of them,
// because two Workers of a queue have one series. t.mu guards the list. It is never held while the
// SDK is called, because the SDK calls back under a lock of its own.

// Worker registers the Worker's gauges: jobs_active, worker_slots, worker_utilization_ratio,
// worker_state, pause_since_seconds and lease_margin_seconds. Where Workers of one program share a
// queue, their numbers are added up; one that is registered twice counts once. Unregister each
// answer when the Worker will not run again.
//
// It takes Stats.Margin, which tells what was since the last call of Stats: whoever else calls
// Stats sees no margin.
func (t *Telemetry) Worker(w interface {
	Stats() onceq.Stats
	Health() onceq.Health
},
) (metric.Registration, error) {
	if values.IsNil(w) {
		return nil, errors.New("otelonceq: Worker: the worker is nil")
	}
	g := &worker{w: w}
	if q, ok := w.(interface{ Queue() string }); ok {
		g.queue = label(q.Queue())
	}
	if g.queue == "" {
		g.queue = unknown
	}
	if m, ok := w.(interface{ Types() []string }); ok {
		t.types.know(m.Types())
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if i := slices.IndexFunc(t.workers, func(x *worker) bool { return values.Same(x.w, w) }); i >= 0 {
		g = t.workers[i] // its slots must not count twice
	} else {
		t.workers = append(t.workers, g)
	}
	g.times++
	return &registration{unregister: sync.OnceFunc(func() { t.forget(g) })}, nil
}

type registration struct {
	embedded.Registration
	unregister func()
}

// Unregister ends the gauges of the Worker. It may be called more than once.
func (r *registration) Unregister() error {
	r.unregister()
	return nil
}

func (t *Telemetry) forget(w *worker) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if w.times--; w.times == 0 {
		t.workers = slices.DeleteFunc(t.workers, func(x *worker) bool { return x == w })
	}
}

// states are the words of worker_state. A worker that a breaker alone has paused is "breaker". A
// worker that starts is not told apart from one that runs.
var states = []string{"running", "paused", "breaker", "outage", "draining"}

func stateOf(s onceq.State, paused []string) string {
	switch s {
	case onceq.StatePaused:
		if slices.Equal(paused, []string{onceq.ReasonBreaker}) {
			return "breaker"
		}
		return "paused"
	case onceq.StateOutage:
		return "outage"
	case onceq.StateDraining:
		return "draining"
	case onceq.StateStopped:
		return ""
	}
	return "running"
}

// crew is what the Workers of a queue do together.
type crew struct {
	busy, slots int
	states      map[string]int64
}

func (t *Telemetry) observeWorkers(_ context.Context, o metric.Observer) error {
	defer t.survive() // a type of the user's may be registered
	t.mu.Lock()
	workers := slices.Clone(t.workers)
	pauses := make(map[pause]float64, len(t.pauses))
	maps.Copy(pauses, t.pauses)
	t.mu.Unlock()
	crews := make(map[string]*crew)
	for _, w := range workers {
		c := crews[w.queue]
		if c == nil {
			c = &crew{states: make(map[string]int64)}
			crews[w.queue] = c
		}
		s, h := w.w.Stats(), w.w.Health()
		c.busy += s.Busy
		c.slots += s.Slots
		c.states[stateOf(h.State, s.Paused)]++
		if s.Margin > 0 {
			record(background, t.m.margin, s.Margin.Seconds(), t.queue(w.queue).of)
		}
	}
	for name, c := range crews {
		of := t.queue(name)
		o.ObserveInt64(t.m.active, int64(c.busy), of.of.obs)
		o.ObserveInt64(t.m.slots, int64(c.slots), of.of.obs)
		if c.slots > 0 {
			o.ObserveFloat64(t.m.utilization, float64(c.busy)/float64(c.slots), of.of.obs)
		}
		for _, state := range states {
			o.ObserveInt64(t.m.state, c.states[state], of.byState(state).obs)
		}
	}
	since := make(map[pause]float64) // the earliest of each place
	for p, at := range pauses {
		p.reason = ""
		if first, ok := since[p]; !ok || at < first {
			since[p] = at
		}
	}
	for p, at := range since {
		o.ObserveFloat64(t.m.pauseSince, at, newSet(labelQueue.String(p.queue), labelScope.String(p.scope), labelType.String(p.typ)).obs)
	}
	return nil
}
