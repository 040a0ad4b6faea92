package sqslambda_test

import (
	"context"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	rigs "github.com/onceq/onceq/internal/rig"
)

// This file owns jobs with steps, whose parts run in several invocations.

// A function dies in the second step, and the next one goes on there, under the same effect key. A
// sleep is reported as a failure of its record alone, and is no attempt, in the last one neither.
// With Options.Queue the message comes when the sleep is over. Without it, it comes at each end of
// the queue's visibility timeout, and the sleep says what is left.
func TestSteps(t *testing.T) {
	for name, c := range map[string]struct {
		queue    bool
		receives int // the first, the one after the death, and what the sleep takes
	}{"with the queue": {true, 3}, "without it": {false, 22}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, nil, func(r *rig) {
				if c.queue {
					r.withQueue()
				}
				thaw, ran, keys := make(chan struct{}), map[string]int{}, map[string]bool{}
				var mu sync.Mutex // who thaws is a goroutine of its own
				r.cfg.Defaults.MaxAttempts = 2
				r.cfg.Handler = onceq.HandlerFunc(func(ctx context.Context, j *onceq.Job) error {
					if string(j.Message.Body) == "ok" {
						return nil
					}
					step := func(name string) error {
						_, err := onceq.Step(ctx, j, name, func(context.Context) (int, error) {
							mu.Lock()
							ran[name]++
							keys[j.EffectKey(name)] = true
							dies := name == "mail" && ran[name] == 1
							mu.Unlock()
							if dies {
								<-thaw // with the sandbox: not even the end of its context comes here
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
				})
				r.send("a", "ok")
				h, receives := r.function(), 0
				var slept time.Time
				for r.record("a").Status != dedupe.Done && receives < 100 {
					e := r.receive(30 * time.Second)
					if len(e.Records) == 0 {
						rigs.Takes(time.Second)
						continue
					}
					receives++
					failed, err := r.invoke(h, e)
					for _, m := range e.Records { // Lambda deletes what has not failed
						if !slices.Contains(failed, m.Body) {
							_ = r.q.Ack(r.Context(), []broker.Receipt{broker.Receipt(m.ReceiptHandle)})
						}
					}
					switch rec := r.record("a"); {
					case err != nil || slices.Contains(failed, "ok"):
						t.Fatalf("failed: %q, %v", failed, err)
					case receives == 1:
						rigs.Takes(r.limit) // until the dead one's claim is over
					case rec.Status == dedupe.Done:
						if d := time.Since(slept); d < 10*time.Minute || d > 10*time.Minute+31*time.Second {
							t.Errorf("it slept for %v", d)
						}
						r.want(failed, err)
					default:
						if slept.IsZero() {
							slept = time.Now()
						}
						r.want(failed, err, "a")
						if rec.Attempt != 1 || rec.ErrClass != onceq.ClassPostponed {
							t.Errorf("asleep, the record is %+v", rec)
						}
					}
				}
				close(thaw)
				r.quiet()
				want := map[string]int{"charge": 1, "mail": 2, "book": 1}
				if !maps.Equal(ran, want) || len(keys) != len(want) || r.record("a").Attempt != 2 || receives != c.receives {
					t.Errorf("%v ran, want %v; %d keys, %d receives, the record is %+v", ran, want, len(keys), receives, r.record("a"))
				}
				if got := r.letters(); len(got) > 0 {
					t.Errorf("the letters are %q", got)
				}
			})
		})
	}
}

// Four steps that take longer than one invocation. A step that is cut off runs again, and that is
// an attempt. A handler that looks at its context's deadline gives the job back before, and that is
// none.
func TestStepsBeyondTheDeadline(t *testing.T) {
	for name, c := range map[string]struct {
		looks bool
		runs  int
		most  int // attempts
	}{"cut off": {false, 5, 2}, "given back": {true, 4, 1}} {
		t.Run(name, func(t *testing.T) {
			runs := 0
			bubble(t, func(ctx context.Context, j *onceq.Job) error {
				for _, name := range []string{"a", "b", "c", "d"} {
					if end, _ := ctx.Deadline(); c.looks && time.Until(end) < 20*time.Second {
						return onceq.Postpone(0, nil)
					}
					if _, err := onceq.Step(ctx, j, name, func(ctx context.Context) (int, error) {
						runs++
						return 1, rigs.Busy(ctx, 20*time.Second)
					}); err != nil {
						return err
					}
				}
				return nil
			}, func(r *rig) {
				r.withQueue()
				r.send("a")
				h := r.function()
				failed, err := r.invoke(h, r.receive(6*time.Minute))
				r.want(failed, err, "a")
				rigs.Takes(10 * time.Second)
				failed, err = r.invoke(h, r.receive(6*time.Minute))
				r.want(failed, err)
				if rec := r.record("a"); rec.Status != dedupe.Done || rec.Attempt != c.most || runs != c.runs {
					t.Errorf("%d steps ran, want %d; the record is %+v", runs, c.runs, rec)
				}
			})
		})
	}
}

// What the page of steps says of long waits without Carry: up to 13.5 days where the queue keeps
// messages for 14, with fewer than 40 receives.
func TestSleepOfThirteenDays(t *testing.T) {
	const day = 24 * time.Hour
	woke := 0
	bubble(t, func(ctx context.Context, j *onceq.Job) error {
		err := onceq.Sleep(ctx, j, "trial", 13*day+11*time.Hour)
		if err == nil {
			woke++
		}
		return err
	}, func(r *rig) {
		r.withQueue()
		r.batch.Keeps = 14 * day
		r.send("a")
		h, receives, begin := r.function(), 0, time.Now()
		for r.record("a").Status != dedupe.Done && time.Since(begin) < 14*day {
			if e := r.receive(6 * time.Minute); len(e.Records) > 0 {
				receives++
				if _, err := r.invoke(h, e); err != nil {
					t.Fatal(err)
				}
				continue
			}
			rigs.Takes(10 * time.Minute)
		}
		if woke != 1 || receives >= 40 || len(r.letters()) > 0 {
			t.Errorf("it woke %d times, after %d receives; the record is %+v", woke, receives, r.record("a"))
		}
	})
}
