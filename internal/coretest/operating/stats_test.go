package onceq_test

import (
	"context"
	"errors"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/dedupe"
)

// slotsOf are the numbers of Stats that say where jobs are.
type slotsOf struct{ slots, busy, held, unsettled, pollers, overdue, leases int }

func numbersOf(s *onceq.Stats) slotsOf {
	return slotsOf{s.Slots, s.Busy, s.Held, s.Unsettled, s.Pollers, s.Overdue, s.Leases}
}

func (r *rig) wantSlots(s onceq.Stats, want slotsOf) {
	r.Helper()
	if got := numbersOf(&s); got != want {
		r.Errorf("after %v Stats says %+v, want %+v", r.since(), got, want)
	}
}

func TestStatsOfAWorker(t *testing.T) {
	bubble(t, func(ctx context.Context, j *onceq.Job) error {
		if j.Key().Key == "late" {
			takes(time.Hour) // and ignores its context
			return nil
		}
		takes(10 * sec)
		return nil
	}, func(r *rig) {
		r.wantSlots(r.w.Stats(), slotsOf{})
		r.start()
		pass(sec)
		r.wantSlots(r.w.Stats(), slotsOf{slots: 2, pollers: 1})
		r.send("late", "a", "b", "c")
		pass(sec)
		r.wantSlots(r.w.Stats(), slotsOf{slots: 2, busy: 2, held: 2, pollers: 1, leases: 4})
		pass(2 * sec)
		if s := r.w.Stats(); s.Oldest != 2*sec { // the claim took a second
			t.Errorf("the oldest handler has run for %v", s.Oldest)
		}
		pass(8 * sec)
		if s := r.w.Stats(); s.Unsettled != 1 || s.Busy != 2 || s.Held != 1 {
			t.Errorf("while an end is recorded Stats says %+v", s)
		}
		pass(time.Minute)
		s := r.w.Stats()
		r.wantSlots(s, slotsOf{slots: 2, busy: 1, pollers: 1, overdue: 1, leases: 1})
		if want := map[onceq.Outcome]uint64{onceq.OutcomeDone: 3}; !maps.Equal(s.Outcomes, want) || s.Paused != nil || s.Draining {
			t.Errorf("Stats says %+v, want %v", s, want)
		}
		r.w.Pause()
		if s := r.w.Stats(); len(s.Paused) != 1 || s.Paused[0] != onceq.ReasonLocal {
			t.Errorf("paused for %q", s.Paused)
		}
		r.w.Resume()
		r.stopNow()
		pass(sec)
		if s := r.w.Stats(); !s.Draining || s.Paused != nil {
			t.Errorf("in a drain Stats says %+v", s)
		}
		if err := <-r.done; err == nil {
			t.Error("Run answered nil")
		}
		r.done = nil
		s = r.w.Stats()
		r.wantSlots(s, slotsOf{})
		if want := map[onceq.Outcome]uint64{onceq.OutcomeDone: 3, onceq.OutcomeAbandoned: 1}; !maps.Equal(s.Outcomes, want) {
			t.Errorf("in the end the outcomes are %v, want %v", s.Outcomes, want)
		}
		pass(time.Hour)
	}, slowStore, with(func(c *setup) { c.Concurrency, c.Prefetch, c.Pollers, c.Defaults.Timeout = 2, 2, 1, 30*sec }))
}

// Margin is how near to a deadline a beat was answered, and each answer is told once.
func TestStatsMargin(t *testing.T) {
	bubble(t, func(context.Context, *onceq.Job) error {
		takes(10 * time.Minute)
		return nil
	}, func(r *rig) {
		r.send("a")
		r.start()
		pass(time.Minute)
		if m := r.w.Stats().Margin; m < 15*sec || m > 25*sec {
			t.Errorf("the margin is %v, want about two thirds of 30 s", m)
		}
		if m := r.w.Stats().Margin; m != 0 {
			t.Errorf("no beat was answered since, and the margin is %v", m)
		}
		r.store.set(func(s *store) {
			s.onRenew = func(_ []dedupe.Renewal, as []dedupe.Renewed) []dedupe.Renewed { takes(4 * sec); return as }
		})
		pass(time.Minute)
		if m := r.w.Stats().Margin; m < 10*sec || m > 17*sec {
			t.Errorf("with slow answers the margin is %v", m)
		}
		pass(10 * time.Minute)
	})
}

