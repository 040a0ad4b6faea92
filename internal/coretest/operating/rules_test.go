package operating

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/control"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/controlstore"
	"github.com/onceq/onceq/internal/coretest/rig"
	"github.com/onceq/onceq/internal/faulty"
	"github.com/onceq/onceq/internal/peak"
	"github.com/onceq/onceq/onceqtest"
)

func ofQueue(u *control.Rule) { u.Queue = rig.Scope }

// cut makes every call of the workers' store fail, and mend ends that.
func cut(r *rig.Rig, err error) {
	refuse(r, err)
	r.Store.Fails(err, onceqtest.Claim, onceqtest.Renew, onceqtest.Settle)
}

func mend(r *rig.Rig) {
	refuse(r, nil)
	r.Store.Heals()
}

// refuse makes the store answer reads with err.
func refuse(r *rig.Rig, err error) {
	r.Store.Set(func(s *rig.Store) { s.OnGet = func() error { return err } })
}

// TestQueuePausedByRule: a pause holds within its bound, costs no receive, lets running handlers
// end, and ends by itself or by an operator's word.
func TestQueuePausedByRule(t *testing.T) {
	var starts, receives atomic.Int64
	h := func(_ context.Context, j *onceq.Job) error {
		if j.Key().Key == "later" {
			receives.Store(int64(j.Message.Attempt))
		}
		starts.Add(1)
		rig.Takes(20 * time.Second)
		return nil
	}
	rig.Bubble(t, h, func(r *rig.Rig) {
		r.Start()
		rig.Pass(time.Second)
		r.Send("running")
		rig.Pass(time.Second)
		id := r.Orders(time.Hour, ofQueue)
		rig.Pass(rig.Bound)
		if h := r.W.Health(); h.State != onceq.StatePaused || h.Rules != 1 || len(h.Reasons) != 1 || h.Reasons[0] != "rule "+id+" by ana: SMTP migration" {
			t.Errorf("the worker is %+v", h)
		}
		if s := r.W.Stats(); len(s.Paused) != 1 || s.Paused[0] != onceq.ReasonRules {
			t.Errorf("the worker is paused for %q", s.Paused)
		}
		r.Send("first") // the receive that waits already brings it, and hands it back
		rig.Pass(time.Second)
		r.Send("later")
		rig.Pass(10 * time.Minute)
		r.WantOutcomes("running", "done")
		if starts.Load() != 1 {
			t.Error("a handler started during the pause")
		}
		r.W.Resume() // the program's word is another reason
		rig.Pass(time.Minute)
		if starts.Load() != 1 {
			t.Error("Resume ended an operator's pause")
		}
		r.W.Pause()
		r.Rules(func(rs *controlstore.Rules) { rs.Remove(id) })
		rig.Pass(rig.Bound + 5*time.Second)
		if s := r.W.Stats(); starts.Load() != 1 || len(s.Paused) != 1 || s.Paused[0] != onceq.ReasonLocal {
			t.Errorf("the operator ended the program's pause: %q", s.Paused)
		}
		r.W.Resume()
		rig.Pass(time.Minute)
		r.WantOutcomes("first", "done")
		r.WantOutcomes("later", "done")
		if receives.Load() != 1 {
			t.Errorf("the message of a paused queue was received %d times", receives.Load())
		}
		r.Orders(10*time.Minute, ofQueue)
		rig.Pass(rig.Bound)
		r.Send("until")
		rig.Pass(10*time.Minute - rig.Bound - time.Second)
		if starts.Load() != 3 {
			t.Error("a handler started before the rule's end")
		}
		rig.Pass(6*time.Second + 20*time.Second)
		r.WantOutcomes("until", "done")
		if err := r.Stop(); err != nil {
			t.Error(err)
		}
		r.WantEvents("started", "paused rules", "paused local", "resumed rules", "resumed local", "paused rules", "resumed rules", "draining", "drained")
	}, rig.Steered, rig.Watched)
}

