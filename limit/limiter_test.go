package limit_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/control"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/limit"
)

// TestLimiterFails: a limiter that errs, panics, or ends its goroutine never lets a job run without
// its limit. The job is tried again, its class is "limit", and it becomes a letter as after any
// error. The same where the key's function panics.
func TestLimiterFails(t *testing.T) {
	errLimiter := errors.New("no quota server")
	fails := func(context.Context, limit.Ask) (time.Duration, error) { return 0, errLimiter }
	panics := func(context.Context, limit.Ask) (time.Duration, error) { panic("a bug") }
	fine := func(context.Context, limit.Ask) (time.Duration, error) { return 0, nil }
	for name, mw := range map[string]onceq.Middleware{
		"error": limit.Middleware(limiterFunc(fails), nil),
		"panic": limit.Middleware(limiterFunc(panics), nil),
		"key":   limit.Middleware(limiterFunc(fine), func(*onceq.Job) string { panic("a bug") }),
	} {
		for _, policy := range []dedupe.Policy{dedupe.Rerun, dedupe.Park} {
			t.Run(name+" "+policy.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(t)
					stop := w.run(w.worker(onceq.Chain(w.begun(0), mw), func(c *setup) {
						c.Defaults.MaxAttempts, c.Defaults.Interrupted = 3, policy
					}))
					w.send("a", 1)
					pass(time.Hour)
					var classes []string
					for i := range w.all() {
						classes = append(classes, string(w.all()[i].Outcome)+" "+w.all()[i].ErrClass)
					}
					if want := []string{"retried limit", "retried limit", "failed limit"}; !slices.Equal(classes, want) {
						t.Errorf("%q, want %q", classes, want)
					}
					if n := len(w.begins("a")); n > 0 {
						t.Errorf("the handler ran %d times", n)
					}
					stop()
				})
			})
		}
	}
}

// TestExpiresBeforeItsTime: a job that would have to wait for longer than it may begin is postponed
// until it expires, and becomes a letter of that class then.
func TestExpiresBeforeItsTime(t *testing.T) {
	for _, wait := range []time.Duration{time.Hour, 900 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			l := limiterFunc(func(context.Context, limit.Ask) (time.Duration, error) { return wait, nil })
			stop := w.run(w.worker(onceq.Chain(w.begun(0), limit.Middleware(l, nil)), nil))
			sent, after := time.Now(), 3*wait/4
			if err := onceq.Send(t.Context(), w.q, []broker.Outgoing{{Body: []byte("x"), Meta: &broker.Meta{Expires: sent.Add(after)}}}); err != nil {
				t.Fatal(err)
			}
			pass(2 * time.Hour)
			var got []onceq.Outcome
			for i := range w.all() {
				got = append(got, w.all()[i].Outcome)
			}
			if want := []onceq.Outcome{onceq.OutcomePostponed, onceq.OutcomeExpired}; !slices.Equal(got, want) || w.all()[0].Delay > after {
				t.Errorf("%v, delayed for %v; want %v", got, w.all()[0].Delay, want)
			}
			if len(w.begins("")) != 0 {
				t.Error("it ran")
			}
			stop()
		})
	}
}

