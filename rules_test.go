package onceq_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/control"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/controlstore"
	"github.com/onceq/onceq/internal/faulty"
	"github.com/onceq/onceq/internal/peak"
	"github.com/onceq/onceq/onceqtest"
)

// bound is after what time a rule holds everywhere: Every and CallTimeout.
const bound = 15 * time.Second

// steered lets the rig's worker obey rules, which a store in memory does not do by itself.
func steered(r *rig) { r.cfg.Control.Every, r.cfg.Queue = 10*time.Second, scope }

// rules changes the rules as an operator does, whose store always answers.
func (r *rig) rules(edit func(*controlstore.Rules)) controlstore.Rules {
	r.Helper()
	got, err := controlstore.Change(r.Context(), r.store.Store, func(rs *controlstore.Rules) error {
		edit(rs)
		return nil
	})
	if err != nil {
		r.Fatal(err)
	}
	return got
}

// orders adds a rule for d.
func (r *rig) orders(d time.Duration, set func(*control.Rule)) string {
	r.Helper()
	rule := control.Rule{Do: control.Pause, Until: time.Now().Add(d), By: "ana", Reason: "SMTP migration"}
	set(&rule)
	got := r.rules(func(rs *controlstore.Rules) { rs.Rules = append(rs.Rules, rule) })
	return got.Rules[len(got.Rules)-1].ID
}

func ofQueue(u *control.Rule) { u.Queue = scope }

// cut makes every call of the workers' store fail, and mend ends that.
func (r *rig) cut(err error) {
	r.refuse(err)
	r.store.fails(err, onceqtest.Claim, onceqtest.Renew, onceqtest.Settle)
}

func (r *rig) mend() {
	r.refuse(nil)
	r.store.heals()
}

// refuse makes the store answer reads with err.
func (r *rig) refuse(err error) {
	r.store.set(func(s *store) { s.onGet = func() error { return err } })
}

// watcher also keeps the events of workers, but for those of the store's outages.
type watcher struct {
	*seen
	events []string
}

func (w *watcher) WorkerEvent(_ context.Context, e *onceq.WorkerEvent) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events = append(w.events, strings.TrimSpace(string(e.Kind)+" "+e.Reason))
}

func watched(r *rig) { r.cfg.Observer = &watcher{seen: r.seen} }

func (r *rig) wantEvents(want ...string) {
	r.Helper()
	w := r.cfg.Observer.(*watcher)
	w.mu.Lock()
	defer w.mu.Unlock()
	if !slices.Equal(w.events, want) {
		r.Errorf("the events are %q, want %q", w.events, want)
	}
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
		takes(20 * time.Second)
		return nil
	}
	bubble(t, h, func(r *rig) {
		r.start()
		pass(time.Second)
		r.send("running")
		pass(time.Second)
		id := r.orders(time.Hour, ofQueue)
		pass(bound)
		if h := r.w.Health(); h.State != onceq.StatePaused || h.Rules != 1 || len(h.Reasons) != 1 || h.Reasons[0] != "rule "+id+" by ana: SMTP migration" {
			t.Errorf("the worker is %+v", h)
		}
		if s := r.w.Stats(); len(s.Paused) != 1 || s.Paused[0] != onceq.ReasonRules {
			t.Errorf("the worker is paused for %q", s.Paused)
		}
		r.send("first") // the receive that waits already brings it, and hands it back
		pass(time.Second)
		r.send("later")
		pass(10 * time.Minute)
		r.wantOutcomes("running", "done")
		if starts.Load() != 1 {
			t.Error("a handler started during the pause")
		}
		r.w.Resume() // the program's word is another reason
		pass(time.Minute)
		if starts.Load() != 1 {
			t.Error("Resume ended an operator's pause")
		}
		r.w.Pause()
		r.rules(func(rs *controlstore.Rules) { rs.Remove(id) })
		pass(bound + 5*time.Second)
		if s := r.w.Stats(); starts.Load() != 1 || len(s.Paused) != 1 || s.Paused[0] != onceq.ReasonLocal {
			t.Errorf("the operator ended the program's pause: %q", s.Paused)
		}
		r.w.Resume()
		pass(time.Minute)
		r.wantOutcomes("first", "done")
		r.wantOutcomes("later", "done")
		if receives.Load() != 1 {
			t.Errorf("the message of a paused queue was received %d times", receives.Load())
		}
		r.orders(10*time.Minute, ofQueue)
		pass(bound)
		r.send("until")
		pass(10*time.Minute - bound - time.Second)
		if starts.Load() != 3 {
			t.Error("a handler started before the rule's end")
		}
		pass(6*time.Second + 20*time.Second)
		r.wantOutcomes("until", "done")
		if err := r.stop(); err != nil {
			t.Error(err)
		}
		r.wantEvents("started", "paused rules", "paused local", "resumed rules", "resumed local", "paused rules", "resumed rules", "draining", "drained")
	}, steered, watched)
}