// TestRulesBeforeFirstReceive: a worker that starts during a pause, or while the store is away,
// receives nothing.
func TestRulesBeforeFirstReceive(t *testing.T) {
	h := func(context.Context, *onceq.Job) error { return nil }
	rig.Bubble(t, h, func(r *rig.Rig) {
		r.Orders(10*time.Minute, ofQueue)
		r.Send("a")
		cut(r, rig.ErrBoom)
		r.Start()
		rig.Pass(30 * time.Minute)
		r.WantOutcomes("a")
		if h := r.W.Health(); h.State != onceq.StateStarting || len(h.Reasons) == 0 || !strings.Contains(h.Reasons[0], "before operators' rules are read") {
			t.Errorf("the worker is %+v", h)
		}
		r.Orders(10*time.Minute, ofQueue)
		mend(r)
		rig.Pass(9 * time.Minute)
		r.WantOutcomes("a")
		rig.Pass(2 * time.Minute)
		r.WantOutcomes("a", "done")
	}, rig.Steered)
}

// TestStoreCutDuringPause: rules that cannot be read stay in force, and end.
func TestStoreCutDuringPause(t *testing.T) {
	var starts atomic.Int64
	h := func(context.Context, *onceq.Job) error { starts.Add(1); return nil }
	rig.Bubble(t, h, func(r *rig.Rig) {
		r.Start()
		r.Orders(5*time.Minute, ofQueue)
		rig.Pass(rig.Bound)
		r.Send("a")
		cut(r, rig.ErrBoom)
		rig.Pass(time.Minute)
		mend(r)
		rig.Pass(time.Minute)
		if starts.Load() != 0 || r.W.Health().State != onceq.StatePaused {
			t.Errorf("after a cut of a minute %d handlers have started, %+v", starts.Load(), r.W.Health())
		}
		refuse(r, rig.ErrBoom)
		rig.Pass(2 * time.Minute)
		if starts.Load() != 0 {
			t.Error("a handler started during the pause")
		}
		rig.Pass(time.Minute)
		r.WantOutcomes("a", "done")
		if s := r.W.Stats(); len(s.Paused) != 0 {
			t.Errorf("after the rule's end the worker is paused for %q", s.Paused)
		}
		// A store that never answers, and ignores its context, holds up neither the end of a rule
		// nor Run.
		mend(r)
		r.Orders(5*time.Minute, ofQueue)
		rig.Pass(rig.Bound)
		release := make(chan struct{})
		r.Store.Set(func(s *rig.Store) { s.OnGet = func() error { <-release; return rig.ErrBoom } })
		rig.Pass(6 * time.Minute)
		if s := r.W.Stats(); len(s.Paused) != 0 {
			t.Errorf("after the rule's end the worker is paused for %q", s.Paused)
		}
		began := time.Now()
		if err := r.Stop(); err != nil || time.Since(began) > 3*time.Second {
			t.Errorf("Run ended after %v: %v", time.Since(began), err)
		}
		close(release)
	}, rig.Steered)
}

