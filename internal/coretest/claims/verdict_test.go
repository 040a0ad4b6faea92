package onceq_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
)

func returns(err error) onceq.HandlerFunc {
	return func(context.Context, *onceq.Job) error { return err }
}

func TestNilIsDone(t *testing.T) {
	bubble(t, returns(nil), func(r *rig) {
		r.send("a")
		r.run(time.Second)
		r.wantStatus("a", dedupe.Done)
		r.wantQueue(0)
		r.noLetters()
		r.wantOutcomes("a", "done")
		got := r.seen.of("a")[0]
		if got.Attempt != 1 || got.Fence == 0 || got.Receives != 1 || !got.Heartbeat || got.Visibility != onceq.DefaultVisibility || got.ErrClass != "" {
			t.Errorf("the timing record is %+v", got)
		}
		if n := r.log.count("outcome=done"); n != 1 {
			t.Errorf("%d log records of the job, want 1", n)
		}
	})
}

func TestErrorIsRetriedWithJitteredBackoff(t *testing.T) {
	const jobs = 40
	bubble(t, returns(errBoom), func(r *rig) {
		r.send(numbered("k", jobs)...)
		r.run(time.Hour)
		var means [onceq.DefaultMaxAttempts - 1]time.Duration
		for _, k := range numbered("k", jobs) {
			delays := r.q.delays(k)
			if len(delays) != len(means) {
				t.Fatalf("%q was nacked %d times, want %d", k, len(delays), len(means))
			}
			for i, d := range delays {
				if most := onceq.DefaultBackoffMin << i; d < 0 || d > most {
					t.Errorf("the delay after attempt %d is %v, want 0 to %v", i+1, d, most)
				}
				means[i] += d / jobs
			}
		}
		for i, mean := range means {
			if most := onceq.DefaultBackoffMin << i; mean < most/4 || mean > most*3/4 {
				t.Errorf("the delays after attempt %d are %v on average, want about half of %v", i+1, mean, most)
			}
		}
	}, with(func(c *setup) { c.Concurrency = jobs }))
}

func TestRetriedRecordsTheFailure(t *testing.T) {
	n := 0
	h := func(context.Context, *onceq.Job) error {
		n++
		return fmt.Errorf("failure %d", n)
	}
	bubble(t, h, func(r *rig) {
		r.send("a")
		r.run(1500 * time.Millisecond)
		rec := r.record("a")
		if rec.Status != dedupe.Released || rec.Attempt != 2 || rec.ErrClass != onceq.ClassError || rec.FirstErr != "failure 1" || rec.LastErr != "failure 2" {
			t.Errorf("the record is %+v", rec)
		}
		r.wantOutcomes("a", "retried", "retried")
		r.wantQueue(1)
	}, steady)
}

func TestAttemptsUsedUp(t *testing.T) {
	for _, most := range []int{1, 3} {
		n := 0
		h := func(_ context.Context, j *onceq.Job) error {
			if n++; j.Attempt != n {
				t.Errorf("attempt %d, want %d", j.Attempt, n)
			}
			return fmt.Errorf("failure %d", n)
		}
		bubble(t, h, func(r *rig) {
			r.cfg.Defaults.MaxAttempts = most
			r.w = r.worker(nil)
			r.send("a")
			r.run(time.Minute)
			rec := r.record("a")
			d := r.letter(onceq.ClassError).Meta.Dead
			want := broker.Dead{
				Fence: rec.Fence, Class: onceq.ClassError, FirstErr: "failure 1", LastErr: fmt.Sprintf("failure %d", most),
				Attempts: most, Source: scope, At: d.At,
			}
			if rec.Status != dedupe.Failed || d.Fence != want.Fence || d.FirstErr != want.FirstErr || d.LastErr != want.LastErr ||
				d.Attempts != most || d.Source != scope || d.At.IsZero() {
				t.Errorf("status %v, letter %+v, want %+v", rec.Status, d, want)
			}
			r.wantQueue(0)
			if n != most {
				t.Errorf("%d runs, want %d", n, most)
			}
		}, steady)
	}
}

func TestUnlimitedAttempts(t *testing.T) {
	bubble(t, returns(errBoom), func(r *rig) {
		r.send("a")
		r.run(100 * time.Second)
		if n := r.seen.started("a"); n < 90 {
			t.Errorf("%d attempts, want one a second", n)
		}
		r.noLetters()
		r.wantStatus("a", dedupe.Released)
	}, most(-1), steady)
}

