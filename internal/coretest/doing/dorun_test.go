package doing

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/coretest/rig"
)

func TestDoPanicGoesOn(t *testing.T) {
	for _, c := range []struct {
		name    string
		options []rig.Option
		status  dedupe.Status
		class   string
	}{
		{"rerun", nil, dedupe.Released, onceq.ClassPanic},
		{"park", []rig.Option{rig.Parks}, dedupe.Parked, onceq.ClassInterrupted},
	} {
		for _, goexit := range []bool{false, true} {
			t.Run(fmt.Sprint(c.name, goexit), func(t *testing.T) {
				rig.BubbleDo(t, func(d *rig.Doer) {
					var got any
					var stack string
					ended := make(chan struct{})
					go func() {
						defer close(ended)
						defer func() {
							got = recover()
							stack = trace()
							if rec := d.Record("a"); rec.Status != c.status || rec.ErrClass != c.class {
								t.Errorf("when it goes on, the record is %+v", rec)
							}
						}()
						d.Do("a", nil, func(context.Context, *onceq.Job) (int, error) { return failDeepInside(goexit) })
						t.Error("it did not go on")
					}()
					<-ended
					if !goexit && (got != rig.ErrBoom || !strings.Contains(stack, "failDeepInside")) {
						t.Errorf("the caller got %v from %s", got, stack)
					}
					if goexit && got != nil {
						t.Errorf("the caller got %v", got)
					}
					v, err := d.Do("a", nil, rig.Gives(5, nil))
					if c.status == dedupe.Parked {
						d.Wants("after", v, err, 0, &onceq.ParkedError{})
					} else {
						d.Wants("after", v, err, 5, nil)
					}
				}, c.options...)
			})
		}
	}
}

func failDeepInside(goexit bool) (int, error) {
	if goexit {
		runtime.Goexit()
	}
	panic(rig.ErrBoom)
}

func trace() string {
	b := make([]byte, 1<<16)
	return string(b[:runtime.Stack(b, false)])
}

// The caller's context ends while f runs: f learns why, and what it says counts.
func TestDoCutOffByTheCaller(t *testing.T) {
	gone := errors.New("the client is gone")
	for _, c := range []struct {
		name   string
		park   bool
		says   error
		status dedupe.Status
		wantV  int
		want   error
	}{
		{"nil is done", false, nil, dedupe.Done, 1, nil},
		{"nil is done, park", true, nil, dedupe.Done, 1, nil},
		{"an error", false, rig.ErrBoom, dedupe.Released, 1, rig.ErrBoom},
		{"an error, park", true, rig.ErrBoom, dedupe.Parked, 1, &onceq.ParkedError{}},
		{"permanent", false, onceq.Permanent(rig.ErrBoom), dedupe.Failed, 1, rig.ErrBoom},
	} {
		t.Run(c.name, func(t *testing.T) {
			rig.BubbleDo(t, func(d *rig.Doer) {
				ctx, cancel := context.WithCancelCause(d.Context())
				go func() { rig.Takes(time.Second); cancel(gone) }()
				o := &onceq.DoOptions{}
				if c.park {
					o.Interrupted = dedupe.Park
				}
				v, err := onceq.Do(ctx, d.P, dedupe.Key{Key: "a"}, o, func(ctx context.Context, _ *onceq.Job) (int, error) {
					<-ctx.Done()
					if context.Cause(ctx) != gone {
						t.Errorf("the cause is %v", context.Cause(ctx))
					}
					rig.Takes(time.Second)
					return 1, c.says
				})
				d.Wants("the call", v, err, c.wantV, c.want)
				if c.says != nil && !errors.Is(err, rig.ErrBoom) {
					t.Errorf("f's error is not in %v", err)
				}
				d.WantStatus("a", c.status)
				if rec := d.Record("a"); c.status == dedupe.Released && (rec.Attempt != 1 || !strings.Contains(rec.LastErr, "gone")) {
					t.Errorf("the record is %+v", rec)
				}
			})
		})
	}
}

