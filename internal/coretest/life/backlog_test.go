package life

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/control"
	"github.com/onceq/onceq/internal/coretest/rig"
)

// frames is an Observer that notes how deep the stacks are in which jobs end.
type frames struct {
	*rig.Seen
	most int
}

func (f *frames) JobEnded(ctx context.Context, r *onceq.JobReport) {
	n := runtime.Callers(0, make([]uintptr, 5000))
	f.Mu.Lock()
	f.most = max(f.most, n)
	f.Mu.Unlock()
	f.Seen.JobEnded(ctx, r)
}

// What is given back before its claim frees a slot, and the next one may be given back as well. One
// is not given back from within the other, however many wait: here those of a paused type, and
// those that stay in their queue because they cannot be done.
func TestBacklogIsNotGivenBackFromWithinItself(t *testing.T) {
	const jobs = 500
	pausedType := func(r *rig.Rig) {
		r.Orders(time.Hour, func(u *control.Rule) { u.Type = "charge" })
	}
	tooEarly := func(m *broker.Outgoing) { m.Meta.NotBefore = time.Now().Add(10 * 365 * 24 * time.Hour) }
	none := func(*broker.Outgoing) {}
	direct := rig.With(func(c *rig.Setup) { c.Store = c.Store.(*rig.Store).Store })
	ordered := func(r *rig.Rig) {
		r.Q.ChangeLimits = func(l broker.Limits) broker.Limits { l.OrderedGroups = true; return l }
	}
	for _, c := range []struct {
		name    string
		rule    func(r *rig.Rig)
		message func(m *broker.Outgoing)
		ends    onceq.Outcome
		least   int // so many end so
		options []rig.Option
	}{
		{"paused", pausedType, none, onceq.OutcomePaused, jobs, nil},
		{"paused, one slot over a memory store", pausedType, none, onceq.OutcomePaused, jobs, []rig.Option{direct}},
		{"paused, groups", pausedType, func(m *broker.Outgoing) { m.Group = m.Meta.Key[:len(m.Meta.Key)-1] }, onceq.OutcomePaused, jobs / 10, []rig.Option{ordered}},
		{"kept", func(*rig.Rig) {}, tooEarly, onceq.OutcomeKept, jobs, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			seen := &frames{Seen: new(rig.Seen)}
			rig.Bubble(t, rig.Works(30*time.Second), func(r *rig.Rig) {
				r.Send("first")
				r.Start()
				rig.Pass(time.Second)
				c.rule(r)
				for i := range jobs {
					m := rig.Message(fmt.Sprint("k", i))
					m.Meta.Type = "charge"
					c.message(&m)
					r.PutRaw(m)
				}
				rig.Pass(time.Minute)
				ended := 0
				for _, e := range seen.Ends {
					if e.Outcome == c.ends {
						ended++
					}
				}
				if ended < c.least {
					t.Errorf("%d have ended as %s, want %d at least", ended, c.ends, c.least)
				}
				if seen.most > 60 {
					t.Errorf("an end had %d frames above it", seen.most)
				}
			}, append([]rig.Option{rig.Steered, rig.With(func(c *rig.Setup) {
				c.Observer, c.Concurrency, c.Prefetch, c.DeadLetter = seen, 1, 2*jobs, onceq.KeepInQueue
			})}, c.options...)...)
		})
	}
	t.Run("batch", func(t *testing.T) {
		seen := &frames{Seen: new(rig.Seen)}
		rig.Bubble(t, rig.Never(t), func(r *rig.Rig) {
			pausedType(r)
			ds := rig.Deliveries(rig.Numbered("k", jobs)...)
			for i := range ds {
				ds[i].Message.Meta.Type = "charge"
			}
			for i, d := range r.Batch(r.Context(), onceq.BatchOptions{Concurrency: 1}, ds...) {
				if d.Report.Outcome != onceq.OutcomePaused {
					t.Errorf("%d: %s", i, d.Report.Outcome)
				}
			}
			if seen.most > 60 {
				t.Errorf("an end had %d frames above it", seen.most)
			}
		}, rig.Steered, rig.With(func(c *rig.Setup) { c.Observer = seen }))
	})
}
