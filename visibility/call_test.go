package visibility

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

	"github.com/onceq/onceq/broker"
)

func TestCallTimeout(t *testing.T) {
	for _, c := range []struct{ set, want time.Duration }{
		{0, 5 * time.Second}, {2 * time.Second, 2 * time.Second}, {time.Hour, timeout},
	} {
		synctest.Test(t, func(t *testing.T) {
			var got []time.Duration
			r := newRig(t, Options[int]{CallTimeout: c.set, Revives: true}, func(ctx context.Context, _ []int) error {
				from := time.Now()
				<-ctx.Done()
				mu.Lock()
				defer mu.Unlock()
				got = append(got, time.Since(from))
				return ctx.Err()
			})
			r.hold(1, timeout)
			wait(2 * timeout)
			if len(got) == 0 || slices.Min(got) != c.want || slices.Max(got) != c.want {
				t.Errorf("CallTimeout %v: calls of %v", c.set, got)
			}
		})
	}
}

// A call that ignores its context holds one of sixteen, and its own leases are reported in time.
func TestHungCallStopsNoOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		free := make(chan struct{})
		r := newRig(t, Options[int]{MaxBatch: 1, Revives: true}, func(_ context.Context, ls []int) error {
			if ls[0] < 15 {
				<-free
			}
			return nil
		})
		r.Hold(held(20)...)
		wait(5 * time.Minute)
		told := r.told()
		if len(told) != 15 {
			t.Errorf("%d told, want 15", len(told))
		}
		for _, w := range told {
			if w.l >= 15 || !errors.Is(w.err, ErrUnanswered) || w.at != timeout-margin {
				t.Errorf("told %v", w)
			}
		}
		for l := 15; l < 20; l++ {
			if n := len(r.beatsOf(l)); n < 30 {
				t.Errorf("lease %d: %d beats through the one call that is left", l, n)
			}
		}
		close(free)
		wait(time.Minute)
		for l := range 20 {
			if at := r.beatsOf(l); at[len(at)-1] < r.since()-interval {
				t.Errorf("lease %d is not beaten any more", l)
			}
		}
		r.silent(t)
	})
}

func TestEveryCallHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		free := make(chan struct{})
		r := newRig(t, Options[int]{MaxBatch: 1, Revives: true}, func(context.Context, []int) error {
			<-free
			return nil
		})
		r.Hold(held(30)...)
		wait(5 * time.Minute)
		told := r.told()
		for _, w := range told {
			if !errors.Is(w.err, ErrUnanswered) || w.at != timeout-margin {
				t.Errorf("told %v", w)
			}
		}
		if len(told) != 30 || len(r.calls) != 16 {
			t.Errorf("%d told, %d calls", len(told), len(r.calls))
		}
		close(free)
		wait(time.Minute)
		for l := range 30 {
			if len(r.beatsOf(l)) < 3 {
				t.Errorf("lease %d: beats at %v", l, r.beatsOf(l))
			}
		}
		r.silent(t)
	})
}

func TestExtenderPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Options[int]{Revives: true}, func(context.Context, []int) error { panic("boom") })
		r.Hold(held(3)...)
		wait(5 * time.Minute)
		for l := range 3 {
			if len(r.beatsOf(l)) < 20 {
				t.Errorf("lease %d: beats at %v", l, r.beatsOf(l))
			}
		}
		for _, w := range r.told() {
			if !errors.Is(w.err, ErrUnanswered) {
				t.Errorf("told %v", w)
			}
		}
		r.answer(nil)
		wait(time.Minute)
		r.silent(t)

		err := r.extendBy(func(context.Context, []int) error { panic("boom") })
		if err == nil || !strings.Contains(err.Error(), "boom") || !strings.Contains(err.Error(), "call_test.go") {
			t.Errorf("the error does not tell of the panic, and where it was: %v", err)
		}
	})
}

// What a batch within an entry says is about entries of its own. Nobody knows which, so the lease
// is not lost by it.
func TestBatchWithinAnAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Options[int]{Revives: true}, func(_ context.Context, ls []int) error {
			errs := make([]error, len(ls))
			for i := range errs {
				errs[i] = &broker.BatchError{Errs: []error{nil, broker.ErrReceiptExpired}}
			}
			return &broker.BatchError{Errs: errs}
		})
		r.Hold(held(1)...)
		wait(5 * time.Minute)
		ws := r.told()
		for _, w := range ws {
			if errors.Is(w.err, broker.ErrReceiptExpired) || !errors.Is(w.err, ErrUnanswered) {
				t.Errorf("told %v", w)
			}
		}
		if len(ws) == 0 || r.Len() != 1 {
			t.Errorf("told %v, %d held", ws, r.Len())
		}
	})
}

