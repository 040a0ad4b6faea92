package visibility

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceq/onceq/broker"
)

func TestQuiesceWaitsForTheBeatInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Options[int]{}, takes(4*time.Second, nil))
		hs := held(3)
		r.Hold(hs...)
		for len(r.calls) == 0 {
			wait(time.Second / 8)
		}
		sent := r.beatsOf(0)[0]
		if err := r.Quiesce(t.Context(), hs[:2]...); err != nil {
			t.Fatal(err)
		}
		if got := r.since(); got != sent+4*time.Second {
			t.Errorf("back at %v of a beat sent at %v", got, sent)
		}
		if r.Len() != 1 {
			t.Errorf("%d held", r.Len())
		}
		now := r.since()
		if err := r.Quiesce(t.Context(), hs[:2]...); err != nil || r.since() != now {
			t.Errorf("nothing in flight: %v after %v", err, r.since()-now)
		}
		wait(5 * time.Minute)
		if n := len(r.beatsOf(0)) + len(r.beatsOf(1)); n != 2 {
			t.Errorf("%d beats after it", n-2)
		}
		if len(r.beatsOf(2)) < 20 {
			t.Error("the third lease is not beaten any more")
		}
	})
}

// The end of another call is not the end of the lease's own.
func TestQuiesceWaitsForItsOwnCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Options[int]{MaxBatch: 1}, func(_ context.Context, ls []int) error {
			<-time.After(time.Duration(ls[0]) * time.Second)
			return nil
		})
		r.hold(1, margin)
		r.hold(2, margin)
		h := r.hold(4, margin)
		wait(1)
		if err := r.Quiesce(t.Context(), h); err != nil || r.since() != 4*time.Second {
			t.Errorf("back at %v: %v", r.since(), err)
		}
	})
}

// The answer to a beat is told to nobody after its lease was released.
func TestAnswerAfterTheRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Options[int]{}, takes(4*time.Second, broker.ErrReceiptExpired))
		h := r.hold(1, timeout)
		wait(interval)
		r.Release(h)
		wait(time.Minute)
		r.silent(t)
		if n := len(r.beatsOf(1)); n != 1 || r.Len() != 0 {
			t.Errorf("%d beats, %d held", n, r.Len())
		}
	})
}

func TestQuiesceIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Options[int]{}, takes(time.Minute, nil))
		h := r.hold(1, timeout)
		wait(interval)
		tired := errors.New("tired")
		ctx, cancel := context.WithTimeoutCause(t.Context(), 2*time.Second, tired)
		defer cancel()
		if err := r.Quiesce(ctx, h); !errors.Is(err, tired) {
			t.Errorf("got %v", err)
		}
		if r.since() != interval+2*time.Second || r.Len() != 0 {
			t.Errorf("back at %v, %d held", r.since(), r.Len())
		}
		if other := r.hold(2, timeout); r.Quiesce(ctx, other) != nil {
			t.Error("nothing is in flight, and the context's end matters")
		}
	})
}

// A beat that only waits for a call is not sent any more, and nobody waits for it.
func TestQuiesceOfAWaitingBeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Options[int]{MaxBatch: 1, MaxCalls: 1}, takes(time.Minute, nil))
		hs := held(3)
		r.Hold(hs...)
		wait(interval)
		if len(r.calls) != 1 {
			t.Fatalf("%d calls", len(r.calls))
		}
		first := r.beats[0].l
		var rest []*Held[int]
		for _, h := range hs {
			if h.Lease != first {
				rest = append(rest, h)
			}
		}
		now := r.since()
		if err := r.Quiesce(t.Context(), rest[0]); err != nil || r.since() != now {
			t.Errorf("waited until %v: %v", r.since(), err)
		}
		r.Release(rest[1])
		if r.waiting.Len() != 0 {
			t.Errorf("%d beats still wait", r.waiting.Len())
		}
		wait(10 * time.Minute)
		if n := len(r.beatsOf(rest[0].Lease)) + len(r.beatsOf(rest[1].Lease)); n != 0 {
			t.Errorf("%d beats of what was released", n)
		}
	})
}

// While every call hangs, jobs come and go: nothing of them may stay.
func TestHungCallsPileUpNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Options[int]{MaxBatch: 1, MaxCalls: 2}, takes(time.Hour, nil))
		r.Hold(held(2)...)
		for range 100 {
			wait(interval)
			hs := held(10)
			r.Hold(hs...)
			wait(interval + time.Second)
			r.Release(hs...)
		}
		if r.waiting.Len() > 2 || r.leases.Len() > 2 {
			t.Errorf("%d beats wait, %d leases are held", r.waiting.Len(), r.leases.Len())
		}
	})
}

// The answer to a beat of an earlier hold says nothing of the present one, good or bad.
func TestHeldAgainDuringABeat(t *testing.T) {
	for name, err := range map[string]error{"nil": nil, "lost": broker.ErrReceiptExpired, "transient": errTransient} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, Options[int]{}, takes(4*time.Second, err))
				h := r.hold(1, timeout)
				wait(interval)
				r.Release(h)
				h.Lease, h.Deadline = 2, time.Now().Add(timeout)
				r.Hold(h)
				r.Release(h)
				r.Hold(h)
				want := r.deadline(h)
				wait(5 * time.Second)
				if r.Len() != 1 || r.deadline(h) != want {
					t.Fatalf("%d held, deadline %v, want %v", r.Len(), r.deadline(h), want)
				}
				r.answer(nil)
				wait(time.Minute)
				r.silent(t)
				at := r.beatsOf(2)
				between(t, "first beat of the second hold", at[0], interval*15/8, 2*interval)
				if len(r.beatsOf(1)) != 1 {
					t.Error("the first hold's lease was beaten again")
				}
			})
		})
	}
}

// One beat of a lease at a time: one that is due while the earlier hold's is in flight waits for
// it.
func TestOneBeatAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Options[int]{}, takes(4*time.Second, nil))
		h := r.hold(1, timeout)
		wait(interval)
		r.Release(h)
		sent := r.beatsOf(1)[0]
		h.Deadline = time.Now().Add(margin)
		r.Hold(h) // due at once
		wait(sent + 4*time.Second - 1 - r.since())
		if n := len(r.beatsOf(1)); n != 1 {
			t.Fatalf("%d beats at once", n)
		}
		wait(1)
		if n := len(r.beatsOf(1)); n != 2 {
			t.Errorf("%d beats when the first was answered", n)
		}
	})
}