// A Processor counts its Workers, batches and calls of Do together.
func TestStatsOfAProcessor(t *testing.T) {
	bubble(t, func(context.Context, *onceq.Job) error {
		takes(10 * sec)
		return nil
	}, func(r *rig) {
		p, err := onceq.NewProcessor(r.cfg.ProcessorConfig)
		if err != nil {
			t.Fatal(err)
		}
		if r.w, err = p.Worker(r.q, r.cfg.WorkerConfig); err != nil {
			t.Fatal(err)
		}
		b, err := p.Batches(onceq.BatchConfig{DeadLetter: r.dlq, Name: "pushed"})
		if err != nil {
			t.Fatal(err)
		}
		r.wantSlots(p.Stats(), slotsOf{})
		r.start()
		r.send("w1", "w2")
		var all sync.WaitGroup
		all.Go(func() {
			b.Process(r.Context(), lasting(time.Hour, "b1", "b2"), nil, func(int, onceq.Disposition) {})
		})
		all.Go(func() {
			_, _ = onceq.Do(r.Context(), p, key("d"), nil, func(context.Context, *onceq.Job) (int, error) { takes(10 * sec); return 0, nil })
		})
		pass(sec)
		r.wantSlots(p.Stats(), slotsOf{slots: 13, busy: 5, leases: 5})
		r.wantSlots(r.w.Stats(), slotsOf{slots: 10, busy: 2, pollers: 1, leases: 2})
		all.Wait()
		if err := r.stop(); err != nil {
			t.Error(err)
		}
		s := p.Stats()
		r.wantSlots(s, slotsOf{})
		if want := map[onceq.Outcome]uint64{onceq.OutcomeDone: 5}; !maps.Equal(s.Outcomes, want) {
			t.Errorf("the outcomes are %v, want %v", s.Outcomes, want)
		}
	}, with(func(c *setup) { c.Pollers = 1 }))
}

// Whatever happens to jobs, no gauge is left standing: 1,000 of them end in each of these ways,
// with a drain and a hard end in between.
func TestStatsReturnToZero(t *testing.T) {
	ways := []onceq.HandlerFunc{
		returns(nil), returns(errBoom), failing,
		func(context.Context, *onceq.Job) error { panic("boom") },
		func(ctx context.Context, _ *onceq.Job) error { <-ctx.Done(); return ctx.Err() },
		func(context.Context, *onceq.Job) error { takes(100 * sec); return nil },
	}
	var mu sync.Mutex
	n := 0
	bubble(t, func(ctx context.Context, j *onceq.Job) error {
		mu.Lock()
		n++
		way := ways[n%len(ways)]
		mu.Unlock()
		return way(ctx, j)
	}, func(r *rig) {
		ks := numbered("k", 1000)
		r.send(ks...)
		for run := range 40 {
			r.start()
			pass(30 * sec)
			if run%3 == 0 { // claims are lost to an operator
				for _, k := range ks {
					if rec := r.record(k); rec.Status == dedupe.Claimed && rec.Owner != "another" {
						r.store.steal(t, k)
						break
					}
				}
			}
			pass(90 * sec)
			if err := r.stop(); err != nil {
				if late := new(onceq.DrainError); !errors.As(err, &late) {
					t.Fatal(err)
				}
			}
			r.wantSlots(r.w.Stats(), slotsOf{})
		}
		pass(time.Hour)
		r.wantSlots(r.w.Stats(), slotsOf{})
		var ends uint64
		outcomes := r.w.Stats().Outcomes
		for _, n := range outcomes {
			ends += n
		}
		r.seen.mu.Lock()
		told := len(r.seen.ends)
		r.seen.mu.Unlock()
		if ends != uint64(told) {
			t.Errorf("%d ends are counted, and %d were told of", ends, told)
		}
		for _, o := range []onceq.Outcome{onceq.OutcomeDone, onceq.OutcomeRetried, onceq.OutcomeFailed, onceq.OutcomeHandedBack, onceq.OutcomeAbandoned, onceq.OutcomeLeaseLost} {
			if outcomes[o] == 0 {
				t.Errorf("the test has no %s: %v", o, outcomes)
			}
		}
	}, warnings, steady, with(func(c *setup) { c.Concurrency, c.Defaults.Timeout, c.DrainTimeout = 50, 70*sec, sec }))
}
