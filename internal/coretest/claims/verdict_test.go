package claims

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
	"github.com/onceq/onceq/internal/coretest/rig"
)

func TestNilIsDone(t *testing.T) {
	rig.Bubble(t, rig.Returns(nil), func(r *rig.Rig) {
		r.Send("a")
		r.RunFor(time.Second)
		r.WantStatus("a", dedupe.Done)
		r.WantQueue(0)
		r.NoLetters()
		r.WantOutcomes("a", "done")
		got := r.Seen.Of("a")[0]
		if got.Attempt != 1 || got.Fence == 0 || got.Receives != 1 || !got.Heartbeat || got.Visibility != onceq.DefaultVisibility || got.ErrClass != "" {
			t.Errorf("the job report is %+v", got)
		}
		if n := r.Logged.Count("outcome=done"); n != 1 {
			t.Errorf("%d log records of the job, want 1", n)
		}
	})
}

func TestErrorIsRetriedWithJitteredBackoff(t *testing.T) {
	const jobs = 40
	rig.Bubble(t, rig.Returns(rig.ErrBoom), func(r *rig.Rig) {
		r.Send(rig.Numbered("k", jobs)...)
		r.RunFor(time.Hour)
		var means [onceq.DefaultMaxAttempts - 1]time.Duration
		for _, k := range rig.Numbered("k", jobs) {
			delays := r.Q.Delays(k)
			if len(delays) != len(means) {
				t.Fatalf("%q was nacked %d times, want %d", k, len(delays), len(means))
			}
			for i, d := range delays {
				if most := time.Second << i; d < 0 || d > most {
					t.Errorf("the delay after attempt %d is %v, want 0 to %v", i+1, d, most)
				}
				means[i] += d / jobs
			}
		}
		for i, mean := range means {
			if most := time.Second << i; mean < most/4 || mean > most*3/4 {
				t.Errorf("the delays after attempt %d are %v on average, want about half of %v", i+1, mean, most)
			}
		}
	}, rig.With(func(c *rig.Setup) { c.Concurrency = jobs }))
}

func TestRetriedRecordsTheFailure(t *testing.T) {
	n := 0
	h := func(context.Context, *onceq.Job) error {
		n++
		return fmt.Errorf("failure %d", n)
	}
	rig.Bubble(t, h, func(r *rig.Rig) {
		r.Send("a")
		r.RunFor(1500 * time.Millisecond)
		rec := r.Record("a")
		if rec.Status != dedupe.Released || rec.Attempt != 2 || rec.ErrClass != onceq.ClassError || rec.FirstErr != "failure 1" || rec.LastErr != "failure 2" {
			t.Errorf("the record is %+v", rec)
		}
		r.WantOutcomes("a", "retried", "retried")
		r.WantQueue(1)
	}, rig.Steady)
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
		rig.Bubble(t, h, func(r *rig.Rig) {
			r.Cfg.Defaults.MaxAttempts = most
			r.W = r.Worker(nil)
			r.Send("a")
			r.RunFor(time.Minute)
			rec := r.Record("a")
			d := r.Letter(onceq.ClassError).Meta.Dead
			want := broker.Letter{
				Fence: rec.Fence, Class: onceq.ClassError, FirstErr: "failure 1", LastErr: fmt.Sprintf("failure %d", most),
				Attempts: most, Source: rig.Scope, At: d.At,
			}
			if rec.Status != dedupe.Failed || d.Fence != want.Fence || d.FirstErr != want.FirstErr || d.LastErr != want.LastErr ||
				d.Attempts != most || d.Source != rig.Scope || d.At.IsZero() {
				t.Errorf("status %v, letter %+v, want %+v", rec.Status, d, want)
			}
			r.WantQueue(0)
			if n != most {
				t.Errorf("%d runs, want %d", n, most)
			}
		}, rig.Steady)
	}
}

func TestUnlimitedAttempts(t *testing.T) {
	rig.Bubble(t, rig.Returns(rig.ErrBoom), func(r *rig.Rig) {
		r.Send("a")
		r.RunFor(100 * time.Second)
		if n := r.Seen.Started("a"); n < 90 {
			t.Errorf("%d attempts, want one a second", n)
		}
		r.NoLetters()
		r.WantStatus("a", dedupe.Released)
	}, rig.Most(-1), rig.Steady)
}

