package fan_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/fan"
	"github.com/onceq/onceq/internal/coretest/rig"
)

// failing lets child bad end with err until it is mended.
func failing(bad int, err error) func(context.Context, *onceq.Job, int) error {
	return func(_ context.Context, _ *onceq.Job, i int) error {
		if i == bad {
			return err
		}
		return nil
	}
}

// replay sends the one letter of the children again.
func (w *family) replay() {
	w.Helper()
	ms, err := w.letters.Receive(w.Context(), broker.ReceiveOptions{Max: 10})
	if err != nil || len(ms) != 1 {
		w.Fatalf("%d letters of children, %v; want 1", len(ms), err)
	}
	ms[0].Meta.Expires = time.Time{}
	if _, err := w.children.Send(w.Context(), []broker.Outgoing{{Body: ms[0].Body, Attributes: ms[0].Attributes, Meta: ms[0].Meta}}); err != nil {
		w.Fatal(err)
	}
}

// TestWaitForReplay: a parent waits for a failed child, says so, and goes on once it was replayed.
func TestWaitForReplay(t *testing.T) {
	play(t, 250, func(w *family) {
		w.works(failing(120, onceq.Permanent(rig.ErrBoom)))
		w.Send("p")
		w.Start()
		rig.Pass(24 * time.Hour)
		w.WantStatus("p", dedupe.Released)
		if w.Logged.Count("120 of 250 children are done", childKey(120).Key, "is failed (permanent) and waits for its replay") == 0 {
			t.Error("nobody was told of the failed child")
		}
		w.works(nil)
		w.replay()
		rig.Pass(4 * time.Hour)
		w.ran[120]--
		w.wants("p")
	})
}

// TestFailParent: a failed or parked child fails the parent, near the frontier and far beyond it.
// Once both letters are replayed the parent goes on, and no other child runs again.
func TestFailParent(t *testing.T) {
	for bad, within := range map[int]time.Duration{0: 10 * time.Second, 99: 10 * time.Second, 100: 10 * time.Second, 1203: time.Minute} {
		t.Run(fmt.Sprint(bad), func(t *testing.T) {
			play(t, 1204, func(w *family) {
				w.c.Failed = fan.FailParent
				w.works(func(ctx context.Context, j *onceq.Job, i int) error {
					if i == 7 {
						_ = after(2*time.Minute)(ctx, j, i)
					}
					return failing(bad, onceq.Permanent(rig.ErrBoom))(ctx, j, i)
				})
				w.Send("p")
				w.Start()
				rig.Pass(within)
				w.WantStatus("p", dedupe.Failed)
				l := w.Letter(fan.ClassChild)
				if !strings.Contains(l.Meta.Dead.LastErr, childKey(bad).Key) {
					t.Errorf("the parent's letter does not name the child: %s", l.Meta.Dead.LastErr)
				}
				w.works(nil)
				w.replay()
				rig.Pass(3 * time.Minute)
				w.Replay(l)
				rig.Pass(time.Minute)
				w.ran[bad]--
				w.wants("p")
			})
		})
	}
}

// TestChildErrors: a handler can tell how the child has ended, and the parent's class is its own:
// that of a child would say of the parent what is not so.
func TestChildErrors(t *testing.T) {
	failed := func(err error) string {
		if e, ok := errors.AsType[*onceq.FailedError](err); ok {
			return e.Class
		}
		return "none"
	}
	for name, c := range map[string]struct {
		policy fan.Policy
		to     dedupe.Status
		class  string
		want   func(error) (class string)
	}{
		"failed":    {fan.FailParent, dedupe.Failed, "declined", failed},
		"cancelled": {fan.FailParent, dedupe.Failed, onceq.ClassCancelled, failed},
		"parked": {fan.FailParent, dedupe.Parked, "interrupted", func(err error) string {
			e, _ := errors.AsType[*onceq.ParkedError](err)
			return e.Class
		}},
		// It has no letter whose replay one could wait for.
		"cancelled, the parent waits": {fan.WaitForReplay, dedupe.Failed, onceq.ClassCancelled, failed},
	} {
		t.Run(name, func(t *testing.T) {
			var seen error
			w := &family{ran: map[int]int{}}
			rig.Bubble(t, func(ctx context.Context, j *onceq.Job) error {
				seen = fan.Out(ctx, j, w.Store, "parts", w.c)
				return seen
			}, func(r *rig.Rig) {
				w.Rig, w.c = r, fan.Children{To: rig.NewQueue(t, queueOf("children")).Broker, Scope: childScope, N: 3, Message: number, Failed: c.policy}
				k := childKey(1)
				q := dedupe.ClaimRequest{Key: k, Token: dedupe.Token{1}, TTL: time.Minute}
				if _, err := r.Store.Claim(t.Context(), []dedupe.ClaimRequest{q}); err != nil {
					t.Fatal(err)
				}
				r.Store.EndClaim(t, q, dedupe.Settlement{To: c.to, ErrClass: c.class, ErrText: "by ana"})
				r.Send("p")
				r.RunFor(3 * time.Second)
				r.WantStatus("p", dedupe.Failed)
				if class := onceq.ClassOf(seen); class != fan.ClassChild || c.want(seen) != c.class {
					t.Errorf("the error %v has the class %q", seen, class)
				}
				r.Letter(fan.ClassChild)
			})
		})
	}
}

