package visibility

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/retry"
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

// suspend is what a suspended machine finds: the wall clock has gone on for d, the monotonic clock
// has not.
func (r *rig) suspend(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.wall = r.wall.Add(-d)
}

// The first tick after a suspension beats every lease that is over by the wall clock, although by
// the monotonic clock nothing is due for it. Where an answer counts even so, that answer decides:
// the wall clock may only have been set.
func TestSuspendedMachine(t *testing.T) {
	// It is later than the timeout, which is told by another goroutine in the same moment.
	lost := func(ctx context.Context, ls []int) error {
		retry.Rest(ctx, time.Millisecond)
		return only(1, broker.ErrReceiptExpired)(ctx, ls)
	}
	for name, c := range map[string]struct {
		o     Options[int]
		x     Extender[int]
		want  []word // beside the timeout's
		beats int    // within a second
		held  int
	}{
		"an answer counts":       {o: Options[int]{Revives: true}, beats: 1, held: 2},
		"the lease is another's": {o: Options[int]{Revives: true}, x: lost, want: []word{{1, 2*time.Second + time.Millisecond, broker.ErrReceiptExpired}}, beats: 1, held: 1},
		"nobody answers":         {o: Options[int]{Revives: true}, x: takes(time.Hour, nil), want: []word{{1, 2*time.Second + margin, ErrUnanswered}}, beats: 1, held: 2},
		"no answer counts":       {want: []word{{1, 2 * time.Second, ErrUnanswered}}, held: 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, c.o, c.x)
				dead := r.hold(1, timeout)
				r.hold(2, time.Hour)
				r.SetTimeout(dead, r.start.Add(2*time.Second)) // what the tick is for
				wait(time.Second)
				r.suspend(time.Minute)
				if left := r.Left(dead); left > 0 {
					t.Errorf("%v left after the jump", left)
				}
				wait(time.Second)
				if n := len(r.beatsOf(1)); n != c.beats {
					t.Errorf("%d beats, want %d", n, c.beats)
				}
				if left, answered := r.Left(dead), c.x == nil; c.held == 2 && (left > 0) != answered {
					t.Errorf("%v left, answered %v", left, answered)
				}
				r.mu.Lock()
				skew := time.Duration(r.skew)
				r.mu.Unlock()
				if skew != time.Minute {
					t.Errorf("every tick looks at every lease from now on: skew %v", skew)
				}
				wait(margin + time.Second)
				r.want(t, append([]word{{1, 2 * time.Second, nil}}, c.want...)...)
				if r.Len() != c.held {
					t.Errorf("%d held, want %d", r.Len(), c.held)
				}
				if c.x == nil {
					wait(5 * time.Minute)
					r.silent(t) // the answers count, by both clocks
				}
			})
		})
	}
}

// An answer to a beat that went out before the wall clock jumped says nothing against the lease;
// the next one decides.
func TestUpdateFromBeforeAJump(t *testing.T) {
	for _, c := range []struct {
		answers bool
		want    []word
	}{{true, nil}, {false, []word{{1, time.Second + margin, ErrUnanswered}}}} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, Options[int]{Revives: true}, fails)
			h := r.hold(1, timeout)
			wait(time.Second)
			before := time.Now().Add(timeout)
			r.suspend(time.Hour)
			if c.answers {
				r.answer(nil)
			}
			for range 3 {
				// As the manager reads it: the wall part lies before the wall clock's now.
				r.mu.Lock()
				base := r.wall
				r.wall = base.Add(time.Hour)
				d := r.at(before)
				r.wall = base
				r.mu.Unlock()
				r.mu.Lock()
				r.update(h, d)
				r.mu.Unlock()
			}
			wait(margin + time.Second)
			r.want(t, c.want...)
			if left := r.Left(h); (left > 0) != c.answers {
				t.Errorf("%v left", left)
			}
		})
	}
}

// A lease that is held for longer than a beat gives recovers by the wall clock as well.
func TestLongLeaseAfterASuspension(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Options[int]{Revives: true}, nil)
		h := r.hold(1, 5*time.Minute)
		r.suspend(10 * time.Minute)
		wait(time.Minute)
		r.silent(t)
		if left := r.Left(h); left <= 0 {
			t.Errorf("%v left", left)
		}
	})
}

func TestSuspendedDuringACall(t *testing.T) {
	for _, revives := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
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
				r.want(t, word{1, at + time.Second, ErrUnanswered})
				if r.Len() != 0 {
					t.Error("an answer after the deadline counts")
				}
			}
			wait(5 * time.Minute)
			if revives && time.Until(r.Deadline(h)) < timeout-interval-time.Second {
				t.Error("not recovered")
			}
			r.silent(t) // the second beat was answered within the margin
		})
	}
}

// An answer that comes before the deadline by the monotonic clock alone is late. Where a late
// answer does not count, the lease is dropped. Its holder is told, unless it has been told already.
func TestLateByTheWallClock(t *testing.T) {
	for _, c := range []struct {
		takes time.Duration
		told  time.Duration
	}{
		{time.Second, 5 * time.Second},             // by the answer
		{5 * time.Second, 12*time.Second - margin}, // by a tick before
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, Options[int]{}, takes(c.takes, nil))
			r.hold(1, 12*time.Second) // beaten at 4 s
			wait(4*time.Second + c.takes - 1)
			r.suspend(10 * time.Second)
			wait(1)
			if r.Len() != 0 {
				t.Error("the answer counts")
			}
			r.want(t, word{1, c.told, ErrUnanswered})
			wait(time.Minute)
			r.silent(t)
		})
	}
}

// A wall clock that was set back makes no lease live longer, and no far deadline near.
func TestWallClockSetBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Options[int]{Revives: true}, fails)
		r.hold(1, timeout)
		r.suspend(-time.Hour)
		h := &Held[int]{Lease: 2, Deadline: time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC)}
		r.Hold(h)
		wait(time.Minute)
		r.want(t, word{1, timeout - margin, ErrUnanswered})
		between(t, "first beat", r.beatsOf(2)[0], interval*7/8, interval)
	})
}

// A deadline that was reckoned before a suspension is as near as the wall clock says.
func TestHeldAfterASuspension(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
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