func TestPermanentFailsAtOnce(t *testing.T) {
	bubble(t, returns(fmt.Errorf("wrapped: %w", onceq.Permanent(errBoom))), func(r *rig) {
		r.send("a")
		r.run(time.Second)
		r.wantStatus("a", dedupe.Failed)
		r.letter(onceq.ClassPermanent)
		r.wantQueue(0)
		r.wantOutcomes("a", "failed")
	})
}

func TestRetryAfter(t *testing.T) {
	for _, c := range []struct{ ask, want time.Duration }{
		{42 * time.Second, 42 * time.Second}, {-time.Second, 0}, {0, 0}, {1 << 62, 365 * 24 * time.Hour},
	} {
		n := 0
		h := func(context.Context, *onceq.Job) error {
			if n++; n == 1 {
				return onceq.RetryAfter(c.ask, errBoom)
			}
			return nil
		}
		bubble(t, h, func(r *rig) {
			r.send("a")
			r.run(time.Second)
			if got := r.q.delays("a"); !slices.Equal(got, []time.Duration{c.want}) {
				t.Errorf("RetryAfter(%v) was nacked for %v, want %v", c.ask, got, c.want)
			}
			if rec := r.record("a"); c.want > time.Second && (rec.Attempt != 1 || rec.Status != dedupe.Released) {
				t.Errorf("RetryAfter(%v) left %+v", c.ask, rec)
			}
		})
	}
	bubble(t, returns(onceq.RetryAfter(time.Second, errBoom)), func(r *rig) {
		r.send("a")
		r.run(time.Minute)
		r.letter(onceq.ClassError)
	}, most(2))
}

func TestPanicIsAnError(t *testing.T) {
	for name, h := range map[string]onceq.HandlerFunc{
		"panic":     func(context.Context, *onceq.Job) error { panic(errBoom) },
		"panic nil": func(context.Context, *onceq.Job) error { panic(nil) },
		"bad panic": func(context.Context, *onceq.Job) error { panic(badError{}) },
		"Goexit":    func(context.Context, *onceq.Job) error { runtime.Goexit(); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, h, func(r *rig) {
				r.send("a", "b", "c")
				r.run(time.Minute)
				for _, k := range []string{"a", "b", "c"} {
					if n := r.seen.started(k); n != 3 {
						t.Errorf("%q ran %d times, want 3: the one goroutine for handlers must go on", k, n)
					}
				}
				ms := r.letters()
				if len(ms) != 3 || ms[0].Meta.Dead.Class != onceq.ClassPanic {
					t.Fatalf("letters %+v", ms)
				}
				if text := ms[0].Meta.Dead.LastErr; name != "Goexit" && !strings.Contains(text, "verdict_test.go") {
					t.Errorf("the letter's error has no stack: %s", text)
				}
				r.wantQueue(0)
			}, most(3), steady, with(func(c *setup) { c.Concurrency = 1 }))
		})
	}
}

// badError panics wherever it is asked anything.
type badError struct{}

func (badError) Error() string      { panic("Error") }
func (badError) ErrorClass() string { panic("ErrorClass") }
func (badError) Is(error) bool      { panic("Is") }
func (badError) As(any) bool        { panic("As") }

func TestErrorThatPanics(t *testing.T) {
	bubble(t, returns(badError{}), func(r *rig) {
		r.send("a", "b")
		r.run(time.Minute)
		for _, m := range r.letters() {
			if m.Meta.Dead.Class != onceq.ClassPanic && m.Meta.Dead.Class != onceq.ClassError {
				t.Errorf("the letter's class is %q", m.Meta.Dead.Class)
			}
		}
		r.wantStatus("a", dedupe.Failed)
		r.wantStatus("b", dedupe.Failed)
		r.wantQueue(0)
	}, most(2), steady)
}

// whenCut waits for the end of its context, and then answers err.
func whenCut(err error) onceq.HandlerFunc {
	return func(ctx context.Context, _ *onceq.Job) error {
		<-ctx.Done()
		if cause := context.Cause(ctx); !errors.Is(cause, onceq.ErrDraining) {
			return fmt.Errorf("the cause is %w", cause)
		}
		return err
	}
}

