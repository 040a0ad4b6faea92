package limit_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/internal/peak"
	"github.com/onceq/onceq/limit"
)

// TestSlotsFleet: 40 places over four processes with 80 slots are never used by more, and nearly
// always by as many. A job takes two writes.
func TestSlotsFleet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		const n, takes = 40, 10 * time.Second
		var workers []*onceq.Worker
		var stores []*frail
		for range 4 {
			s := &frail{Store: w.store}
			stores = append(stores, s)
			slots := must(limit.Slots(s, "db", n))(t)
			workers = append(workers, w.worker(onceq.Chain(w.begun(takes), slots), func(c *setup) { c.Concurrency = 20 }))
		}
		w.send("a", 500)
		stop := w.run(workers...)
		const runs = 100 * time.Second
		pass(runs)
		at := w.begins("a")
		if w.atOnce() != n {
			t.Errorf("%d ran at once, want %d", w.atOnce(), n)
		}
		if least := int(0.95 * n * float64(runs/takes)); len(at) < least {
			t.Errorf("%d began, want %d", len(at), least)
		}
		stop()
		var writes int64
		for _, s := range stores {
			writes += s.claims.Load() + s.settles.Load()
		}
		if ran := int64(len(w.begins("a"))); writes > 2*ran {
			t.Errorf("%d writes for %d jobs", writes, ran)
		}
		if n := w.ends(onceq.OutcomeRetried); n > 0 {
			t.Errorf("%d attempts counted", n)
		}
	})
}

// TestSlotsDeadHolder: a process that dies with a place holds it for 30 s, and no longer.
func TestSlotsDeadHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		dies := &frail{Store: w.store}
		in := make(chan struct{})
		ctx, die := context.WithCancel(t.Context())
		slots := must(limit.Slots(dies, "db", 1))(t)
		dead := w.worker(onceq.Chain(onceq.HandlerFunc(func(context.Context, *onceq.Job) error {
			close(in)
			<-ctx.Done()
			return nil
		}), slots), nil)
		stopped := w.run(dead)
		w.send("a", 1)
		<-in
		dead.Pause()
		dies.away.Store(true) // as if it were dead: nothing is renewed, nothing given back
		died := time.Now()
		pass(25 * time.Second)
		alive := must(limit.Slots(w.store, "db", 1))(t)
		stop := w.run(w.worker(onceq.Chain(w.begun(0), alive), nil))
		w.send("b", 1)
		pass(time.Minute)
		at := w.begins("b")
		if len(at) != 1 || at[0].Sub(died) > 33*time.Second || at[0].Sub(died) < 20*time.Second {
			t.Errorf("began %v, after the death at %v", at, died)
		}
		die()
		stop()
		stopped()
	})
}

// TestSlotsStoreAway: while the store is away nothing begins, what runs goes on, and no attempt
// counts.
func TestSlotsStoreAway(t *testing.T) {
	for _, how := range []func(*frail) *atomic.Bool{
		func(s *frail) *atomic.Bool { return &s.away }, func(s *frail) *atomic.Bool { return &s.hangs }, func(s *frail) *atomic.Bool { return &s.panics },
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			s := &frail{Store: w.store}
			slots := must(limit.Slots(s, "db", 2))(t)
			stop := w.run(w.worker(onceq.Chain(w.begun(20*time.Second), slots), func(c *setup) { c.Defaults.MaxAttempts = 3 }))
			w.send("a", 2)
			pass(time.Second)
			how(s).Store(true)
			w.send("a", 5)
			pass(2 * time.Minute)
			if n := len(w.begins("a")); n != 2 {
				t.Errorf("%d began, want the two before", n)
			}
			if n := w.ends(onceq.OutcomeDone); n != 2 {
				t.Errorf("%d are done, want the two that ran", n)
			}
			how(s).Store(false)
			pass(5 * time.Minute)
			if n := w.ends(onceq.OutcomeDone); n != 7 || w.atOnce() > 2 || w.ends(onceq.OutcomeRetried) > 0 {
				t.Errorf("%d are done, %d ran at once, %d attempts failed", n, w.atOnce(), w.ends(onceq.OutcomeRetried))
			}
			stop()
		})
	}
}

// TestSlotsHoldsWhileItRuns: a handler that ignores the end of its context keeps its place, so
// nobody runs beside it. One that panics gives it back.
func TestSlotsHoldsWhileItRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var runs atomic.Int32
		var at peak.Gauge
		h := onceq.HandlerFunc(func(context.Context, *onceq.Job) error {
			at.In()
			defer at.Out()
			if runs.Add(1) == 1 {
				<-time.After(3 * time.Minute)
				panic("x")
			}
			return nil
		})
		var processes []*onceq.Worker
		for range 2 {
			slots := must(limit.Slots(w.store, "db", 1))(t)
			processes = append(processes, w.worker(onceq.Chain(h, slots), func(c *setup) { c.Defaults.Timeout = 10 * time.Second }))
		}
		stop := w.run(processes...)
		w.send("a", 3)
		pass(2 * time.Minute)
		if runs.Load() != 1 {
			t.Errorf("%d began beside one that ignores its context", runs.Load()-1)
		}
		pass(5 * time.Minute)
		if runs.Load() != 4 || at.Top() != 1 {
			t.Errorf("%d runs, %d at once", runs.Load(), at.Top())
		}
		stop()
	})
}
