package jobs

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/internal/coretest/rig"
	"github.com/onceq/onceq/internal/must"
)

const asksUnit = "is its unit missing?"

// RetryAfter answers no error, so that one line asks about a time without its unit, and the job
// goes on.
func TestRetryAfterWithoutUnit(t *testing.T) {
	for after, lines := range map[time.Duration]int{
		30: 1, time.Millisecond - 1: 1,
		-30: 0, 0: 0, time.Millisecond: 0, time.Second: 0,
	} {
		h := func(_ context.Context, j *onceq.Job) error {
			if j.Attempt == 3 {
				return nil
			}
			return onceq.RetryAfter(after, rig.ErrBoom)
		}
		rig.Bubble(t, h, func(r *rig.Rig) {
			r.Send("a", "b")
			r.RunFor(time.Minute)
			if n := r.Logged.Count("level=WARN", asksUnit); n != lines {
				t.Errorf("RetryAfter(%d): %d lines ask for the unit, want %d", after, n, lines)
			}
			if n := r.Logged.Count("level=WARN", "onceq: RetryAfter: "+after.String()+" is below 1ms", "job="); n != lines {
				t.Errorf("RetryAfter(%d): %d lines name it, want %d:\n%s", after, n, lines, r.Logged.String())
			}
			if n := r.Logged.Count("outcome=done"); n != 2 {
				t.Errorf("RetryAfter(%d): %d jobs are done, want 2", after, n)
			}
		})
	}
}

// All queues of a Processor have one line together, because they have one code.
func TestRetryAfterWithoutUnitIsToldOnce(t *testing.T) {
	h := func(context.Context, *onceq.Job) error { return onceq.RetryAfter(30, rig.ErrBoom) }
	rig.Bubble(t, h, func(r *rig.Rig) {
		p := must.Get(onceq.NewProcessor(r.Cfg.ProcessorConfig))
		for _, name := range []string{"one", "two"} {
			b := must.Get(p.Batches(onceq.BatchConfig{DeadLetter: r.DLQ, Name: name}))
			b.Process(r.Context(), rig.Deliveries(name+"1", name+"2"), nil, func(int, onceq.Disposition) {})
		}
		if n := r.Logged.Count(asksUnit); n != 1 {
			t.Errorf("%d lines ask for the unit, want 1", n)
		}
	})
}

// A backoff may be as short, because a part of it is drawn at random.
func TestShortBackoffIsNotAskedAbout(t *testing.T) {
	rig.Bubble(t, func(context.Context, *onceq.Job) error { return rig.ErrBoom }, func(r *rig.Rig) {
		r.Send("a")
		r.RunFor(time.Minute)
		if n := r.Logged.Count(asksUnit); n != 0 {
			t.Errorf("%d lines ask for the unit, want none", n)
		}
	}, rig.Most(3), rig.With(func(c *rig.Setup) { c.Defaults.Backoff = func(int, error) time.Duration { return 30 } }))
}

func TestBatchOptionsWithoutUnit(t *testing.T) {
	for _, c := range []struct {
		o    onceq.BatchOptions
		want string // the line says it, once for all calls; empty = there is none
	}{
		{onceq.BatchOptions{MinTime: 3}, "onceq: BatchOptions.MinTime: 3ns is below 1ms; "},
		{onceq.BatchOptions{Outage: 30}, "onceq: BatchOptions.Outage: 30ns is below 1ms; "},
		{onceq.BatchOptions{MinTime: time.Millisecond, Outage: time.Millisecond}, ""},
		{onceq.BatchOptions{}, ""},
	} {
		rig.Bubble(t, func(context.Context, *onceq.Job) error { return nil }, func(r *rig.Rig) {
			b := must.Get(r.Cfg.Batches())
			var calls sync.WaitGroup
			for _, key := range []string{"a", "b", "c"} {
				calls.Go(func() { b.Process(r.Context(), rig.Deliveries(key), &c.o, func(int, onceq.Disposition) {}) })
			}
			calls.Wait()
			want := 0
			if c.want != "" {
				want = 1
			}
			if n, named := r.Logged.Count(asksUnit), r.Logged.Count("level=WARN", c.want+asksUnit); n != want || named != want {
				t.Errorf("%+v: %d lines ask for the unit, and %d of them name it; want %d", c.o, n, named, want)
			}
			if n := r.Logged.Count("outcome=done"); n != 3 {
				t.Errorf("%+v: %d jobs are done, want 3", c.o, n)
			}
		})
	}
}