// TestTypePausedByRule: a message whose type or scope is paused comes again after a time that
// doubles. It is not claimed and loses no attempt; its group goes back with it. Others run.
func TestTypePausedByRule(t *testing.T) {
	mux := new(onceq.Mux)
	for _, typ := range []string{"charge", "mail"} {
		mux.On(typ, onceq.HandlerFunc(func(context.Context, *onceq.Job) error { return nil }), nil)
	}
	for name, set := range map[string]func(*control.Rule){
		"type":                   func(u *control.Rule) { u.Type = "charge" },
		"type of the queue":      func(u *control.Rule) { u.Type, u.Queue = "charge", rig.Scope },
		"scope":                  func(u *control.Rule) { u.Scope = rig.Scope + ":charge" },
		"scope with every type":  func(u *control.Rule) { u.Scope, u.Type = rig.Scope, "charge" },
		"another queue's":        func(u *control.Rule) { u.Type, u.Queue = "charge", "other" },
		"another type, and both": func(u *control.Rule) { u.Type, u.Scope = "refund", rig.Scope },
	} {
		paused := !strings.HasPrefix(name, "another")
		t.Run(name, func(t *testing.T) {
			rig.BothWays(t, nil, func(r *rig.Rig) {
				id := r.Orders(50*time.Minute, set)
				r.Start()
				r.Put(rig.JobOf("charge", "c-1", ""), rig.JobOf("mail", "m-1", ""), rig.JobOf("charge", "c-2", "g"), rig.JobOf("mail", "m-2", "g"))
				rig.Pass(time.Minute)
				r.WantOutcomes("m-1", "done")
				if !paused {
					r.WantOutcomes("c-1", "done")
					return
				}
				if r.Seen.Started("c-1")+r.Seen.Started("c-2")+r.Seen.Started("m-2") != 0 {
					t.Error("a paused job, or one behind it, was started")
				}
				if rec, err := r.Store.Store.Get(r.Context(), []dedupe.Key{{Scope: rig.Scope + ":charge", Key: "c-1"}}); err != nil || rec[0] != nil {
					t.Errorf("the paused key is %+v, %v", rec[0], err)
				}
				rig.Pass(30 * time.Minute)
				var before []time.Duration
				for _, e := range r.Seen.Of("c-1") {
					if e.Outcome != onceq.OutcomePaused {
						t.Errorf("a delivery has ended as %s", e.Outcome)
					}
					before = append(before, e.Delay)
				}
				if len(before) < 4 || len(before) > 6 {
					t.Errorf("in 31 minutes the message came %d times: %v", len(before), before)
				}
				for i, d := range before {
					want := min(time.Minute<<i, 15*time.Minute)
					if d < want-want/8 || d > want+want/8 {
						t.Errorf("delay %d is %v, want %v and an eighth more or less", i, d, want)
					}
				}
				r.Rules(func(rs *controlstore.Rules) { rs.Remove(id) })
				rig.Pass(18 * time.Minute)
				for _, e := range r.Seen.Of("c-1") {
					if e.Outcome == onceq.OutcomeDone && e.Attempt != 1 {
						t.Errorf("the pause cost attempts: %+v", e)
					}
				}
				if r.Seen.Started("c-1") != 1 || r.Seen.Started("c-2") != 1 || r.Seen.Started("m-2") != 1 {
					t.Error("after the pause not all have run")
				}
			}, rig.Steered, rig.Preset(membroker.SQSFIFO), rig.With(func(c *rig.Setup) { c.Handler = mux }))
		})
	}
}

// TestLimitedByRule: a limit bounds new starts at once, and ends.
func TestLimitedByRule(t *testing.T) {
	for _, prefetch := range []int{0, -1} {
		var busy peak.Gauge
		h := func(context.Context, *onceq.Job) error {
			busy.In()
			rig.Takes(time.Minute)
			busy.Out()
			return nil
		}
		rig.Bubble(t, h, func(r *rig.Rig) {
			r.Start()
			for i := range 100 {
				r.Send(fmt.Sprint(i))
			}
			rig.Pass(time.Second)
			all := busy.Top() // without a prefetch a worker asks for a few at once
			if all < 6 {
				t.Errorf("%d handlers at once", all)
			}
			id := r.Orders(time.Hour, func(u *control.Rule) { u.Queue, u.Do, u.Slots = rig.Scope, control.Limit, 3 })
			rig.Pass(rig.Bound + time.Minute)
			busy.Reset()
			rig.Pass(5 * time.Minute)
			if h := r.W.Health(); busy.Top() != 3 || h.Slots != 3 || h.State != onceq.StateRunning || !strings.Contains(fmt.Sprint(h.Reasons), "limited to 3 slots by rule "+id) {
				t.Errorf("%d handlers at once, %+v", busy.Top(), h)
			}
			r.Rules(func(rs *controlstore.Rules) { rs.Remove(id) })
			rig.Pass(2 * time.Minute)
			if busy.Top() < all || r.W.Stats().Slots != 10 {
				t.Errorf("after the limit %d handlers run at once", busy.Top())
			}
			rig.Pass(20 * time.Minute)
			r.WantQueue(0)
		}, rig.Steered, rig.With(func(c *rig.Setup) { c.Prefetch = prefetch }))
	}
}