// The context that a handler of a worker passes on may have ended by one of the core's own causes,
// which are not this job's.
func TestDoCutOffByAnothersCause(t *testing.T) {
	for _, cause := range []error{onceq.ErrLeaseLost, onceq.ErrDraining, onceq.ErrTimeout, lostCause(t)} {
		rig.BubbleDo(t, func(d *rig.Doer) {
			ctx, cancel := context.WithCancelCause(d.Context())
			v, err := onceq.Do(ctx, d.P, dedupe.Key{Key: "a"}, nil, func(ctx context.Context, _ *onceq.Job) (int, error) {
				cancel(cause)
				<-ctx.Done()
				return 0, context.Cause(ctx)
			})
			d.Wants("the call", v, err, 0, cause)
			if rec := d.Record("a"); rec.Status != dedupe.Released || rec.Attempt != 1 || rec.ErrClass != onceq.ClassError {
				t.Errorf("after %v the record is %+v", cause, rec)
			}
		})
	}
}

// lostCause is the very cause with which a worker ends the context of a job whose claim is
// another's.
func lostCause(t *testing.T) (cause error) {
	t.Helper()
	rig.BubbleDo(t, func(d *rig.Doer) {
		go func() { rig.Takes(time.Second); d.Store.Steal(t, "x") }()
		d.Do("x", nil, func(ctx context.Context, _ *onceq.Job) (int, error) {
			<-ctx.Done()
			cause = context.Cause(ctx)
			return 0, nil
		})
	})
	if !errors.Is(cause, onceq.ErrLeaseLost) {
		t.Fatal("the cause is", cause)
	}
	return cause
}

func TestDoTimeout(t *testing.T) {
	rig.BubbleDo(t, func(d *rig.Doer) {
		ctx, cancel := context.WithTimeout(d.Context(), time.Hour)
		defer cancel()
		for _, o := range []*onceq.DoOptions{nil, {Timeout: 2 * time.Second}} {
			begin := time.Now()
			_, err := onceq.Do(ctx, d.P, dedupe.Key{Key: "a"}, o, func(ctx context.Context, _ *onceq.Job) (int, error) {
				if end, ok := ctx.Deadline(); !ok || end.Sub(begin) > 5*time.Second {
					t.Errorf("the deadline is %v", end.Sub(begin))
				}
				<-ctx.Done()
				return 0, context.Cause(ctx)
			})
			d.Wants("the call", 0, err, 0, onceq.ErrTimeout)
			want := 5 * time.Second
			if o != nil {
				want = o.Timeout
			}
			if took := time.Since(begin); took != want {
				t.Errorf("it took %v, want %v", took, want)
			}
			if rec := d.Record("a"); rec.Status != dedupe.Released || rec.ErrClass != onceq.ClassTimeout {
				t.Errorf("the record is %+v", rec)
			}
		}
	}, rig.With(func(c *rig.Setup) { c.Defaults.Timeout = 5 * time.Second }))
}

// The caller's deadline is f's where it is the earlier one, and f has the values of the caller's
// context.
func TestDoContext(t *testing.T) {
	type name struct{}
	rig.BubbleDo(t, func(d *rig.Doer) {
		ctx, cancel := context.WithTimeout(context.WithValue(d.Context(), name{}, "value"), time.Second)
		defer cancel()
		_, err := onceq.Do(ctx, d.P, dedupe.Key{Key: "a"}, &onceq.DoOptions{Timeout: time.Minute}, func(in context.Context, j *onceq.Job) (int, error) {
			want, _ := ctx.Deadline()
			if end, ok := in.Deadline(); !ok || !end.Equal(want) || in.Value(name{}) != "value" {
				t.Errorf("the deadline is %v, want %v; the value %v", end, want, in.Value(name{}))
			}
			if j.EffectKey("pay") != onceq.EffectKey(rig.Key("a"), "pay") || j.ID() != "a" || j.Key() != rig.Key("a") || j.Fence() == 0 || j.Message == nil {
				t.Errorf("the job is %+v", j)
			}
			<-in.Done()
			return 0, context.Cause(in)
		})
		d.Wants("the call", 0, err, 0, context.DeadlineExceeded)
	})
}

