package limit_test

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/limit"
)

var errProvider = errors.New("503")

// provider is what the jobs need: it may be away.
func provider(away *atomic.Bool) onceq.HandlerFunc {
	return func(context.Context, *onceq.Job) error {
		<-time.After(100 * time.Millisecond)
		if away.Load() {
			return errProvider
		}
		return nil
	}
}

// TestBreakerOutage: an outage of six hours costs each process at most 20 attempts, in a busy hour
// as well as at the start, whatever waits, and however seldom jobs come. Nothing is received
// meanwhile but the probes. All jobs are done soon after it. A job that has but one attempt loses
// it as a probe, too: then an outage costs as many jobs as there are probes.
func TestBreakerOutage(t *testing.T) {
	const long = 6 * time.Hour
	for name, c := range map[string]struct {
		processes, before, waiting int
		every                      time.Duration // a job comes during the outage
		tries, most                int           // attempts: of a job, and in all
	}{
		"at the start":    {processes: 1, waiting: 200, most: 19},
		"in a busy hour":  {processes: 1, before: 500, waiting: 200, most: 19},
		"eight processes": {processes: 8, before: 500, waiting: 1600, most: 8 * 19},
		"a job a minute":  {processes: 1, every: time.Minute, tries: 30, most: 20},   // none has but one left
		"one attempt":     {processes: 1, waiting: 200, tries: 1, most: 20 + 9 + 82}, // nine had begun
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				var away atomic.Bool
				var ws []*onceq.Worker
				var bs []*limit.Breaker
				for range c.processes {
					b := must(limit.NewBreaker(nil))(t)
					ws = append(ws, w.worker(onceq.Chain(provider(&away), b.Middleware()), func(s *setup) { s.Defaults.MaxAttempts = c.tries }))
					bs = append(bs, b)
					b.Watch(ws[len(ws)-1])
				}
				stop := w.run(ws...)
				w.send("a", c.before)
				pass(time.Minute)
				away.Store(true)
				w.send("a", c.waiting)
				sent := c.before + c.waiting
				for end := time.Now().Add(long); time.Now().Before(end); pass(cmp.Or(c.every, long)) {
					if c.every > 0 {
						w.send("a", 1)
						sent++
					}
				}
				failed := w.ends(onceq.OutcomeFailed)
				if n := w.ends(onceq.OutcomeRetried) + failed; n > c.most {
					t.Errorf("%d attempts, of which %d were the last, want at most %d", n, failed, c.most)
				}
				if n := w.ends(onceq.OutcomePostponed); n > 110*c.processes {
					t.Errorf("%d probes, and runs that were under way", n)
				}
				for i, b := range bs {
					if s, _ := b.State(); s == limit.StateClosed {
						t.Error("it is closed")
					}
					if s := ws[i].Stats(); s.Slots != 1 && !slices.Equal(s.Paused, []string{onceq.ReasonBreaker}) {
						t.Errorf("%+v", s)
					}
				}
				away.Store(false)
				pass(7 * time.Minute)
				if n := w.ends(onceq.OutcomeDone); n != sent-failed {
					t.Errorf("%d jobs are done, and %d have failed, of %d", n, failed, sent)
				}
				for _, worker := range ws { // of eight, some have no job to try
					if s := worker.Stats(); c.processes == 1 && s.Slots != 10 || s.Paused != nil {
						t.Errorf("%+v", s)
					}
				}
				stop()
			})
		})
	}
}

// TestBreakerUnwatched: where nothing can be paused, as in a batch, jobs are given back while the
// breaker is open, and no attempt counts.
func TestBreakerUnwatched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var away atomic.Bool
		away.Store(true)
		b := must(limit.NewBreaker(&limit.BreakerOptions{Runs: 4, Classes: []string{"error"}}))(t)
		stop := w.run(w.worker(onceq.Chain(provider(&away), b.Middleware()), nil))
		w.send("a", 30)
		pass(time.Hour)
		if n := w.ends(onceq.OutcomeRetried); n > 4 {
			t.Errorf("%d attempts", n)
		}
		away.Store(false)
		pass(20 * time.Minute)
		if n := w.ends(onceq.OutcomeDone); n != 30 {
			t.Errorf("%d are done", n)
		}
		stop()
	})
}

// TestBreakerHungHandlers: the rule: a handler that hangs keeps a breaker from closing for MaxOpen
// at most, as a probe, and where it had begun before. Nothing else runs but one probe at a time.
func TestBreakerHungHandlers(t *testing.T) {
	for name, hung := range map[string]struct{ before, probes int }{"as a probe": {0, 1}, "before": {3, 0}, "both": {2, 2}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				var away atomic.Bool
				away.Store(true)
				stuck, asks := make(chan struct{}), provider(&away)
				b := must(limit.NewBreaker(&limit.BreakerOptions{Runs: 2, MaxOpen: time.Minute}))(t)
				worker := w.worker(onceq.Chain(onceq.HandlerFunc(func(ctx context.Context, j *onceq.Job) error {
					if j.Message.Attributes["tenant"] == "hangs" {
						<-stuck
						return nil
					}
					return asks(ctx, j)
				}), b.Middleware()), nil)
				b.Watch(worker)
				stop := w.run(worker)
				w.send("hangs", hung.before)
				pass(time.Second)
				w.send("a", 2)
				pass(time.Second)
				w.send("hangs", hung.probes)
				pass(20 * time.Minute)
				if n := worker.Stats().Busy; n < hung.before+hung.probes {
					t.Errorf("%d hang, want %+v", n, hung)
				}
				away.Store(false)
				w.send("a", 20)
				for range 3 * 60 {
					pass(time.Second)
					s, _ := b.State()
					if n, most := worker.Stats().Busy, hung.before+hung.probes+1; s != limit.StateClosed && n > most {
						t.Fatalf("%s, %d handlers run, want at most %d", s, n, most)
					}
				}
				if s, _ := b.State(); s != limit.StateClosed {
					t.Errorf("it is %s: %+v", s, worker.Stats())
				}
				pass(2 * time.Minute)
				if n := w.ends(onceq.OutcomeDone); n != 22 {
					t.Errorf("%d jobs are done, want 22", n)
				}
				close(stuck)
				away.Store(true)
				w.send("a", 20)
				seen := 0
				for range 600 {
					pass(100 * time.Millisecond)
					if s, _ := b.State(); s == limit.StateHalfOpen {
						if seen++; worker.Stats().Slots != 1 {
							t.Fatalf("when all have ended, half-open: %+v", worker.Stats())
						}
					}
				}
				if seen == 0 {
					t.Error("it was never half-open")
				}
				stop()
			})
		})
	}
}

