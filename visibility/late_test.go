package visibility

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// A lease is held in good time, and its beats are answered late. Its holder is told once. Where an
// answer after the deadline counts, the lease recovers. Elsewhere it is no longer held from its
// deadline on.
func TestLateAnswer(t *testing.T) {
	for _, revives := range []bool{false, true} {
		t.Run(fmt.Sprintf("revives=%v", revives), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const left = 12 * time.Second // beaten at 4 s
				r := newRig(t, Options[int]{Revives: revives}, takes(9*time.Second, nil))
				h := r.hold(1, left)
				wait(left - 1)
				r.want(t, word{1, left - margin, ErrUnanswered})
				if r.Len() != 1 {
					t.Fatal("dropped before its deadline")
				}
				wait(1)
				if got := r.Len() == 1; got != revives {
					t.Errorf("held at its deadline: %v", got)
				}
				wait(time.Second)
				if got, want := r.deadline(h), 4*time.Second+timeout; revives && got != want {
					t.Errorf("deadline %v, want %v", got, want)
				}
				r.answer(nil)
				wait(5 * time.Minute)
				if got := len(r.beatsOf(1)) > 1; got != revives {
					t.Errorf("beaten again: %v", got)
				}
				r.silent(t)
			})
		})
	}
}

// An answer may be so late that even the deadline it gives is over. It ends no outage, so the
// holder is not told twice.
func TestAnswerThatIsOverWhenItComes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Options[int]{Revives: true}, takes(timeout+time.Second, nil))
		h := r.hold(1, timeout)
		wait(10 * time.Minute)
		r.want(t, word{1, timeout - margin, ErrUnanswered})
		r.answer(nil)
		wait(time.Minute)
		if time.Until(r.Deadline(h)) < timeout-interval {
			t.Error("not recovered")
		}
		r.silent(t)
	})
}

func TestLittleTimeLeft(t *testing.T) {
	for _, c := range []struct {
		left time.Duration
		beat time.Duration // the first, at the latest
		told time.Duration // when nothing is answered
	}{
		{timeout, interval, timeout - margin},
		{15 * time.Second, 5 * time.Second, 10 * time.Second},
		{9 * time.Second, 3 * time.Second, 4500 * time.Millisecond},
		{margin, 0, margin / 2},
		{2 * time.Second, 0, time.Second},
		{0, 0, 0},
		{-time.Hour, 0, 0},
	} {
		t.Run(c.left.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, Options[int]{Revives: true}, fails)
				r.hold(1, c.left)
				wait(time.Minute)
				at := r.beatsOf(1)[0]
				between(t, "first beat", at, c.beat*7/8, c.beat)
				r.want(t, word{1, c.told, ErrUnanswered})

				// Answered in time, there is nothing to tell.
				r = newRig(t, Options[int]{Revives: true}, takes(max(0, c.left/8), nil))
				h := r.hold(1, c.left)
				wait(time.Minute)
				if c.left > 0 {
					r.silent(t)
				}
				if left := time.Until(r.Deadline(h)); left < timeout-interval-max(0, c.left/8) {
					t.Errorf("%v left", left)
				}
			})
		})
	}
}

func TestDeadlinesBeyondAllTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Options[int]{Revives: true}, nil)
		h := &Held[int]{Lease: 1, Deadline: time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC)}
		r.Hold(h)
		r.SetTimeout(h, h.Deadline)
		wait(time.Minute)
		r.silent(t)
		between(t, "first beat", r.beatsOf(1)[0], interval*7/8, interval)
		if left := time.Until(r.Deadline(h)); left < 50*365*24*time.Hour {
			t.Errorf("%v left", left)
		}
		r.Release(h)
		var zero Held[int]
		r.Hold(&zero)
		wait(time.Minute)
		r.want(t, word{0, time.Minute, ErrUnanswered})
		if got := r.beatsOf(0)[0]; got != time.Minute {
			t.Errorf("without a deadline: beaten at %v", got)
		}
	})
}

func TestLongestTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Options[int]{Timeout: maxTimeout}, nil)
		h := r.hold(1, maxTimeout)
		wait(maxTimeout)
		r.silent(t)
		if n := len(r.beatsOf(1)); n != 3 {
			t.Errorf("%d beats", n)
		}
		if left := time.Until(r.Deadline(h)); left < maxTimeout/2 {
			t.Errorf("%v left", left)
		}
	})
}

func TestShortestTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Options[int]{Timeout: minTimeout, Interval: minInterval, Revives: true}, nil)
		h := r.hold(1, minTimeout)
		wait(time.Second)
		r.silent(t)
		r.answer(fails)
		n := len(r.beatsOf(1))
		between(t, "beats a second", time.Duration(n), 1000, 1150)
		wait(time.Second)
		between(t, "failed beats a second", time.Duration(len(r.beatsOf(1))-n), 1800, 2100)
		r.Release(h)
	})
}

// TestLate: beats that the manager does not begin are late, and those that wait for their answer
// are not.
func TestLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Options[int]{}, nil)
		wants := func(want time.Duration) {
			t.Helper()
			if got := r.Late(time.Now()); got != want {
				t.Errorf("after %v the manager is %v late, want %v", r.since(), got, want)
			}
		}
		wants(0)
		r.hold(1, timeout)
		wait(10 * time.Minute)
		wants(0)

		r.answer(takes(8*time.Second, nil))
		for range 60 {
			wait(time.Second)
			wants(0)
		}
		r.answer(nil)
		wait(20 * time.Second)

		r.mu.Lock()
		due := time.Duration(r.leases.First().Key - r.Manager.now().mono)
		r.timer.Stop() // nobody gets the turn
		r.mu.Unlock()
		wait(due)
		wants(0)
		wait(time.Minute)
		wants(time.Minute)

		r.tick()
		wait(time.Minute)
		wants(0)
		r.told() // the lease was over meanwhile
	})
}
