package operating

import (
	"context"
	"errors"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/coretest/rig"
	"github.com/onceq/onceq/internal/must"
)

// slotsOf are the numbers of Stats that say where jobs are.
type slotsOf struct{ slots, busy, held, unsettled, pollers, overdue, leases int }

func numbersOf(s *onceq.Stats) slotsOf {
	return slotsOf{s.Slots, s.Busy, s.Held, s.Unsettled, s.Pollers, s.Overdue, s.Leases}
}

func wantSlots(r *rig.Rig, s onceq.Stats, want slotsOf) {
	r.Helper()
	if got := numbersOf(&s); got != want {
		r.Errorf("after %v Stats says %+v, want %+v", r.Since(), got, want)
	}
}

func TestStatsOfAWorker(t *testing.T) {
	rig.Bubble(t, func(ctx context.Context, j *onceq.Job) error {
		if j.Key().Key == "late" {
			rig.Takes(time.Hour) // and ignores its context
			return nil
		}
		rig.Takes(10 * sec)
		return nil
	}, func(r *rig.Rig) {
		wantSlots(r, r.W.Stats(), slotsOf{})
		r.Start()
		rig.Pass(sec)
		wantSlots(r, r.W.Stats(), slotsOf{slots: 2, pollers: 1})
		r.Send("late", "a", "b", "c")
		rig.Pass(sec)
		wantSlots(r, r.W.Stats(), slotsOf{slots: 2, busy: 2, held: 2, pollers: 1, leases: 4})
		rig.Pass(2 * sec)
		if s := r.W.Stats(); s.Oldest != 2*sec { // the claim took a second
			t.Errorf("the oldest handler has run for %v", s.Oldest)
		}
		rig.Pass(8 * sec)
		if s := r.W.Stats(); s.Unsettled != 1 || s.Busy != 2 || s.Held != 1 {
			t.Errorf("while an end is recorded Stats says %+v", s)
		}
		rig.Pass(time.Minute)
		s := r.W.Stats()
		wantSlots(r, s, slotsOf{slots: 2, busy: 1, pollers: 1, overdue: 1, leases: 1})
		if want := map[onceq.Outcome]uint64{onceq.OutcomeDone: 3}; !maps.Equal(s.Outcomes, want) || s.Paused != nil || s.Draining {
			t.Errorf("Stats says %+v, want %v", s, want)
		}
		r.W.Pause()
		if s := r.W.Stats(); len(s.Paused) != 1 || s.Paused[0] != onceq.ReasonLocal {
			t.Errorf("paused for %q", s.Paused)
		}
		r.W.Resume()
		r.StopNow()
		rig.Pass(sec)
		if s := r.W.Stats(); !s.Draining || s.Paused != nil {
			t.Errorf("in a drain Stats says %+v", s)
		}
		if err := <-r.Done; err == nil {
			t.Error("Run answered nil")
		}
		r.Done = nil
		s = r.W.Stats()
		wantSlots(r, s, slotsOf{})
		if want := map[onceq.Outcome]uint64{onceq.OutcomeDone: 3, onceq.OutcomeAbandoned: 1}; !maps.Equal(s.Outcomes, want) {
			t.Errorf("in the end the outcomes are %v, want %v", s.Outcomes, want)
		}
		rig.Pass(time.Hour)
	}, slowStore, rig.With(func(c *rig.Setup) { c.Concurrency, c.Prefetch, c.Pollers, c.Defaults.Timeout = 2, 2, 1, 30*sec }))
}

// Margin is how near to a deadline a beat was answered, and each answer is told once.
func TestStatsMargin(t *testing.T) {
	rig.Bubble(t, func(context.Context, *onceq.Job) error {
		rig.Takes(10 * time.Minute)
		return nil
	}, func(r *rig.Rig) {
		r.Send("a")
		r.Start()
		rig.Pass(time.Minute)
		if m := r.W.Stats().Margin; m < 15*sec || m > 25*sec {
			t.Errorf("the margin is %v, want about two thirds of 30 s", m)
		}
		if m := r.W.Stats().Margin; m != 0 {
			t.Errorf("no beat was answered since, and the margin is %v", m)
		}
		r.Store.Set(func(s *rig.Store) {
			s.OnRenew = func(_ []dedupe.Renewal, as []dedupe.Renewed) []dedupe.Renewed { rig.Takes(4 * sec); return as }
		})
		rig.Pass(time.Minute)
		if m := r.W.Stats().Margin; m < 10*sec || m > 17*sec {
			t.Errorf("with slow answers the margin is %v", m)
		}
		rig.Pass(10 * time.Minute)
	})
}

