package visibility

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceq/onceq/broker"
)

func TestBeatsAreAThirdApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Options[int]{}, nil)
		h := r.hold(1, timeout)
		for range 600 {
			wait(time.Second)
			if left := time.Until(r.Deadline(h)); left < timeout-interval {
				t.Fatalf("at %v: %v left", r.since(), left)
			}
		}
		g := gaps(r.beatsOf(1))
		for _, gap := range g {
			between(t, "time between beats", gap, interval*7/8, interval)
		}
		if slices.Max(g)-slices.Min(g) < interval/32 {
			t.Errorf("beats without jitter: from %v to %v apart", slices.Min(g), slices.Max(g))
		}
		r.silent(t)
		r.Release(h)
		n := len(r.beatsOf(1))
		wait(time.Hour)
		if got := len(r.beatsOf(1)); got != n {
			t.Errorf("%d beats after the release", got-n)
		}
	})
}

// The new deadline is counted from before the call, so the time that the answer took adds nothing.
func TestDeadlineIsCountedFromTheSending(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Options[int]{}, takes(4*time.Second, nil))
		h := r.hold(1, timeout)
		wait(interval + 4*time.Second)
		at := r.beatsOf(1)
		if got, want := r.deadline(h), at[0]+timeout; got != want {
			t.Errorf("deadline %v, want %v", got, want)
		}
		wait(20 * time.Second)
		at = r.beatsOf(1)
		between(t, "from one sending to the next", at[1]-at[0], interval*7/8, interval)
	})
}

func TestFailedBeatsAreRepeated(t *testing.T) {
	for name, err := range map[string]error{
		"plain": errTransient, "by position": &broker.BatchError{Errs: []error{errTransient}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, Options[int]{}, nil)
				r.hold(1, timeout)
				for range 2 { // the pauses begin anew after an answer
					r.answer(takes(0, err))
					n := len(r.beatsOf(1))
					for len(r.beatsOf(1)) < n+4 {
						wait(time.Second / 8)
					}
					want := []time.Duration{interval / 8, interval / 4, interval / 2}
					if got := gaps(r.beatsOf(1))[n+1:]; !slices.Equal(got, want) {
						t.Errorf("pauses of %v, want %v", got, want)
					}
					r.answer(nil)
					wait(interval / 2)
					if got := gaps(r.beatsOf(1)); got[len(got)-1] != interval/2 {
						t.Errorf("last pause %v, want %v", got[len(got)-1], interval/2)
					}
				}
				r.silent(t)
			})
		})
	}
}

// How often the earlier hold's beats failed is not the next one's concern.
func TestFailuresAreForgottenWithTheHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Options[int]{Revives: true}, fails)
		h := r.hold(1, timeout)
		wait(timeout)
		r.Release(h)
		h.Lease, h.Deadline = 2, time.Now().Add(timeout)
		r.Hold(h)
		wait(timeout)
		if got := gaps(r.beatsOf(2)); got[1] != interval/8 {
			t.Errorf("pauses of %v", got[1:])
		}
	})
}

func TestLostLeaseIsDroppedAndReported(t *testing.T) {
	custom := errors.New("gone")
	for _, c := range []struct {
		err    error
		isLost func(error) bool
	}{
		{fmt.Errorf("driver: %w", broker.ErrReceiptExpired), nil},
		{custom, func(err error) bool { return errors.Is(err, custom) }},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, Options[int]{IsLost: c.isLost}, only(2, c.err))
			r.hold(1, timeout)
			h := r.hold(2, timeout)
			r.hold(3, timeout)
			wait(2 * time.Minute)
			at := r.beatsOf(2)
			if len(at) != 1 || len(r.beatsOf(1)) < 10 || len(r.beatsOf(3)) < 10 || r.Len() != 2 {
				t.Fatalf("%d beats of the lost lease, %d and %d of the others, %d held",
					len(at), len(r.beatsOf(1)), len(r.beatsOf(3)), r.Len())
			}
			r.want(t, word{2, at[0], c.err})
			// It may come again.
			r.answer(nil)
			h.Deadline = time.Now().Add(timeout)
			r.Hold(h)
			wait(interval)
			if len(r.beatsOf(2)) != 2 {
				t.Error("held again, and not beaten")
			}
		})
	}
}

// A plain error that means lost is the answer of every lease of the call.
func TestPlainErrorMayLoseAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Options[int]{}, takes(0, broker.ErrReceiptExpired))
		r.Hold(held(5)...)
		wait(interval)
		if r.Len() != 0 || len(r.told()) != 5 {
			t.Errorf("%d of 5 still held", r.Len())
		}
	})
}

func held(n int) []*Held[int] {
	hs := make([]*Held[int], n)
	for i := range hs {
		hs[i] = &Held[int]{Lease: i, Deadline: time.Now().Add(timeout)}
	}
	return hs
}

func TestUnansweredIsReportedOnceBeforeTheDeadline(t *testing.T) {
	for name, x := range map[string]Extender[int]{
		"errors": fails,
		"hangs until its context ends": func(ctx context.Context, _ []int) error {
			<-ctx.Done()
			return ctx.Err()
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, Options[int]{Revives: true}, x)
				h := r.hold(1, timeout)
				wait(5 * time.Minute)
				r.want(t, word{1, timeout - margin, ErrUnanswered})
				if n := len(r.beatsOf(1)); n < 20 {
					t.Errorf("only %d beats: they must go on", n)
				}
				r.answer(nil)
				wait(5 * time.Minute)
				if left := time.Until(r.Deadline(h)); left < timeout-interval {
					t.Errorf("not recovered: %v left", left)
				}
				r.silent(t)
				r.answer(x) // another outage
				from := r.deadline(h)
				wait(5 * time.Minute)
				r.want(t, word{1, from - margin, ErrUnanswered})
				if r.Len() != 1 {
					t.Error("no longer held")
				}
			})
		})
	}
}

// A lease whose answer comes later is neither prolonged nor lost meanwhile, whatever else the
// answer wraps. It is beaten as usual.
func TestLater(t *testing.T) {
	for name, x := range map[string]Extender[int]{
		"plain":       takes(0, ErrLater),
		"by position": only(1, fmt.Errorf("%w: %w", ErrLater, errTransient)),
		"with a loss": only(1, fmt.Errorf("%w: %w", ErrLater, broker.ErrReceiptExpired)),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, Options[int]{Revives: true}, x)
				h := r.hold(1, timeout)
				wait(interval + time.Second)
				if got := r.deadline(h); got != timeout {
					t.Errorf("deadline %v, want %v", got, timeout)
				}
				r.Update(h, time.Now().Add(timeout)) // the answer
				wait(timeout - margin - 1)
				r.silent(t)
				wait(1)
				r.want(t, word{1, interval + time.Second + timeout - margin, ErrUnanswered})
				for _, gap := range gaps(r.beatsOf(1)) {
					between(t, "gap", gap, interval*7/8, interval)
				}
			})
		})
	}
}