func TestPermanentFailsAtOnce(t *testing.T) {
	rig.Bubble(t, rig.Returns(fmt.Errorf("wrapped: %w", onceq.Permanent(rig.ErrBoom))), func(r *rig.Rig) {
		r.Send("a")
		r.RunFor(time.Second)
		r.WantStatus("a", dedupe.Failed)
		r.Letter(onceq.ClassPermanent)
		r.WantQueue(0)
		r.WantOutcomes("a", "failed")
	})
}

func TestRetryAfter(t *testing.T) {
	for _, c := range []struct{ ask, want time.Duration }{
		{42 * time.Second, 42 * time.Second}, {-time.Second, 0}, {0, 0}, {1 << 62, 365 * 24 * time.Hour},
	} {
		n := 0
		h := func(context.Context, *onceq.Job) error {
			if n++; n == 1 {
				return onceq.RetryAfter(c.ask, rig.ErrBoom)
			}
			return nil
		}
		rig.Bubble(t, h, func(r *rig.Rig) {
			r.Send("a")
			r.RunFor(time.Second)
			if got := r.Q.Delays("a"); !slices.Equal(got, []time.Duration{c.want}) {
				t.Errorf("RetryAfter(%v) was nacked for %v, want %v", c.ask, got, c.want)
			}
			if rec := r.Record("a"); c.want > time.Second && (rec.Attempt != 1 || rec.Status != dedupe.Released) {
				t.Errorf("RetryAfter(%v) left %+v", c.ask, rec)
			}
		})
	}
	rig.Bubble(t, rig.Returns(onceq.RetryAfter(time.Second, rig.ErrBoom)), func(r *rig.Rig) {
		r.Send("a")
		r.RunFor(time.Minute)
		r.Letter(onceq.ClassError)
	}, rig.Most(2))
}

func TestPanicIsAnError(t *testing.T) {
	for name, h := range map[string]onceq.HandlerFunc{
		"panic":     func(context.Context, *onceq.Job) error { panic(rig.ErrBoom) },
		"panic nil": func(context.Context, *onceq.Job) error { panic(nil) },
		"bad panic": func(context.Context, *onceq.Job) error { panic(badError{}) },
		"Goexit":    func(context.Context, *onceq.Job) error { runtime.Goexit(); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			rig.Bubble(t, h, func(r *rig.Rig) {
				r.Send("a", "b", "c")
				r.RunFor(time.Minute)
				for _, k := range []string{"a", "b", "c"} {
					if n := r.Seen.Started(k); n != 3 {
						t.Errorf("%q ran %d times, want 3: the one goroutine for handlers must go on", k, n)
					}
				}
				ms := r.Letters()
				if len(ms) != 3 || ms[0].Meta.Dead.Class != onceq.ClassPanic {
					t.Fatalf("letters %+v", ms)
				}
				if text := ms[0].Meta.Dead.LastErr; name != "Goexit" && !strings.Contains(text, "verdict_test.go") {
					t.Errorf("the letter's error has no stack: %s", text)
				}
				r.WantQueue(0)
			}, rig.Most(3), rig.Steady, rig.With(func(c *rig.Setup) { c.Concurrency = 1 }))
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
	rig.Bubble(t, rig.Returns(badError{}), func(r *rig.Rig) {
		r.Send("a", "b")
		r.RunFor(time.Minute)
		for _, m := range r.Letters() {
			if m.Meta.Dead.Class != onceq.ClassPanic && m.Meta.Dead.Class != onceq.ClassError {
				t.Errorf("the letter's class is %q", m.Meta.Dead.Class)
			}
		}
		r.WantStatus("a", dedupe.Failed)
		r.WantStatus("b", dedupe.Failed)
		r.WantQueue(0)
	}, rig.Most(2), rig.Steady)
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
		{"error", rig.ErrBoom, dedupe.Released, 0, []time.Duration{0}, "", "handed-back"},
		{"retry after", onceq.RetryAfter(time.Hour, rig.ErrBoom), dedupe.Released, 0, []time.Duration{0}, "", "handed-back"},
		{"nil", nil, dedupe.Done, 1, nil, "", "done"},
		{"permanent", onceq.Permanent(rig.ErrBoom), dedupe.Failed, 1, nil, onceq.ClassPermanent, "failed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			rig.Bubble(t, rig.WhenCut(c.err), func(r *rig.Rig) {
				r.Send("a")
				r.Start()
				rig.Pass(time.Second)
				begin := time.Now()
				if err := r.Stop(); err != nil {
					t.Errorf("Run: %v", err)
				}
				if took := time.Since(begin); took != onceq.DefaultDrainTimeout {
					t.Errorf("the drain took %v, want %v", took, onceq.DefaultDrainTimeout)
				}
				rec := r.Record("a")
				if rec.Status != c.status || rec.Attempt != c.attempt {
					t.Errorf("status %v, attempt %d, want %v, %d", rec.Status, rec.Attempt, c.status, c.attempt)
				}
				if got := r.Q.Delays("a"); !slices.Equal(got, c.delays) {
					t.Errorf("nacked with %v, want %v", got, c.delays)
				}
				if c.letter != "" {
					r.Letter(c.letter)
				}
				r.NoLetters()
				r.WantOutcomes("a", c.outcome)
			}, rig.Most(1))
		})
	}
}