// TestRulesBeforeFirstReceive: a worker that starts during a pause, or while the store is away,
// receives nothing.
func TestRulesBeforeFirstReceive(t *testing.T) {
	h := func(context.Context, *onceq.Job) error { return nil }
	bubble(t, h, func(r *rig) {
		r.orders(10*time.Minute, ofQueue)
		r.send("a")
		r.cut(errBoom)
		r.start()
		pass(30 * time.Minute)
		r.wantOutcomes("a")
		if h := r.w.Health(); h.State != onceq.StateStarting || len(h.Reasons) == 0 || !strings.Contains(h.Reasons[0], "before operators' rules are read") {
			t.Errorf("the worker is %+v", h)
		}
		r.orders(10*time.Minute, ofQueue)
		r.mend()
		pass(9 * time.Minute)
		r.wantOutcomes("a")
		pass(2 * time.Minute)
		r.wantOutcomes("a", "done")
	}, steered)
}

// TestStoreCutDuringPause: rules that cannot be read stay in force, and end.
func TestStoreCutDuringPause(t *testing.T) {
	var starts atomic.Int64
	h := func(context.Context, *onceq.Job) error { starts.Add(1); return nil }
	bubble(t, h, func(r *rig) {
		r.start()
		r.orders(5*time.Minute, ofQueue)
		pass(bound)
		r.send("a")
		r.cut(errBoom)
		pass(time.Minute)
		r.mend()
		pass(time.Minute)
		if starts.Load() != 0 || r.w.Health().State != onceq.StatePaused {
			t.Errorf("after a cut of a minute %d handlers have started, %+v", starts.Load(), r.w.Health())
		}
		r.refuse(errBoom)
		pass(2 * time.Minute)
		if starts.Load() != 0 {
			t.Error("a handler started during the pause")
		}
		pass(time.Minute)
		r.wantOutcomes("a", "done")
		if s := r.w.Stats(); len(s.Paused) != 0 {
			t.Errorf("after the rule's end the worker is paused for %q", s.Paused)
		}
		// A store that never answers, and ignores its context, holds up neither the end of a rule
		// nor Run.
		r.mend()
		r.orders(5*time.Minute, ofQueue)
		pass(bound)
		release := make(chan struct{})
		r.store.set(func(s *store) { s.onGet = func() error { <-release; return errBoom } })
		pass(6 * time.Minute)
		if s := r.w.Stats(); len(s.Paused) != 0 {
			t.Errorf("after the rule's end the worker is paused for %q", s.Paused)
		}
		began := time.Now()
		if err := r.stop(); err != nil || time.Since(began) > 3*time.Second {
			t.Errorf("Run ended after %v: %v", time.Since(began), err)
		}
		close(release)
	}, steered)
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
		"type of the queue":      func(u *control.Rule) { u.Type, u.Queue = "charge", scope },
		"scope":                  func(u *control.Rule) { u.Scope = scope + ":charge" },
		"scope with every type":  func(u *control.Rule) { u.Scope, u.Type = scope, "charge" },
		"another queue's":        func(u *control.Rule) { u.Type, u.Queue = "charge", "other" },
		"another type, and both": func(u *control.Rule) { u.Type, u.Scope = "refund", scope },
	} {
		paused := !strings.HasPrefix(name, "another")
		t.Run(name, func(t *testing.T) {
			bubble(t, nil, func(r *rig) {
				id := r.orders(50*time.Minute, set)
				r.start()
				r.put(jobOf("charge", "c-1", ""), jobOf("mail", "m-1", ""), jobOf("charge", "c-2", "g"), jobOf("mail", "m-2", "g"))
				pass(time.Minute)
				r.wantOutcomes("m-1", "done")
				if !paused {
					r.wantOutcomes("c-1", "done")
					return
				}
				if r.seen.started("c-1")+r.seen.started("c-2")+r.seen.started("m-2") != 0 {
					t.Error("a paused job, or one behind it, was started")
				}
				if rec, err := r.store.Store.Get(r.Context(), []dedupe.Key{{Scope: scope + ":charge", Key: "c-1"}}); err != nil || rec[0] != nil {
					t.Errorf("the paused key is %+v, %v", rec[0], err)
				}
				pass(30 * time.Minute)
				var before []time.Duration
				for _, e := range r.seen.of("c-1") {
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
				r.rules(func(rs *controlstore.Rules) { rs.Remove(id) })
				pass(18 * time.Minute)
				for _, e := range r.seen.of("c-1") {
					if e.Outcome == onceq.OutcomeDone && e.Attempt != 1 {
						t.Errorf("the pause cost attempts: %+v", e)
					}
				}
				if r.seen.started("c-1") != 1 || r.seen.started("c-2") != 1 || r.seen.started("m-2") != 1 {
					t.Error("after the pause not all have run")
				}
			}, steered, preset(membroker.SQSFIFO), with(func(c *setup) { c.Handler = mux }))
		})
	}
}