// TestRefusedToReadRules: where the store answers others and refuses to tell the rules, a worker
// starts without them after 30 seconds and says so, and obeys as soon as it can read them. Where
// they are required it waits.
func TestRefusedToReadRules(t *testing.T) {
	h := func(context.Context, *onceq.Job) error { return nil }
	rig.Bubble(t, h, func(r *rig.Rig) {
		refuse(r, errors.New("AccessDenied: dynamodb:GetItem"))
		r.Send("a")
		r.Start()
		rig.Pass(29 * time.Second)
		r.WantOutcomes("a")
		rig.Pass(10 * time.Second)
		r.WantOutcomes("a", "done")
		if h := r.W.Health(); h.State != onceq.StateRunning || !strings.Contains(fmt.Sprint(h.Reasons), "operators' rules cannot be read") {
			t.Errorf("the worker is %+v", h)
		}
		r.WantEvents("started", "rule-refused")
		if r.Logged.Count("level=ERROR", "the worker starts without them") != 1 {
			t.Error("no line says so")
		}
		mend(r)
		r.Orders(time.Hour, ofQueue)
		rig.Pass(rig.Bound)
		if h := r.W.Health(); h.State != onceq.StatePaused || len(h.Reasons) != 1 {
			t.Errorf("the worker is %+v", h)
		}
	}, rig.Steered, rig.Watched)
	rig.Bubble(t, h, func(r *rig.Rig) {
		refuse(r, errors.New("AccessDenied: dynamodb:GetItem"))
		r.Send("a")
		r.Start()
		rig.Pass(24 * time.Hour)
		r.WantOutcomes("a")
		mend(r)
		rig.Pass(time.Minute)
		r.WantOutcomes("a", "done")
	}, rig.Steered, rig.Warnings, rig.With(func(c *rig.Setup) { c.Control.Required = true }))
}

// TestUnreadableRules: rules that nobody can read are as a store that refuses them.
func TestUnreadableRules(t *testing.T) {
	h := func(context.Context, *onceq.Job) error { return nil }
	rig.Bubble(t, h, func(r *rig.Rig) {
		q := dedupe.ClaimRequest{Key: dedupe.Key{Scope: controlstore.ScopeControl, Key: "rules"}, Token: dedupe.Token{1}, TTL: time.Hour}
		if _, err := r.Store.Store.Claim(r.Context(), []dedupe.ClaimRequest{q}); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Store.Store.Renew(r.Context(), []dedupe.Renewal{{Key: q.Key, Token: q.Token, TTL: time.Hour, State: []byte("?"), StateNo: 1}}); err != nil {
			t.Fatal(err)
		}
		r.Send("a")
		r.RunFor(time.Minute)
		r.WantOutcomes("a", "done")
	}, rig.Steered)
}