func TestErrorBeforeTheCutIsCounted(t *testing.T) {
	h := func(context.Context, *onceq.Job) error {
		rig.Takes(10 * time.Second)
		return rig.ErrBoom
	}
	synctest.Test(t, func(t *testing.T) {
		r := rig.New(t, h, rig.Steady)
		r.Send("a")
		r.Start()
		<-time.After(time.Second)
		if err := r.Stop(); err != nil {
			t.Fatal(err)
		}
		if rec := r.Record("a"); rec.Status != dedupe.Released || rec.Attempt != 1 {
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
		{"error after the drain's cut", rig.WhenCut(rig.ErrBoom), true},
		{"permanent after the drain's cut", rig.WhenCut(onceq.Permanent(rig.ErrBoom)), true},
		{"nil after the drain's cut", rig.WhenCut(nil), false},
		{"plain error", rig.Returns(rig.ErrBoom), false},
		{"nil", rig.Returns(nil), false},
	} {
		t.Run(c.name, func(t *testing.T) {
			rig.Bubble(t, c.h, func(r *rig.Rig) {
				r.Send("a")
				r.RunFor(500 * time.Millisecond)
				rec := r.Record("a")
				if !c.parks {
					if rec.Status == dedupe.Parked {
						t.Errorf("parked: %+v", rec)
					}
					r.NoLetters()
					return
				}
				if rec.Status != dedupe.Parked || rec.Attempt != 1 || !rec.Started {
					t.Errorf("the record is %+v", rec)
				}
				if d := r.Letter(onceq.ClassInterrupted).Meta.Dead; d.Fence != rec.Fence || d.LastErr == "" {
					t.Errorf("the letter is %+v", d)
				}
				r.WantOutcomes("a", "parked")
				r.WantQueue(0)
				if n := r.Seen.Started("a"); n != 1 {
					t.Errorf("%d runs, want 1", n)
				}
			}, rig.Parks, rig.Steady)
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
	limit := rig.With(func(c *rig.Setup) { c.Defaults.Timeout = 3 * time.Second })
	rig.Bubble(t, h, func(r *rig.Rig) {
		r.Send("nil", "err")
		r.RunFor(time.Minute)
		r.WantStatus("nil", dedupe.Done)
		r.Letter(onceq.ClassTimeout)
		if n := r.Seen.Started("err"); n != 2 {
			t.Errorf("%d attempts, want 2: a timeout counts", n)
		}
		for _, rec := range r.Seen.Of("err") {
			if rec.Process != 3*time.Second {
				t.Errorf("the handler ran for %v, want 3s", rec.Process)
			}
		}
	}, limit, rig.Most(2), rig.Steady)
	rig.Bubble(t, h, func(r *rig.Rig) {
		r.Send("err")
		r.RunFor(time.Minute)
		r.Letter(onceq.ClassInterrupted)
		r.WantStatus("err", dedupe.Parked)
	}, limit, rig.Most(2), rig.Parks)
}