func jobOf(typ, key, group string) broker.Outgoing {
	m := message(key)
	m.Meta.Type, m.Group = typ, group
	if group == "" {
		m.Group = key
	}
	return m
}

// TestLimitedByRule: a limit bounds new starts at once, and ends.
func TestLimitedByRule(t *testing.T) {
	for _, prefetch := range []int{0, -1} {
		var busy peak.Gauge
		h := func(context.Context, *onceq.Job) error {
			busy.In()
			takes(time.Minute)
			busy.Out()
			return nil
		}
		bubble(t, h, func(r *rig) {
			r.start()
			for i := range 100 {
				r.send(fmt.Sprint(i))
			}
			pass(time.Second)
			all := busy.Top() // without a prefetch a worker asks for a few at once
			if all < 6 {
				t.Errorf("%d handlers at once", all)
			}
			id := r.orders(time.Hour, func(u *control.Rule) { u.Queue, u.Do, u.Slots = scope, control.Limit, 3 })
			pass(bound + time.Minute)
			busy.Reset()
			pass(5 * time.Minute)
			if h := r.w.Health(); busy.Top() != 3 || h.Slots != 3 || h.State != onceq.StateRunning || !strings.Contains(fmt.Sprint(h.Reasons), "limited to 3 slots by rule "+id) {
				t.Errorf("%d handlers at once, %+v", busy.Top(), h)
			}
			r.rules(func(rs *controlstore.Rules) { rs.Remove(id) })
			pass(2 * time.Minute)
			if busy.Top() < all || r.w.Stats().Slots != 10 {
				t.Errorf("after the limit %d handlers run at once", busy.Top())
			}
			pass(20 * time.Minute)
			r.wantQueue(0)
		}, steered, with(func(c *setup) { c.Prefetch = prefetch }))
	}
}

// TestRefusedToReadRules: where the store answers others and refuses to tell the rules, a worker
// starts without them after 30 seconds and says so, and obeys as soon as it can read them. Where
// they are required it waits.
func TestRefusedToReadRules(t *testing.T) {
	h := func(context.Context, *onceq.Job) error { return nil }
	bubble(t, h, func(r *rig) {
		r.refuse(errors.New("AccessDenied: dynamodb:GetItem"))
		r.send("a")
		r.start()
		pass(29 * time.Second)
		r.wantOutcomes("a")
		pass(10 * time.Second)
		r.wantOutcomes("a", "done")
		if h := r.w.Health(); h.State != onceq.StateRunning || !strings.Contains(fmt.Sprint(h.Reasons), "operators' rules cannot be read") {
			t.Errorf("the worker is %+v", h)
		}
		r.wantEvents("started", "rule-refused")
		if r.log.count("level=ERROR", "the worker starts without them") != 1 {
			t.Error("no line says so")
		}
		r.mend()
		r.orders(time.Hour, ofQueue)
		pass(bound)
		if h := r.w.Health(); h.State != onceq.StatePaused || len(h.Reasons) != 1 {
			t.Errorf("the worker is %+v", h)
		}
	}, steered, watched)
	bubble(t, h, func(r *rig) {
		r.refuse(errors.New("AccessDenied: dynamodb:GetItem"))
		r.send("a")
		r.start()
		pass(24 * time.Hour)
		r.wantOutcomes("a")
		r.mend()
		pass(time.Minute)
		r.wantOutcomes("a", "done")
	}, steered, warnings, with(func(c *setup) { c.Control.Required = true }))
}

// TestUnreadableRules: rules that nobody can read are as a store that refuses them.
func TestUnreadableRules(t *testing.T) {
	h := func(context.Context, *onceq.Job) error { return nil }
	bubble(t, h, func(r *rig) {
		q := dedupe.ClaimRequest{Key: dedupe.Key{Scope: controlstore.ScopeControl, Key: "rules"}, Token: dedupe.Token{1}, TTL: time.Hour}
		if _, err := r.store.Store.Claim(r.Context(), []dedupe.ClaimRequest{q}); err != nil {
			t.Fatal(err)
		}
		if _, err := r.store.Store.Renew(r.Context(), []dedupe.Renewal{{Key: q.Key, Token: q.Token, TTL: time.Hour, State: []byte("?"), StateNo: 1}}); err != nil {
			t.Fatal(err)
		}
		r.send("a")
		r.run(time.Minute)
		r.wantOutcomes("a", "done")
	}, steered)
}