// A Processor counts its Workers, batches and calls of Do together.
func TestStatsOfAProcessor(t *testing.T) {
	rig.Bubble(t, func(context.Context, *onceq.Job) error {
		rig.Takes(10 * sec)
		return nil
	}, func(r *rig.Rig) {
		p, err := onceq.NewProcessor(r.Cfg.ProcessorConfig)
		if err != nil {
			t.Fatal(err)
		}
		if r.W, err = p.Worker(r.Q, r.Cfg.WorkerConfig); err != nil {
			t.Fatal(err)
		}
		b := must.Get(p.Batches(onceq.BatchConfig{DeadLetter: r.DLQ, Name: "pushed"}))
		wantSlots(r, p.Stats(), slotsOf{})
		r.Start()
		r.Send("w1", "w2")
		var all sync.WaitGroup
		all.Go(func() {
			b.Process(r.Context(), rig.Lasting(time.Hour, "b1", "b2"), nil, func(int, onceq.Disposition) {})
		})
		all.Go(func() {
			_, _ = onceq.Do(r.Context(), p, rig.Key("d"), nil, func(context.Context, *onceq.Job) (int, error) { rig.Takes(10 * sec); return 0, nil })
		})
		rig.Pass(sec)
		wantSlots(r, p.Stats(), slotsOf{slots: 13, busy: 5, leases: 5})
		wantSlots(r, r.W.Stats(), slotsOf{slots: 10, busy: 2, pollers: 1, leases: 2})
		all.Wait()
		if err := r.Stop(); err != nil {
			t.Error(err)
		}
		s := p.Stats()
		wantSlots(r, s, slotsOf{})
		if want := map[onceq.Outcome]uint64{onceq.OutcomeDone: 5}; !maps.Equal(s.Outcomes, want) {
			t.Errorf("the outcomes are %v, want %v", s.Outcomes, want)
		}
	}, rig.With(func(c *rig.Setup) { c.Pollers = 1 }))
}

// Whatever happens to jobs, no gauge is left standing: 1,000 of them end in each of these ways,
// with a drain and a hard end in between.
func TestStatsReturnToZero(t *testing.T) {
	ways := []onceq.HandlerFunc{
		rig.Returns(nil), rig.Returns(rig.ErrBoom), rig.Failing,
		func(context.Context, *onceq.Job) error { panic("boom") },
		func(ctx context.Context, _ *onceq.Job) error { <-ctx.Done(); return ctx.Err() },
		func(context.Context, *onceq.Job) error { rig.Takes(100 * sec); return nil },
	}
	var mu sync.Mutex
	n := 0
	rig.Bubble(t, func(ctx context.Context, j *onceq.Job) error {
		mu.Lock()
		n++
		way := ways[n%len(ways)]
		mu.Unlock()
		return way(ctx, j)
	}, func(r *rig.Rig) {
		ks := rig.Numbered("k", 1000)
		r.Send(ks...)
		for run := range 40 {
			r.Start()
			rig.Pass(30 * sec)
			if run%3 == 0 { // claims are lost to an operator
				for _, k := range ks {
					if rec := r.Record(k); rec.Status == dedupe.Claimed && rec.Owner != "another" {
						r.Store.Steal(t, k)
						break
					}
				}
			}
			rig.Pass(90 * sec)
			if err := r.Stop(); err != nil {
				if late := new(onceq.DrainError); !errors.As(err, &late) {
					t.Fatal(err)
				}
			}
			wantSlots(r, r.W.Stats(), slotsOf{})
		}
		rig.Pass(time.Hour)
		wantSlots(r, r.W.Stats(), slotsOf{})
		var ends uint64
		outcomes := r.W.Stats().Outcomes
		for _, n := range outcomes {
			ends += n
		}
		r.Seen.Mu.Lock()
		told := len(r.Seen.Ends)
		r.Seen.Mu.Unlock()
		if ends != uint64(told) {
			t.Errorf("%d ends are counted, and %d were told of", ends, told)
		}
		for _, o := range []onceq.Outcome{onceq.OutcomeDone, onceq.OutcomeRetried, onceq.OutcomeFailed, onceq.OutcomeHandedBack, onceq.OutcomeAbandoned, onceq.OutcomeLeaseLost} {
			if outcomes[o] == 0 {
				t.Errorf("the test has no %s: %v", o, outcomes)
			}
		}
	}, rig.Warnings, rig.Steady, rig.With(func(c *rig.Setup) { c.Concurrency, c.Defaults.Timeout, c.DrainTimeout = 50, 70*sec, sec }))
}