// TestBreakerLeavesErrors: what tells of no outage opens nothing; and an error by which the handler
// says what is to become of the job stays it while the breaker is open.
func TestBreakerLeavesErrors(t *testing.T) {
	for name, c := range map[string]struct {
		err   error
		parks bool
		opens bool
		ends  onceq.Outcome
	}{
		"another class": {onceq.Permanent(errProvider), false, false, onceq.OutcomeFailed},
		"postponed":     {onceq.Postpone(time.Hour, errProvider), false, false, onceq.OutcomePostponed},
		"permanent":     {onceq.Permanent(&classed{"error"}), false, true, onceq.OutcomeFailed},
		"unknown":       {onceq.Unknown(errProvider), true, true, onceq.OutcomeParked},
		"plain":         {errProvider, false, true, onceq.OutcomePostponed},
		"plain, park":   {errProvider, true, true, onceq.OutcomePostponed},
		"retry after":   {onceq.RetryAfter(time.Second, errProvider), false, true, onceq.OutcomePostponed},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				b := must(limit.NewBreaker(&limit.BreakerOptions{Runs: 1}))(t)
				worker := w.worker(onceq.Chain(onceq.HandlerFunc(func(context.Context, *onceq.Job) error { return c.err }), b.Middleware()), func(s *setup) {
					if c.parks {
						s.Defaults.Interrupted = dedupe.Park
					}
				})
				b.Watch(worker)
				stop := w.run(worker)
				w.send("a", 1)
				pass(time.Second)
				if s, _ := b.State(); s == limit.StateOpen != c.opens {
					t.Errorf("it is %s", s)
				}
				if w.ends(c.ends) != 1 {
					t.Errorf("%+v", w.all())
				}
				stop()
			})
		})
	}
}

// TestBreakerSomeFail: the rule: failures among successes open nothing, however many they become.
func TestBreakerSomeFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		b := must(limit.NewBreaker(nil))(t)
		var runs atomic.Int64
		worker := w.worker(onceq.Chain(onceq.HandlerFunc(func(context.Context, *onceq.Job) error {
			<-time.After(100 * time.Millisecond)
			if runs.Add(1)%10 == 0 {
				return errProvider
			}
			return nil
		}), b.Middleware()), nil)
		b.Watch(worker)
		stop := w.run(worker)
		w.send("a", 500)
		pass(time.Hour)
		if done, given := w.ends(onceq.OutcomeDone), w.ends(onceq.OutcomePostponed); done != 500 || given != 0 {
			t.Errorf("%d jobs are done, and it was open for %d", done, given)
		}
		stop()
	})
}

type classed struct{ class string }

func (e *classed) Error() string      { return e.class }
func (e *classed) ErrorClass() string { return e.class }

// TestBreakerBesideOthers: neither the program's Resume nor a second breaker ends a breaker's
// pause, and a breaker ends neither the program's Pause nor its Limit.
func TestBreakerBesideOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var away atomic.Bool
		mk := func() *limit.Breaker { return must(limit.NewBreaker(&limit.BreakerOptions{Runs: 1}))(t) }
		a, b := mk(), mk()
		worker := w.worker(onceq.Chain(provider(&away), a.Middleware(), b.Middleware()), nil)
		a.Watch(worker)
		b.Watch(worker)
		stop := w.run(worker)
		worker.Limit(3)
		pass(time.Millisecond)
		if n := worker.Stats().Slots; n != 3 {
			t.Errorf("%d slots", n)
		}
		away.Store(true)
		w.send("a", 1)
		pass(time.Second)
		worker.Pause()
		if p := worker.Stats().Paused; !slices.Equal(p, []string{onceq.ReasonLocal, onceq.ReasonBreaker}) {
			t.Error(p)
		}
		worker.Resume()
		if p := worker.Stats().Paused; !slices.Equal(p, []string{onceq.ReasonBreaker}) {
			t.Error(p)
		}
		away.Store(false)
		worker.Pause()
		pass(time.Minute)
		if s := worker.Stats(); !slices.Equal(s.Paused, []string{onceq.ReasonLocal}) || s.Slots != 1 {
			t.Errorf("half-open: %+v", s)
		}
		worker.Resume()
		pass(time.Minute)
		if s := worker.Stats(); s.Paused != nil || s.Slots != 3 {
			t.Errorf("closed: %+v", s)
		}
		worker.Limit(0)
		if n := worker.Stats().Slots; n != 10 {
			t.Errorf("%d slots", n)
		}
		stop()
	})
}