func TestDrainCutsOff(t *testing.T) {
	for _, c := range []struct {
		name    string
		err     error
		status  dedupe.Status
		attempt int
		delays  []time.Duration
		letter  string
		outcome string
	}{
		{"error", errBoom, dedupe.Released, 0, []time.Duration{0}, "", "handed-back"},
		{"retry after", onceq.RetryAfter(time.Hour, errBoom), dedupe.Released, 0, []time.Duration{0}, "", "handed-back"},
		{"nil", nil, dedupe.Done, 1, nil, "", "done"},
		{"permanent", onceq.Permanent(errBoom), dedupe.Failed, 1, nil, onceq.ClassPermanent, "failed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, whenCut(c.err), func(r *rig) {
				r.send("a")
				r.start()
				pass(time.Second)
				begin := time.Now()
				if err := r.stop(); err != nil {
					t.Errorf("Run: %v", err)
				}
				if took := time.Since(begin); took != onceq.DefaultDrainTimeout {
					t.Errorf("the drain took %v, want %v", took, onceq.DefaultDrainTimeout)
				}
				rec := r.record("a")
				if rec.Status != c.status || rec.Attempt != c.attempt {
					t.Errorf("status %v, attempt %d, want %v, %d", rec.Status, rec.Attempt, c.status, c.attempt)
				}
				if got := r.q.delays("a"); !slices.Equal(got, c.delays) {
					t.Errorf("nacked with %v, want %v", got, c.delays)
				}
				if c.letter != "" {
					r.letter(c.letter)
				}
				r.noLetters()
				r.wantOutcomes("a", c.outcome)
			}, most(1))
		})
	}
}

func TestErrorBeforeTheCutIsCounted(t *testing.T) {
	h := func(context.Context, *onceq.Job) error {
		takes(10 * time.Second)
		return errBoom
	}
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, h, steady)
		r.send("a")
		r.start()
		<-time.After(time.Second)
		if err := r.stop(); err != nil {
			t.Fatal(err)
		}
		if rec := r.record("a"); rec.Status != dedupe.Released || rec.Attempt != 1 {
			t.Errorf("a handler that failed during the drain by itself left %v, attempt %d", rec.Status, rec.Attempt)
		}
	})
}

func TestPark(t *testing.T) {
	for _, c := range []struct {
		name  string
		h     onceq.HandlerFunc
		parks bool
	}{
		{"panic", func(context.Context, *onceq.Job) error { panic("boom") }, true},
		{"Goexit", func(context.Context, *onceq.Job) error { runtime.Goexit(); return nil }, true},
		{"error after the drain's cut", whenCut(errBoom), true},
		{"permanent after the drain's cut", whenCut(onceq.Permanent(errBoom)), true},
		{"nil after the drain's cut", whenCut(nil), false},
		{"plain error", returns(errBoom), false},
		{"nil", returns(nil), false},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, c.h, func(r *rig) {
				r.send("a")
				r.run(500 * time.Millisecond)
				rec := r.record("a")
				if !c.parks {
					if rec.Status == dedupe.Parked {
						t.Errorf("parked: %+v", rec)
					}
					r.noLetters()
					return
				}
				if rec.Status != dedupe.Parked || rec.Attempt != 1 || !rec.Started {
					t.Errorf("the record is %+v", rec)
				}
				if d := r.letter(onceq.ClassInterrupted).Meta.Dead; d.Fence != rec.Fence || d.LastErr == "" {
					t.Errorf("the letter is %+v", d)
				}
				r.wantOutcomes("a", "parked")
				r.wantQueue(0)
				if n := r.seen.started("a"); n != 1 {
					t.Errorf("%d runs, want 1", n)
				}
			}, parks, steady)
		})
	}
}

func TestTimeoutClass(t *testing.T) {
	h := func(ctx context.Context, j *onceq.Job) error {
		<-ctx.Done()
		if !errors.Is(context.Cause(ctx), onceq.ErrTimeout) {
			t.Errorf("the cause is %v", context.Cause(ctx))
		}
		if string(j.Message.Body) == "nil" {
			return nil
		}
		return ctx.Err()
	}
	limit := with(func(c *setup) { c.Defaults.Timeout = 3 * time.Second })
	bubble(t, h, func(r *rig) {
		r.send("nil", "err")
		r.run(time.Minute)
		r.wantStatus("nil", dedupe.Done)
		r.letter(onceq.ClassTimeout)
		if n := r.seen.started("err"); n != 2 {
			t.Errorf("%d attempts, want 2: a timeout counts", n)
		}
		for _, rec := range r.seen.of("err") {
			if rec.Process != 3*time.Second {
				t.Errorf("the handler ran for %v, want 3s", rec.Process)
			}
		}
	}, limit, most(2), steady)
	bubble(t, h, func(r *rig) {
		r.send("err")
		r.run(time.Minute)
		r.letter(onceq.ClassInterrupted)
		r.wantStatus("err", dedupe.Parked)
	}, limit, most(2), parks)
}