// TestDrainWhileItWaits: a job that waits in its slot when the worker stops is given back at once.
// It is no attempt, and under Park it is not parked, because nothing has begun.
func TestDrainWhileItWaits(t *testing.T) {
	for _, policy := range []dedupe.Policy{dedupe.Rerun, dedupe.Park} {
		for name, l := range map[string]limiterFunc{
			"in the middleware": func(context.Context, limit.Ask) (time.Duration, error) { return 900 * time.Millisecond, nil },
			"in the limiter": func(ctx context.Context, _ limit.Ask) (time.Duration, error) {
				<-ctx.Done()
				return 0, ctx.Err()
			},
		} {
			t.Run(policy.String()+" "+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(t)
					stop := w.run(w.worker(onceq.Chain(w.begun(0), limit.Middleware(l, nil)), func(c *setup) {
						c.DrainTimeout, c.Defaults.Interrupted = 100*time.Millisecond, policy
					}))
					w.send("a", 1)
					pass(10 * time.Millisecond)
					stop()
					if n := w.ends(onceq.OutcomeHandedBack); n != 1 || len(w.all()) != 1 || len(w.begins("a")) > 0 {
						t.Errorf("%+v", w.all())
					}
					stop = w.run(w.worker(w.begun(0), nil))
					pass(time.Second)
					if n := w.ends(onceq.OutcomeDone); n != 1 || w.all()[1].Attempt != 1 {
						t.Errorf("%+v", w.all())
					}
					stop()
				})
			})
		}
	}
}

// TestPostponedHeadHoldsItsGroup: what comes behind a postponed job in its group waits for it, and
// other groups do not.
func TestPostponedHeadHoldsItsGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		l := limiterFunc(func(_ context.Context, a limit.Ask) (time.Duration, error) {
			if a.Key == "head" && !a.Again {
				return time.Minute, nil
			}
			return 0, nil
		})
		stop := w.run(w.worker(onceq.Chain(w.begun(0), limit.Middleware(l, tenant)), nil))
		sent := time.Now()
		for _, m := range [][2]string{{"head", "g"}, {"behind", "g"}, {"beside", "h"}} {
			if err := onceq.SendOne(t.Context(), w.q, &broker.Outgoing{Group: m[1], Attributes: map[string]string{"tenant": m[0]}}); err != nil {
				t.Fatal(err)
			}
		}
		pass(10 * time.Minute)
		stop()
		head, behind, beside := w.begins("head"), w.begins("behind"), w.begins("beside")
		if len(head) != 1 || len(behind) != 1 || len(beside) != 1 || head[0].Sub(sent) < time.Minute || behind[0].Before(head[0]) || beside[0].Sub(sent) > time.Second {
			t.Errorf("sent at %v; the head began at %v, the one behind it at %v, one of another group at %v", sent, head, behind, beside)
		}
	})
}

// TestWaitBeyondTimeout: a job whose limiter lets it begin after its Timeout is postponed at once.
// It holds no slot meanwhile, and the report names the limiter.
func TestWaitBeyondTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		l := limiterFunc(func(context.Context, limit.Ask) (time.Duration, error) { return 900 * time.Millisecond, nil })
		began := time.Now()
		stop := w.run(w.worker(onceq.Chain(w.begun(0), limit.Middleware(l, nil)), func(c *setup) { c.Defaults.Timeout = 500 * time.Millisecond }))
		w.send("a", 1)
		pass(10 * time.Millisecond)
		if all := w.all(); len(all) != 1 || all[0].Outcome != onceq.OutcomePostponed || all[0].Limiter == "" {
			t.Errorf("after %v: %+v", time.Since(began), all)
		}
		stop()
	})
}

// TestCutOffInTheLimiter: the job's time is over, or its worker stops, before the limiter answers,
// whatever it answers then. The job has not begun, so it is given back, and not parked.
func TestCutOffInTheLimiter(t *testing.T) {
	for _, wait := range []time.Duration{0, 100 * time.Millisecond, time.Minute} {
		for _, takes := range []time.Duration{500 * time.Millisecond, time.Second} {
			for _, drains := range []bool{false, true} {
				t.Run(fmt.Sprintf("%v after %v, drain %v", wait, takes, drains), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						w := newWorld(t)
						l := limiterFunc(func(context.Context, limit.Ask) (time.Duration, error) {
							<-time.After(takes)
							return wait, nil
						})
						stop := w.run(w.worker(onceq.Chain(w.begun(0), limit.Middleware(l, nil)), func(c *setup) {
							c.Defaults.Interrupted = dedupe.Park
							if c.DrainTimeout = 400 * time.Millisecond; !drains {
								c.Defaults.Timeout = 500 * time.Millisecond
							}
						}))
						w.send("a", 1)
						pass(10 * time.Millisecond)
						if !drains {
							pass(takes)
						}
						stop()
						if n := w.ends(onceq.OutcomeHandedBack); n < 1 || n != len(w.all()) || len(w.begins("a")) > 0 {
							t.Errorf("%+v", w.all())
						}
					})
				})
			}
		}
	}
}