// TestSeatOfWorker: a worker is seen with what it does, and leaves when it has drained. A store
// that hangs does not hold up the end.
func TestSeatOfWorker(t *testing.T) {
	h := func(context.Context, *onceq.Job) error { rig.Takes(45 * time.Second); return nil }
	rig.Bubble(t, h, func(r *rig.Rig) {
		r.Send("a", "b")
		r.Start()
		rig.Pass(25 * time.Second)
		seats := seatsOf(r)
		if len(seats) != 1 || seats[0].Status == nil || seats[0].Name != r.W.Health().Seat {
			t.Fatalf("the seats are %+v, and Health says %q", seats, r.W.Health().Seat)
		}
		c := seats[0].Status
		if c.State != "running" || c.Slots != 10 || c.Busy != 2 || len(c.Jobs) != 2 || c.Running("a") == nil || c.Running("b") == nil || c.Scope != rig.Scope {
			t.Errorf("the card is %+v", c)
		}
		if j := c.Running("a"); j != nil && (j.Attempt != 1 || j.Fence == 0 || j.At.After(time.Now().Add(-20*time.Second))) {
			t.Errorf("the job is %+v", j)
		}
		rig.Pass(40 * time.Second)
		if c := seatsOf(r)[0].Status; c.Outcomes["done"] != 2 || c.Busy != 0 || len(c.Jobs) != 0 || c.Rate <= 0 {
			t.Errorf("the card is %+v", c)
		}
		if err := r.Stop(); err != nil {
			t.Fatal(err)
		}
		if s := seatsOf(r); len(s) != 1 || !s[0].Left {
			t.Errorf("after the drain the seats are %+v", s)
		}
	}, rig.Steered)
	rig.Bubble(t, h, func(r *rig.Rig) {
		r.Send("a")
		r.Start()
		rig.Pass(15 * time.Second)
		r.StopNow()
		rig.Pass(15 * time.Second)
		if s := seatsOf(r); len(s) != 1 || !s[0].Live(time.Now()) || s[0].Status.State != "draining" {
			t.Errorf("during the drain the seats are %+v", s)
		}
		if j := seatsOf(r)[0].Status.Jobs; len(j) != 1 || j[0].Key != "" || j[0].ID == "" {
			t.Errorf("without keys the jobs are %+v", j)
		}
	}, rig.Steered, rig.With(func(c *rig.Setup) { c.Control.NoKeys = true; c.DrainTimeout = time.Minute }))
	rig.Bubble(t, h, func(r *rig.Rig) {
		r.Start()
		rig.Pass(15 * time.Second)
		r.Store.Set(func(s *rig.Store) { s.Fault = func(onceqtest.Call) faulty.Faults { return faulty.Hang() } })
		began := time.Now()
		if err := r.Stop(); err != nil || time.Since(began) > 3*time.Second {
			t.Errorf("Run ended after %v: %v", time.Since(began), err)
		}
	}, rig.Steered)
	rig.Bubble(t, h, func(r *rig.Rig) { // nor beyond the hard end
		r.Start()
		rig.Pass(15 * time.Second)
		r.Store.Set(func(s *rig.Store) { s.Fault = func(onceqtest.Call) faulty.Faults { return faulty.Hang() } })
		began := time.Now()
		if err := r.Stop(); err != nil || time.Since(began) > 500*time.Millisecond {
			t.Errorf("Run ended after %v: %v", time.Since(began), err)
		}
	}, rig.Steered, rig.With(func(c *rig.Setup) { c.DrainTimeout, c.SettleTimeout = -1, 500*time.Millisecond }))
}

func seatsOf(r *rig.Rig) []controlstore.Sitting {
	r.Helper()
	s, err := controlstore.Seats(r.Context(), r.Store.Store, rig.Scope)
	if err != nil {
		r.Fatal(err)
	}
	return s
}

// TestLostSeat: a worker whose seat was removed takes another, and tells of it.
func TestLostSeat(t *testing.T) {
	rig.Bubble(t, func(context.Context, *onceq.Job) error { return nil }, func(r *rig.Rig) {
		r.Start()
		rig.Pass(time.Second)
		k := dedupe.Key{Scope: controlstore.ScopeWorker, Key: r.W.Health().Seat}
		rec, err := r.Store.Store.Get(r.Context(), []dedupe.Key{k})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.Store.Store.Forget(r.Context(), []dedupe.Forgotten{{Key: k, Fence: rec[0].Fence, Force: true}}); err != nil {
			t.Fatal(err)
		}
		rig.Pass(rig.Bound)
		r.WantEvents("started", "seat-lost")
		if s := seatsOf(r); len(s) != 1 || !s[0].Live(time.Now()) || r.W.Health().Seat == "" {
			t.Errorf("the seats are %+v", s)
		}
	}, rig.Steered, rig.Watched)
}
