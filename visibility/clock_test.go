package visibility

import (
	"slices"
	"testing"
	"time"
)

func TestMomentIsReachedByEitherClock(t *testing.T) {
	m := moment{100, 1000}
	for _, c := range []struct {
		now  moment
		d    int64
		want bool
	}{
		{moment{99, 999}, 0, false},
		{moment{100, 0}, 0, true},
		{moment{0, 1000}, 0, true},
		{moment{89, 989}, 10, false},
		{moment{90, 0}, 10, true},
		{moment{0, 990}, 10, true},
	} {
		if got := m.reached(c.now, c.d); got != c.want {
			t.Errorf("%v reached at %v, %d before: %v", m, c.now, c.d, got)
		}
	}
	if a, b := m.left(moment{70, 980}), m.left(moment{90, 900}); a != 20 || b != 10 {
		t.Errorf("left %d and %d", a, b)
	}
}

// suspend is what a suspended machine finds: the wall clock has gone on for d, the monotonic clock has not.
func (r *rig) suspend(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.wall = r.wall.Add(-d)
}

// The first tick after a suspension tells every holder whose lease has died meanwhile, and beats its lease, although
// by the monotonic clock nothing is due for them.
func TestSuspendedMachine(t *testing.T) {
	for _, revives := range []bool{false, true} {
		bubble(t, func(t *testing.T) {
			r := newRig(t, Options[int]{Revives: revives}, nil)
			dead := r.hold(1, timeout)
			r.hold(2, time.Hour)
			r.SetTimeout(dead, r.start.Add(2*time.Second)) // what the tick is for
			wait(time.Second)
			r.suspend(time.Minute)
			wait(time.Second)
			r.wants(t, word{1, 2 * time.Second, nil}, word{1, 2 * time.Second, ErrUnanswered})
			if got := r.Len() == 2; got != revives {
				t.Errorf("revives %v: %d held", revives, r.Len())
			}
			if got := slices.Equal(r.beatsOf(1), []time.Duration{2 * time.Second}); got != revives {
				t.Errorf("revives %v: beats at %v", revives, r.beatsOf(1))
			}
			r.mu.Lock()
			skew := time.Duration(r.skew)
			r.mu.Unlock()
			if skew != time.Minute {
				t.Errorf("every tick looks at every lease from now on: skew %v", skew)
			}
			wait(5 * time.Minute)
			r.silent(t) // the answers count, by both clocks
		})
	}
}

// A lease that is held for longer than a beat gives recovers by the wall clock as well.
func TestLongLeaseAfterASuspension(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, Options[int]{Revives: true}, nil)
		r.hold(1, 5*time.Minute)
		r.suspend(10 * time.Minute)
		wait(time.Minute)
		if w := r.told(); len(w) != 1 {
			t.Errorf("told %v", w)
		}
	})
}

func TestSuspendedDuringACall(t *testing.T) {
	for _, revives := range []bool{false, true} {
		bubble(t, func(t *testing.T) {
			r := newRig(t, Options[int]{Revives: revives}, takes(time.Second, nil))
			h := r.hold(1, timeout)
			for len(r.beatsOf(1)) == 0 {
				wait(time.Second / 8)
			}
			at := r.beatsOf(1)[0]
			r.suspend(time.Minute)
			wait(time.Second)
			if revives {
				// The answer's own deadline is over as well.
				wait(time.Second)
				if n := len(r.beatsOf(1)); n != 2 {
					t.Errorf("%d beats", n)
				}
			} else {
				r.wants(t, word{1, at + time.Second, ErrUnanswered})
				if r.Len() != 0 {
					t.Error("an answer after the deadline counts")
				}
			}
			wait(5 * time.Minute)
			if revives && time.Until(r.Deadline(h)) < timeout-interval-time.Second {
				t.Error("not recovered")
			}
			if w := r.told(); revives != (len(w) == 1) {
				t.Errorf("revives %v: told %v", revives, w)
			}
		})
	}
}

// An answer that comes before the deadline by the monotonic clock alone is late: where that does not count, the
// lease is dropped, and its holder told, unless it has been.
func TestLateByTheWallClock(t *testing.T) {
	for _, c := range []struct {
		takes time.Duration
		told  time.Duration
	}{
		{time.Second, 5 * time.Second},             // by the answer
		{5 * time.Second, 12*time.Second - margin}, // by a tick before
	} {
		bubble(t, func(t *testing.T) {
			r := newRig(t, Options[int]{}, takes(c.takes, nil))
			r.hold(1, 12*time.Second) // beaten at 4 s
			wait(4*time.Second + c.takes - 1)
			r.suspend(10 * time.Second)
			wait(1)
			if r.Len() != 0 {
				t.Error("the answer counts")
			}
			r.wants(t, word{1, c.told, ErrUnanswered})
			wait(time.Minute)
			r.silent(t)
		})
	}
}

// A wall clock that was set back makes no lease live longer, and no far deadline near.
func TestWallClockSetBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, Options[int]{Revives: true}, fails)
		r.hold(1, timeout)
		r.suspend(-time.Hour)
		h := &Held[int]{Lease: 2, Deadline: time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC)}
		r.Hold(h)
		wait(time.Minute)
		r.wants(t, word{1, timeout - margin, ErrUnanswered})
		between(t, "first beat", r.beatsOf(2)[0], interval*7/8, interval)
	})
}

// A deadline that was reckoned before a suspension is as near as the wall clock says.
func TestHeldAfterASuspension(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, Options[int]{Revives: true}, fails)
		h := &Held[int]{Lease: 1, Deadline: time.Now().Add(timeout)}
		r.suspend(time.Minute)
		h.Deadline = h.Deadline.Add(-time.Nanosecond) // wall and monotonic alike
		// As the manager reads it: the wall part lies before the wall clock's now.
		r.mu.Lock()
		now := r.Manager.now()
		d := moment{now.mono + int64(timeout), now.wall - int64(timeout)}
		r.mu.Unlock()
		if got := r.soon(int64(interval), d.left(now)); got != 0 {
			t.Errorf("beaten in %v", time.Duration(got))
		}
		h.until(d, now, margin)
		if !h.unanswered(now) {
			t.Error("not reported")
		}
	})
}