// TestCutOffAsItIsRefused: the job's time is over, or its worker cuts it off, in the moment of its
// limiter's answer; here a middleware outside lingers until then. It has not begun, so nothing is
// in doubt, and it is not parked. Without a cut it is what it was: postponed, or an error.
func TestCutOffAsItIsRefused(t *testing.T) {
	answers := func(wait time.Duration, err error) func(*testing.T, *world) onceq.Middleware {
		return func(*testing.T, *world) onceq.Middleware {
			return limit.Middleware(limiterFunc(func(context.Context, limit.Ask) (time.Duration, error) { return wait, err }), nil)
		}
	}
	for name, c := range map[string]struct {
		refuses func(*testing.T, *world) onceq.Middleware
		uncut   onceq.Outcome
	}{
		"postponed": {answers(time.Minute, nil), onceq.OutcomePostponed},
		"error":     {answers(0, errors.New("no quota server")), onceq.OutcomeRetried},
		"its store": {answers(0, onceq.Postpone(time.Minute, errAway)), onceq.OutcomePostponed},
		"breaker":   {opened, onceq.OutcomePostponed},
		"no place":  {taken, onceq.OutcomePostponed},
		"places away": {func(t *testing.T, w *world) onceq.Middleware {
			s := &frail{Store: w.store}
			s.away.Store(true)
			return must(limit.Slots(s, "db", 1))(t)
		}, onceq.OutcomePostponed},
	} {
		for _, cut := range []string{"timeout", "drain", ""} {
			t.Run(name+" "+cut, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(t)
					lingers := func(next onceq.Handler) onceq.Handler {
						return onceq.HandlerFunc(func(ctx context.Context, j *onceq.Job) error {
							err := next.Handle(ctx, j)
							if cut != "" {
								<-ctx.Done()
							}
							return err
						})
					}
					stop := w.run(w.worker(onceq.Chain(w.begun(0), lingers, c.refuses(t, w)), func(c *setup) {
						c.Defaults.Interrupted, c.DrainTimeout = dedupe.Park, time.Second
						if cut == "timeout" {
							c.Defaults.Timeout = 10 * time.Second
						}
					}))
					w.send("a", 1)
					pass(15 * time.Second)
					stop()
					want := onceq.OutcomeHandedBack
					if cut == "" {
						want = c.uncut
					}
					if all := w.all(); len(all) == 0 || all[0].Outcome != want || w.ends(onceq.OutcomeParked) > 0 || len(w.begins("a")) > 0 {
						t.Errorf("want %s first: %+v", want, all)
					}
				})
			})
		}
	}
}

// opened is a breaker that is open.
func opened(t *testing.T, _ *world) onceq.Middleware {
	b := must(limit.NewBreaker(&limit.BreakerOptions{Runs: 1, OpenFor: time.Hour, MaxOpen: time.Hour}))(t)
	h := b.Middleware()(onceq.HandlerFunc(func(context.Context, *onceq.Job) error { return errProvider }))
	_ = h.Handle(t.Context(), &onceq.Job{Message: new(broker.Message)})
	return b.Middleware()
}

// taken is a place that another process has.
func taken(t *testing.T, w *world) onceq.Middleware {
	held := make(chan struct{})
	go func() {
		_ = control.WithLock(t.Context(), w.store, "limit/db/0", func(context.Context) error {
			close(held)
			<-t.Context().Done()
			return nil
		})
	}()
	<-held
	return must(limit.Slots(w.store, "db", 1))(t)
}