// TestSeatOfWorker: a worker is seen with what it does, and leaves when it has drained. A store
// that hangs does not hold up the end.
func TestSeatOfWorker(t *testing.T) {
	h := func(context.Context, *onceq.Job) error { takes(45 * time.Second); return nil }
	bubble(t, h, func(r *rig) {
		r.send("a", "b")
		r.start()
		pass(25 * time.Second)
		seats := r.seats()
		if len(seats) != 1 || seats[0].Status == nil || seats[0].Name != r.w.Health().Seat {
			t.Fatalf("the seats are %+v, and Health says %q", seats, r.w.Health().Seat)
		}
		c := seats[0].Status
		if c.State != "running" || c.Slots != 10 || c.Busy != 2 || len(c.Jobs) != 2 || c.Running("a") == nil || c.Running("b") == nil || c.Scope != scope {
			t.Errorf("the card is %+v", c)
		}
		if j := c.Running("a"); j != nil && (j.Attempt != 1 || j.Fence == 0 || j.At.After(time.Now().Add(-20*time.Second))) {
			t.Errorf("the job is %+v", j)
		}
		pass(40 * time.Second)
		if c := r.seats()[0].Status; c.Outcomes["done"] != 2 || c.Busy != 0 || len(c.Jobs) != 0 || c.Rate <= 0 {
			t.Errorf("the card is %+v", c)
		}
		if err := r.stop(); err != nil {
			t.Fatal(err)
		}
		if s := r.seats(); len(s) != 1 || !s[0].Left {
			t.Errorf("after the drain the seats are %+v", s)
		}
	}, steered)
	bubble(t, h, func(r *rig) {
		r.send("a")
		r.start()
		pass(15 * time.Second)
		r.stopNow()
		pass(15 * time.Second)
		if s := r.seats(); len(s) != 1 || !s[0].Live(time.Now()) || s[0].Status.State != "draining" {
			t.Errorf("during the drain the seats are %+v", s)
		}
		if j := r.seats()[0].Status.Jobs; len(j) != 1 || j[0].Key != "" || j[0].ID == "" {
			t.Errorf("without keys the jobs are %+v", j)
		}
	}, steered, with(func(c *setup) { c.Control.NoKeys = true; c.DrainTimeout = time.Minute }))
	bubble(t, h, func(r *rig) {
		r.start()
		pass(15 * time.Second)
		r.store.set(func(s *store) { s.fault = func(onceqtest.Call) faulty.Faults { return faulty.Hang() } })
		began := time.Now()
		if err := r.stop(); err != nil || time.Since(began) > 3*time.Second {
			t.Errorf("Run ended after %v: %v", time.Since(began), err)
		}
	}, steered)
	bubble(t, h, func(r *rig) { // nor beyond the hard end
		r.start()
		pass(15 * time.Second)
		r.store.set(func(s *store) { s.fault = func(onceqtest.Call) faulty.Faults { return faulty.Hang() } })
		began := time.Now()
		if err := r.stop(); err != nil || time.Since(began) > 500*time.Millisecond {
			t.Errorf("Run ended after %v: %v", time.Since(began), err)
		}
	}, steered, with(func(c *setup) { c.DrainTimeout, c.SettleTimeout = -1, 500*time.Millisecond }))
}

func (r *rig) seats() []controlstore.Sitting {
	r.Helper()
	s, err := controlstore.Seats(r.Context(), r.store.Store, scope)
	if err != nil {
		r.Fatal(err)
	}
	return s
}

// TestLostSeat: a worker whose seat was removed takes another, and tells of it.
func TestLostSeat(t *testing.T) {
	bubble(t, func(context.Context, *onceq.Job) error { return nil }, func(r *rig) {
		r.start()
		pass(time.Second)
		k := dedupe.Key{Scope: controlstore.ScopeWorker, Key: r.w.Health().Seat}
		rec, err := r.store.Store.Get(r.Context(), []dedupe.Key{k})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.store.Store.Forget(r.Context(), []dedupe.Forgotten{{Key: k, Fence: rec[0].Fence, Force: true}}); err != nil {
			t.Fatal(err)
		}
		pass(bound)
		r.wantEvents("started", "seat-lost")
		if s := r.seats(); len(s) != 1 || !s[0].Live(time.Now()) || r.w.Health().Seat == "" {
			t.Errorf("the seats are %+v", s)
		}
	}, steered, watched)
}