func TestDoIsRenewed(t *testing.T) {
	rig.BubbleDo(t, func(d *rig.Doer) {
		go func() {
			other := d.Processor(d.Store)
			for range 20 {
				rig.Takes(30 * time.Second)
				if _, err := onceq.Do(d.Context(), other, dedupe.Key{Key: "a"}, nil, d.MustNot); !isInProgress(err) {
					t.Errorf("in between: %v", err)
				}
			}
		}()
		v, err := d.Do("a", nil, slow(1, 11*time.Minute))
		d.Wants("the call", v, err, 1, nil)
		if r := d.Seen.Of("a"); r[len(r)-1].Beats < 40 {
			t.Errorf("%d beats", r[len(r)-1].Beats)
		}
	})
}

func isInProgress(err error) bool {
	var e *onceq.InProgressError
	return errors.As(err, &e)
}

func TestDoLosesItsClaim(t *testing.T) {
	for _, says := range []error{nil, rig.ErrBoom} {
		rig.BubbleDo(t, func(d *rig.Doer) {
			go func() { rig.Takes(15 * time.Second); d.Store.Steal(t, "a") }()
			v, err := d.Do("a", nil, func(ctx context.Context, _ *onceq.Job) (int, error) {
				<-ctx.Done()
				if !errors.Is(context.Cause(ctx), onceq.ErrLeaseLost) {
					t.Errorf("the cause is %v", context.Cause(ctx))
				}
				return 9, says
			})
			d.Wants("the call", v, err, 9, &onceq.UnsettledError{})
			if !errors.Is(err, onceq.ErrLeaseLost) || says != nil && !errors.Is(err, says) {
				t.Errorf("the error is %v", err)
			}
			if rec := d.Record("a"); rec.Owner != "another" {
				t.Errorf("the record is %+v", rec)
			}
			d.WantOutcomes("a", "lease-lost")
		})
	}
}

// A run that goes on without its claim must not stand for the key.
func TestDoAfterAnotherLostItsClaim(t *testing.T) {
	rig.BubbleDo(t, func(d *rig.Doer) {
		go func() {
			_, err := d.Do("a", nil, slow(1, time.Hour)) // deaf
			if !errors.Is(err, onceq.ErrLeaseLost) {
				t.Errorf("the deaf one: %v", err)
			}
		}()
		rig.Pass(time.Second)
		waited := make(chan struct{})
		go func() {
			defer close(waited)
			v, err := d.Do("a", &onceq.DoOptions{Wait: 10 * time.Minute}, d.MustNot)
			d.Wants("one that waited before", v, err, 5, nil)
		}()
		rig.Pass(time.Second)
		rec := d.Record("a")
		if _, err := d.Store.Forget(d.Context(), []dedupe.Forgotten{{Key: rec.Key, Fence: rec.Fence, Force: true}}); err != nil {
			t.Fatal(err)
		}
		q := d.Store.Occupy(t, "a", 5*time.Minute, dedupe.Rerun)
		rig.Pass(30 * time.Second)
		d.Store.EndClaim(t, q, dedupe.Settlement{To: dedupe.Done, Result: []byte("5")})
		v, err := d.Do("a", nil, d.MustNot)
		d.Wants("while the deaf one runs", v, err, 5, nil)
		begin := time.Now()
		<-waited
		if took := time.Since(begin); took > 30*time.Second {
			t.Errorf("it waited %v more", took)
		}
		rig.Pass(time.Hour)
	})
}