// TestStacked: a job under two limiters, and in a place, obeys all of them, and says which one has
// postponed it.
func TestStacked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		tenants := must(limit.Rate(30, time.Minute))(t)
		all := must(limit.Shared(w.store, "api", 20, time.Minute))(t)
		places := must(limit.Slots(w.store, "db", 2))(t)
		stop := w.run(w.worker(onceq.Chain(w.begun(3*time.Second), limit.Middleware(all, nil), limit.Middleware(tenants, tenant), places), nil))
		w.send("a", 60)
		w.send("b", 5)
		pass(10 * time.Minute)
		at := append(w.begins("a"), w.begins("b")...)
		slices.SortFunc(at, time.Time.Compare)
		if n := windowed(at, time.Minute); len(at) != 65 || n > 20 || w.atOnce() > 2 || windowed(w.begins("a"), time.Minute) > 30 {
			t.Errorf("%d ran, %d in a minute, %d at once", len(at), n, w.atOnce())
		}
		names := map[string]bool{}
		for i := range w.all() {
			names[w.all()[i].Limiter] = true
		}
		if !names["api"] || !names["db"] && !names["rate 30/1m0s"] {
			t.Errorf("postponed by %v", names)
		}
		stop()
	})
}

// TestBeside: a limiter in a job with steps keeps what they have saved; and in a batch and in Do
// its word is the answer.
func TestBeside(t *testing.T) {
	refuse := limit.Middleware(limiterFunc(func(context.Context, limit.Ask) (time.Duration, error) { return time.Minute, nil }), nil)
	t.Run("steps", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			l := must(limit.Rate(1, time.Minute))(t)
			var paid atomic.Int32
			second := limit.Middleware(l, nil)(onceq.HandlerFunc(func(context.Context, *onceq.Job) error { return nil }))
			stop := w.run(w.worker(onceq.HandlerFunc(func(ctx context.Context, j *onceq.Job) error {
				_, err := onceq.Step(ctx, j, "pay", func(context.Context) (int, error) { return int(paid.Add(1)), nil })
				if err != nil {
					return err
				}
				return second.Handle(ctx, j)
			}), func(c *setup) { c.Defaults.MaxAttempts = 1 }))
			w.send("a", 5)
			pass(10 * time.Minute)
			if paid.Load() != 5 || w.ends(onceq.OutcomeDone) != 5 {
				t.Errorf("%d paid, %d done", paid.Load(), w.ends(onceq.OutcomeDone))
			}
			stop()
		})
	})
	t.Run("batch", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			p := must(onceq.NewProcessor(onceq.ProcessorConfig{Handler: onceq.Chain(w.begun(0), refuse), Store: w.store, Scope: "s", Observer: w}))(t)
			b := must(p.Batches(onceq.BatchConfig{DeadLetter: w.letters}))(t)
			var d onceq.Disposition
			m := &broker.Message{ID: "1", Body: []byte("x"), Meta: &broker.Meta{ID: "1", Key: "1"}}
			b.Process(t.Context(), []onceq.Delivery{{Message: m, Until: time.Now().Add(time.Minute)}}, nil, func(_ int, got onceq.Disposition) { d = got })
			if d.Report.Outcome != onceq.OutcomePostponed || d.Action != onceq.Nack || len(w.begins("")) > 0 {
				t.Errorf("%+v", d)
			}
			pass(time.Minute)
		})
	})
	t.Run("do", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			p := must(onceq.NewProcessor(onceq.ProcessorConfig{Store: w.store, Scope: "s"}))(t)
			_, err := onceq.Do(t.Context(), p, dedupe.Key{Scope: "s", Key: "k"}, nil, func(ctx context.Context, j *onceq.Job) (int, error) {
				return 1, refuse(w.begun(0)).Handle(ctx, j)
			})
			if err == nil || !strings.Contains(err.Error(), "postponed for 1m0s") || len(w.begins("")) > 0 {
				t.Errorf("%v", err)
			}
			pass(time.Minute)
		})
	})
}