// TestChildExpires: a child that has expired fails the parent an hour later under FailParent, and
// otherwise the parent's line tells of it. After the replays the parent goes on.
func TestChildExpires(t *testing.T) {
	for _, policy := range []fan.Policy{fan.WaitForReplay, fan.FailParent} {
		play(t, 2, func(w *family) {
			w.c.Failed = policy
			w.c.Message = func(i int) (broker.Outgoing, error) {
				m, err := number(i)
				m.Meta.Expires = w.Began.Add(time.Duration(1-2*i) * time.Minute) // child 1 comes too late
				return m, err
			}
			w.Send("p")
			w.Start()
			rig.Pass(time.Hour)
			w.WantStatus("p", dedupe.Released)
			rig.Pass(time.Hour)
			if policy == fan.WaitForReplay {
				w.WantStatus("p", dedupe.Released)
				if w.Logged.Count("child 1 has expired and waits for its replay") == 0 {
					t.Error("nobody was told of the child")
				}
				w.replay()
				rig.Pass(time.Hour)
				w.wants("p")
				return
			}
			w.WantStatus("p", dedupe.Failed)
			l := w.Letter(fan.ClassChild)
			w.replay()
			rig.Pass(time.Second)
			w.Replay(l)
			rig.Pass(time.Minute)
			w.wants("p")
		})
	}
}

// TestReplayIsSoon: a parent that failed long ago, and is replayed, does not wait for a tenth of
// all that time.
func TestReplayIsSoon(t *testing.T) {
	play(t, 3, func(w *family) {
		w.c.Failed = fan.FailParent
		w.works(failing(1, onceq.Permanent(rig.ErrBoom)))
		w.Send("p")
		w.Start()
		rig.Pass(10 * 24 * time.Hour)
		l := w.Letter(fan.ClassChild)
		w.works(after(20 * time.Second))
		w.replay()
		rig.Pass(time.Second)
		w.Replay(l)
		rig.Pass(30 * time.Second)
		w.ran[1]--
		w.wants("p")
	})
}

// TestLooks: 14 days are 150 looks at most, and what is noticed is noticed after a tenth of the
// time, or 10 hours.
func TestLooks(t *testing.T) {
	for _, wait := range []time.Duration{5 * time.Second, time.Minute, time.Hour, 2 * 24 * time.Hour, 14 * 24 * time.Hour} {
		t.Run(wait.String(), func(t *testing.T) {
			play(t, 2, func(w *family) {
				w.works(func(ctx context.Context, j *onceq.Job, i int) error {
					// A child that gives itself back, because no queue holds a delivery for days.
					return onceq.Sleep(ctx, j, "long", wait)
				})
				w.Send("p")
				w.RunFor(wait + min(max(wait/9, 3*time.Second), 11*time.Hour))
				w.WantStatus("p", dedupe.Done)
				if n := w.looks("p"); n > 150 {
					t.Errorf("the parent has looked %d times, want at most 150", n)
				}
				if got := w.Record("p").Attempt; got != 1 {
					t.Errorf("the parent has used %d attempts, want 1", got)
				}
			}, rig.Warnings)
		})
	}
}
