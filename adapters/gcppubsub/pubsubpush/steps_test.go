package pubsubpush_test

import (
	"context"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/dedupe"
	rigs "github.com/onceq/onceq/internal/rig"
)

// This file owns jobs with steps, whose parts run in several requests.

// An instance dies in the second step, and another one goes on there, under the same effect key. A
// sleep is a 503 each time that Pub/Sub sends the message again, which may be sooner than the sleep
// is over: it says what is left, and is no attempt, in the last attempt neither.
func TestSteps(t *testing.T) {
	ran, keys := map[string]int{}, map[string]bool{}
	var dies chan struct{}
	var mu sync.Mutex // who dies is a goroutine of its own
	bubble(t, func(ctx context.Context, j *onceq.Job) error {
		step := func(name string) error {
			_, err := onceq.Step(ctx, j, name, func(context.Context) (int, error) {
				mu.Lock()
				ran[name]++
				keys[j.EffectKey(name)] = true
				stops := name == "mail" && ran[name] == 1
				mu.Unlock()
				if stops {
					<-dies
				}
				return 1, nil
			})
			return err
		}
		for _, name := range []string{"charge", "mail"} {
			if err := step(name); err != nil {
				return err
			}
		}
		if !j.LastAttempt() {
			t.Error("the second of two attempts is not the last")
		}
		if err := onceq.Sleep(ctx, j, "trial", 10*time.Minute); err != nil {
			return err
		}
		return step("book")
	}, func(r *rig) {
		dies = make(chan struct{})
		r.cfg.Defaults.MaxAttempts = 2
		died := r.later(job("a"))
		rigs.Takes(time.Second)
		r.store.Fails(errBoom)                // for this instance, for ever
		r.h, r.cfg.Store = nil, r.store.Store // another one
		begin, pushes := time.Now(), 0
		for r.push(job("a")) != 204 {
			if rec := r.record("a"); rec.Attempt != 1 || rec.ErrClass != onceq.ClassPostponed {
				t.Fatalf("asleep, the record is %+v", rec)
			}
			pushes++
			rigs.Takes(20 * time.Second) // the retry policy's delay
		}
		r.took(begin, 10*time.Minute, 11*time.Minute+30*time.Second)
		if pushes < 20 {
			t.Errorf("%d pushes found it asleep", pushes)
		}
		if want := (map[string]int{"charge": 1, "mail": 2, "book": 1}); !maps.Equal(ran, want) || len(keys) != len(want) || r.record("a").Attempt != 2 {
			t.Errorf("%v ran, want %v; %d keys, the record is %+v", ran, want, len(keys), r.record("a"))
		}
		if got := r.letters(); len(got) > 0 {
			t.Errorf("the letters are %q", got)
		}
		close(dies)
		r.want(<-died, 503)
		if rec := r.record("a"); rec.Status != dedupe.Done {
			t.Errorf("the dead one's word has changed the record: %+v", rec)
		}
	})
}

// A job that is put off for a moment is waited for in its request, which then is no failed push.
// It runs a few times however short the moments are, and no more once the handler drains.
func TestPostponedForAMoment(t *testing.T) {
	for name, c := range map[string]struct {
		delay       time.Duration
		times       int // that it is postponed; -1 = always
		drains      bool
		status      int
		least, most time.Duration
		runs        [2]int
	}{
		"once":             {5 * time.Second, 1, false, 204, 5 * time.Second, 5 * time.Second, [2]int{2, 2}},
		"longer than ever": {10 * time.Minute, 1, false, 503, 0, 0, [2]int{1, 1}},
		"always":           {time.Millisecond, -1, false, 503, 20 * time.Second, 55 * time.Second, [2]int{5, 10}},
		"for no time":      {0, 1, false, 503, 0, 0, [2]int{1, 1}},
		"in a drain":       {5 * time.Second, 1, true, 503, time.Second, time.Second, [2]int{1, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			runs := 0
			bubble(t, func(context.Context, *onceq.Job) error {
				if runs++; c.times < 0 || runs <= c.times {
					return onceq.Postpone(c.delay, nil)
				}
				return nil
			}, func(r *rig) {
				begin, status := time.Now(), r.later(job("a"))
				if c.drains {
					rigs.Takes(time.Second)
					if err := r.h.Shutdown(r.Context()); err != nil {
						t.Error(err)
					}
				}
				r.want(<-status, c.status)
				r.took(begin, c.least, c.most)
				if rec := r.record("a"); runs < c.runs[0] || runs > c.runs[1] || rec.Attempt > 1 {
					t.Errorf("%d runs, want %v; the record is %+v", runs, c.runs, rec)
				}
			})
		})
	}
}