// TestRefusedConfig: what cannot be meant is refused when it is made, with the field and its limit.
func TestRefusedConfig(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newWorld(t).store
		rate := func(n int, per time.Duration) error { _, err := limit.Rate(n, per); return err }
		shared := func(s dedupe.Store, name string, n int) error {
			_, err := limit.Shared(s, name, n, time.Minute)
			return err
		}
		slots := func(s dedupe.Store, name string, n int) error { _, err := limit.Slots(s, name, n); return err }
		breaker := func(o limit.BreakerOptions) error { _, err := limit.NewBreaker(&o); return err }
		for _, c := range []struct {
			err         error
			field, says string
		}{
			{rate(0, time.Second), "limit.Rate.n", "between 1 and 1000000"},
			{rate(2_000_000, time.Hour), "limit.Rate.n", "between 1 and 1000000"},
			{rate(1, 0), "limit.Rate.per", "between 1 ms and"},
			{rate(1, 3), "limit.Rate.per", "unit missing"},
			{rate(1, 1000*time.Hour), "limit.Rate.per", "between 1 ms and 744h0m0s"},
			{rate(1_000_000, time.Millisecond), "limit.Rate.n", "each microsecond"},
			{shared(nil, "a", 1), "limit.Shared.s", "needs a store"},
			{shared(onceq.NoStore, "a", 1), "limit.Shared.s", "needs a store"},
			{shared(s, "", 1), "limit.Shared.name", "between 1 and 64"},
			{shared(s, strings.Repeat("a", 65), 1), "limit.Shared.name", "between 1 and 64"},
			{shared(s, "\xff", 1), "limit.Shared.name", "UTF-8"},
			{shared(s, "a", -1), "limit.Shared.n", "between 1 and"},
			{slots(nil, "a", 1), "limit.Slots.s", "needs a store"},
			{slots(s, "a", 0), "limit.Slots.n", "between 1 and 1000"},
			{slots(s, "a", 1001), "limit.Slots.n", "between 1 and 1000"},
			{breaker(limit.BreakerOptions{Runs: -1}), "limit.BreakerOptions.Runs", "between 1 and 1000"},
			{breaker(limit.BreakerOptions{Share: 1.5}), "limit.BreakerOptions.Share", "at most 1"},
			{breaker(limit.BreakerOptions{Window: 3}), "limit.BreakerOptions.Window", "between 1ms and 1h"},
			{breaker(limit.BreakerOptions{OpenFor: time.Hour, MaxOpen: time.Minute}), "limit.BreakerOptions.OpenFor", "between 1ms and 1m"},
			{breaker(limit.BreakerOptions{MaxOpen: -1}), "limit.BreakerOptions.MaxOpen", "between 1ms and 24h"},
			{breaker(limit.BreakerOptions{Classes: []string{""}}), "limit.BreakerOptions.Classes", "empty"},
			{breaker(limit.BreakerOptions{Name: strings.Repeat("a", 65)}), "limit.BreakerOptions.Name", "more than 64"},
		} {
			var e *onceq.ConfigError
			if !errors.As(c.err, &e) || e.Field != c.field || !strings.Contains(e.Reason, c.says) {
				t.Errorf("%v, want %s: … %s", c.err, c.field, c.says)
			}
		}
		p := onceq.ProcessorConfig{Handler: onceq.Chain(onceq.HandlerFunc(func(context.Context, *onceq.Job) error { return nil }), limit.Middleware(nil, nil)), Store: s, Scope: "s"}
		if _, err := onceq.NewProcessor(p); err == nil || !strings.Contains(err.Error(), "middleware is nil") {
			t.Errorf("a nil limiter: %v", err)
		}
	})
}