func (r *rig) extendBy(x Extender[int]) error {
	r.answer(x)
	defer r.answer(nil)
	return r.Manager.extend([]int{1})
}

// An extender that ends its goroutine, as a failed test's fake does, is one that does not answer.
func TestExtenderEndsItsGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Options[int]{MaxBatch: 1, MaxCalls: 2}, func(context.Context, []int) error {
			runtime.Goexit()
			return nil
		})
		hs := held(10)
		r.Hold(hs...)
		wait(interval)
		for l := range 10 {
			if len(r.beatsOf(l)) == 0 {
				t.Errorf("lease %d was not beaten", l)
			}
		}
		r.answer(nil)
		wait(5 * time.Minute)
		r.silent(t)
		if err := r.Quiesce(t.Context(), hs...); err != nil || r.Manager.calls != 0 {
			t.Errorf("%v; %d calls", err, r.Manager.calls)
		}
	})
}

// An answer that is too short says nothing of the leases beyond its end, even where it says the
// worst, or the best, of the others.
func TestShortAnswer(t *testing.T) {
	for _, err := range []error{broker.ErrReceiptExpired, ErrLater, errTransient, nil} {
		t.Run(fmt.Sprint(err), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				answer := &broker.BatchError{Errs: []error{err}}
				r := newRig(t, Options[int]{Revives: true}, func(context.Context, []int) error {
					defer func() { answer = &broker.BatchError{} }()
					return fmt.Errorf("driver: %w", answer)
				})
				r.Hold(held(2)...)
				wait(timeout - margin)
				second := word{r.beats[1].l, timeout - margin, ErrUnanswered}
				switch first := r.beats[0]; {
				case errors.Is(err, broker.ErrReceiptExpired):
					r.want(t, word{first.l, first.at, err}, second)
				case err == errTransient, err == ErrLater:
					if w := r.told(); len(w) != 2 || w[0].err != ErrUnanswered || w[1].err != ErrUnanswered {
						t.Errorf("told %v", w)
					}
				default:
					r.want(t, second)
				}
			})
		})
	}
}

func TestLongAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Options[int]{}, func(context.Context, []int) error {
			return &broker.BatchError{Errs: []error{nil, errTransient, broker.ErrReceiptExpired}}
		})
		r.hold(1, timeout)
		wait(5 * time.Minute)
		r.silent(t)
	})
}

// Where calls are scarce, the nearest deadline goes first.
func TestScarceCallsGoByDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Options[int]{MaxBatch: 1, MaxCalls: 1}, takes(time.Second, nil))
		r.hold(0, margin) // is beaten at once, and takes the call
		wait(1)
		for i, left := range []time.Duration{4, 2, 5, 3} {
			r.hold(10+i, left*time.Second)
		}
		last := r.hold(20, margin)
		wait(1)
		r.Update(last, time.Now().Add(1500*time.Millisecond))
		wait(8 * time.Second)
		var got []int
		for _, b := range r.beats[:6] {
			got = append(got, b.l)
		}
		if want := []int{0, 20, 11, 13, 10, 12}; !slices.Equal(got, want) {
			t.Errorf("beaten in the order %v, want %v", got, want)
		}
	})
}

// Leases that nobody answers for, long past their deadline, do not stand before the others.
func TestDeadLeasesDoNotStarveOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const dead = 100
		r := newRig(t, Options[int]{MaxBatch: 1, MaxCalls: 1, Revives: true}, func(_ context.Context, ls []int) error {
			<-time.After(time.Second / 10)
			if ls[0] < dead {
				return errTransient
			}
			return nil
		})
		r.Hold(held(dead)...) // each call takes 100 ms: they alone take all calls
		wait(5 * time.Minute)
		r.told()
		for l := dead; l < dead+10; l++ {
			r.hold(l, timeout)
		}
		wait(30 * time.Minute)
		for _, w := range r.told() {
			t.Errorf("told %v", w)
		}
		if n := len(r.beatsOf(0)); n < 100 {
			t.Errorf("a dead lease was beaten %d times", n)
		}
	})
}
