package visibility

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/must"
)

func TestTimeouts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Options[int]{}, nil)
		h := r.hold(1, timeout)
		at := func(d time.Duration) time.Time { return r.start.Add(d) }

		r.SetTimeout(h, at(3*time.Second))
		wait(2 * time.Second)
		r.SetTimeout(h, at(50*time.Second)) // later
		wait(20 * time.Second)
		r.silent(t)
		r.SetTimeout(h, at(40*time.Second)) // earlier
		wait(time.Minute)
		r.want(t, word{1, 40 * time.Second, nil})

		now := r.since()
		r.SetTimeout(h, at(now+time.Second))
		r.SetTimeout(h, time.Time{})
		wait(time.Minute)
		r.silent(t)

		now = r.since()
		r.SetTimeout(h, at(-time.Second)) // at once
		synctest.Wait()
		r.want(t, word{1, now, nil})

		r.SetTimeout(h, at(now+time.Second))
		r.Release(h)
		r.SetTimeout(h, at(now+time.Second)) // of one that is not held
		h.Deadline = time.Now().Add(timeout)
		r.Hold(h) // which begins without
		wait(time.Minute)
		r.silent(t)
	})
}

func TestTimeoutDuringABeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Options[int]{}, takes(4*time.Second, nil))
		h := r.hold(1, timeout)
		r.SetTimeout(h, r.start.Add(interval+time.Second))
		wait(interval)
		if n := len(r.calls); n != 1 {
			t.Fatalf("%d beats", n)
		}
		wait(time.Second)
		r.want(t, word{1, interval + time.Second, nil})
		wait(time.Minute)
		r.silent(t)
	})
}

func TestUpdate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Options[int]{Revives: true}, fails)
		h := r.hold(1, timeout)
		at := func(d time.Duration) time.Time { return r.start.Add(d) }

		r.Update(h, at(time.Hour)) // later: told later
		if got := r.deadline(h); got != time.Hour {
			t.Errorf("deadline %v", got)
		}
		wait(time.Hour)
		r.want(t, word{1, time.Hour - margin, ErrUnanswered})

		r.Update(h, at(time.Hour+timeout)) // renewed by other means: another outage may be told
		wait(timeout)
		r.want(t, word{1, time.Hour + timeout - margin, ErrUnanswered})

		r.answer(nil)
		wait(time.Minute)
		n, now := len(r.beatsOf(1)), r.since()
		r.Update(h, at(now+6*time.Second)) // earlier: beaten earlier
		wait(2 * time.Second)
		if len(r.beatsOf(1)) != n+1 {
			t.Errorf("%d beats after the deadline was moved near", len(r.beatsOf(1))-n)
		}
		r.silent(t)

		r.Release(h)
		r.Update(h, at(0))
		if got := r.deadline(h); got != timeout {
			t.Errorf("deadline %v of one that is not held, want the holder's own", got)
		}
		wait(time.Minute)
		r.silent(t)
	})
}

func TestUpdateNeverPutsABeatOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Options[int]{}, nil)
		h := r.hold(1, 12*time.Second)
		wait(time.Second)
		r.Update(h, time.Now().Add(timeout))
		wait(3 * time.Second)
		if got := r.beatsOf(1); len(got) != 1 || got[0] != 4*time.Second {
			t.Errorf("beats at %v", got)
		}
	})
}

// An answer never takes back what the holder has from elsewhere.
func TestAnswerNeverShortensALease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Options[int]{}, nil)
		h := r.hold(1, time.Hour)
		wait(time.Minute)
		if got := r.deadline(h); got != time.Hour {
			t.Errorf("deadline %v", got)
		}
		r.answer(fails)
		wait(time.Hour)
		r.want(t, word{1, time.Hour - margin, ErrUnanswered})
	})
}

func TestHoldAndReleaseTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Options[int]{}, nil)
		h := &Held[int]{Lease: 1, Deadline: time.Now().Add(timeout)}
		r.Release(h) // not held
		if err := r.Quiesce(t.Context(), h); err != nil {
			t.Error(err)
		}
		r.Hold(h, h)
		r.SetTimeout(h, r.start.Add(time.Minute))
		r.Hold(h) // changes nothing
		wait(time.Minute)
		r.want(t, word{1, time.Minute, nil})
		if n := len(r.beatsOf(1)); n > 7 || r.Len() != 1 {
			t.Errorf("%d beats, %d held", n, r.Len())
		}
		r.Release(h, h)
		if r.Len() != 0 {
			t.Errorf("%d held", r.Len())
		}
	})
}

func TestCallbacksMayCallTheManager(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var m *Manager[*Held[int]]
		var told, timeouts int
		again := func(h *Held[*Held[int]]) {
			m.Release(h)
			h.Deadline = time.Now().Add(timeout)
			m.Hold(h)
			m.SetTimeout(h, time.Now().Add(time.Second))
			m.Update(h, time.Now().Add(timeout))
			_, _ = m.Len(), m.Deadline(h)
		}
		var h Held[*Held[int]]
		m = must.Get(New(takes2, Options[*Held[int]]{
			Timeout: timeout,
			IsLost: func(err error) bool {
				_ = m.Len()
				return errors.Is(err, broker.ErrReceiptExpired)
			},
			OnLost:    func(*Held[int], error) { told++; again(&h) },
			OnTimeout: func(*Held[int]) { timeouts++; m.Release(&h); h.Deadline = time.Now().Add(timeout); m.Hold(&h) },
		}))
		h.Deadline = time.Now().Add(timeout)
		m.Hold(&h)
		wait(time.Minute)
		if told < 4 || timeouts < 4 {
			t.Errorf("told %d times, timed out %d times", told, timeouts)
		}
		m.Release(&h)
	})
}

func takes2(context.Context, []*Held[int]) error { return broker.ErrReceiptExpired }
