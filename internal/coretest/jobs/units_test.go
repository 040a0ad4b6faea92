package onceq_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/onceq/onceq"
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
			return onceq.RetryAfter(after, errBoom)
		}
		bubble(t, h, func(r *rig) {
			r.send("a", "b")
			r.run(time.Minute)
			if n := r.log.count("level=WARN", asksUnit); n != lines {
				t.Errorf("RetryAfter(%d): %d lines ask for the unit, want %d", after, n, lines)
			}
			if n := r.log.count("level=WARN", "onceq: RetryAfter: "+after.String()+" is below 1ms", "job="); n != lines {
				t.Errorf("RetryAfter(%d): %d lines name it, want %d:\n%s", after, n, lines, &r.log.buf)
			}
			if n := r.log.count("outcome=done"); n != 2 {
				t.Errorf("RetryAfter(%d): %d jobs are done, want 2", after, n)
			}
		})
	}
}

// All queues of a Processor have one line together, because they have one code.
func TestRetryAfterWithoutUnitIsToldOnce(t *testing.T) {
	h := func(context.Context, *onceq.Job) error { return onceq.RetryAfter(30, errBoom) }
	bubble(t, h, func(r *rig) {
		p, err := onceq.NewProcessor(r.cfg.ProcessorConfig)
		if err != nil {
			r.Fatal(err)
		}
		for _, name := range []string{"one", "two"} {
			b, err := p.Batches(onceq.BatchConfig{DeadLetter: r.dlq, Name: name})
			if err != nil {
				r.Fatal(err)
			}
			b.Process(r.Context(), deliveries(name+"1", name+"2"), nil, func(int, onceq.Disposition) {})
		}
		if n := r.log.count(asksUnit); n != 1 {
			t.Errorf("%d lines ask for the unit, want 1", n)
		}
	})
}

// A backoff may be as short, because a part of it is drawn at random.
func TestShortBackoffIsNotAskedAbout(t *testing.T) {
	bubble(t, func(context.Context, *onceq.Job) error { return errBoom }, func(r *rig) {
		r.send("a")
		r.run(time.Minute)
		if n := r.log.count(asksUnit); n != 0 {
			t.Errorf("%d lines ask for the unit, want none", n)
		}
	}, most(3), with(func(c *setup) { c.Defaults.Backoff = func(int, error) time.Duration { return 30 } }))
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
		bubble(t, func(context.Context, *onceq.Job) error { return nil }, func(r *rig) {
			b, err := r.cfg.batches()
			if err != nil {
				r.Fatal(err)
			}
			var calls sync.WaitGroup
			for _, key := range []string{"a", "b", "c"} {
				calls.Go(func() { b.Process(r.Context(), deliveries(key), &c.o, func(int, onceq.Disposition) {}) })
			}
			calls.Wait()
			want := 0
			if c.want != "" {
				want = 1
			}
			if n, named := r.log.count(asksUnit), r.log.count("level=WARN", c.want+asksUnit); n != want || named != want {
				t.Errorf("%+v: %d lines ask for the unit, and %d of them name it; want %d", c.o, n, named, want)
			}
			if n := r.log.count("outcome=done"); n != 3 {
				t.Errorf("%+v: %d jobs are done, want 3", c.o, n)
			}
		})
	}
}
