package jobs

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/control"
	"github.com/onceq/onceq/internal/controlstore"
	"github.com/onceq/onceq/internal/coretest/rig"
	"github.com/onceq/onceq/internal/must"
)

// sitsBeside takes the seat of another worker of the rig's queue, with the settings of the rig's.
func sitsBeside(r *rig.Rig, owner string, change func(*control.WorkerStatus)) *controlstore.Seat {
	r.Helper()
	s := must.Get(controlstore.NewSeat(r.Store.Store, controlstore.SeatOptions{Queue: rig.Scope, Owner: owner, TTL: time.Hour}))
	c := &control.WorkerStatus{At: time.Now(), Started: time.Now(), State: "running", Scope: rig.Scope, Retention: onceq.DefaultRetention, Interrupted: "rerun"}
	if change != nil {
		change(c)
	}
	if err := s.Beat(r.Context(), c); err != nil {
		r.Fatal(err)
	}
	return s
}

// TestNeighbours: a worker tells once of each other one whose settings have jobs done twice, and of
// one that starts beside it soon after, too.
func TestNeighbours(t *testing.T) {
	h := func(context.Context, *onceq.Job) error { return nil }
	told := func(r *rig.Rig, want int, texts ...string) {
		r.Helper()
		if n := r.Logged.Count(append([]string{"level=ERROR", "another live worker of the queue"}, texts...)...); n != want {
			r.Errorf("%d lines with %q, want %d", n, texts, want)
		}
	}
	rig.Bubble(t, h, func(r *rig.Rig) {
		sitsBeside(r, "same", nil)
		sitsBeside(r, "older", func(c *control.WorkerStatus) { c.Retention, c.Interrupted = 0, "" })
		sitsBeside(r, "w-8", func(c *control.WorkerStatus) { c.Scope = "order" })
		gone := sitsBeside(r, "gone", func(c *control.WorkerStatus) { c.Scope = "order" })
		other := sitsBeside(r, "other", func(c *control.WorkerStatus) { c.Retention = time.Hour })
		if err := errors.Join(gone.Leave(r.Context()), other.Leave(r.Context())); err != nil {
			t.Fatal(err)
		}
		r.Start()
		rig.Pass(25 * time.Second)
		told(r, 1)
		if n := r.Logged.Count("level=ERROR", "worker that the queue had before", `Scope \"order\"`, "done again if it comes again", "worker=gone"); n != 1 || r.Logged.Count("had before") != 1 {
			r.Errorf("of the worker that has left %d lines tell", n)
		}
		told(r, 1, "order", "each job may be done by both", "worker=w-8")
		sitsBeside(r, "w-9", func(c *control.WorkerStatus) { c.Retention = time.Hour })
		sitsBeside(r, "w-7", func(c *control.WorkerStatus) { c.Interrupted = "park" })
		rig.Pass(150 * time.Second)
		told(r, 3)
		told(r, 1, "Retention 1h0m0s", "worker=w-9")
		told(r, 1, "Defaults.Interrupted", "worker=w-7")
		rig.Pass(20 * time.Minute)
		told(r, 3)
	}, rig.Steered)
}

// TestNeighboursKeys: the rule: a worker tells of another one of its Scope that has the keys of the
// same jobs in another scope, as one handler has that became a Mux which does not say so. A choice
// that is stated is not told, and a card without room proves nothing.
func TestNeighboursKeys(t *testing.T) {
	mux := func(set func(*onceq.Mux), types ...string) onceq.Handler {
		m := new(onceq.Mux)
		for _, t := range types {
			typ, was, _ := strings.Cut(t, "<")
			m.On(typ, rig.Returns(nil), &onceq.JobOptions{Was: was})
		}
		if set != nil {
			set(m)
		}
		return m
	}
	one, untyped := rig.Returns(nil), func(m *onceq.Mux) { m.Untyped("refund") }
	for name, c := range map[string]struct {
		own    onceq.Handler
		types  []string
		scopes map[string]string
		rules  int // that pause the other one
		told   string
	}{
		"one handler beside a Mux":           {own: one, types: []string{"order"}, told: `type \"order\" in the scope \"` + rig.Scope + `:order\", and this one in \"` + rig.Scope + `\"`},
		"a Mux beside one handler":           {own: mux(nil, "order"), told: `type \"order\" in the scope \"` + rig.Scope + `\", and this one in \"` + rig.Scope + `:order\"`},
		"a Mux that says so":                 {own: mux(nil, "order<"+onceq.OneHandler, "refund")},
		"a Mux of one scope":                 {own: mux((*onceq.Mux).OneScope, "order", "refund")},
		"one handler, where the Mux says so": {own: one, types: []string{"order", "refund"}, scopes: map[string]string{"order": rig.Scope}},
		"types that each has":                {own: mux(nil, "order", "refund"), types: []string{"order", "mail"}},
		"one type is elsewhere":              {own: mux(nil, "order", "refund"), types: []string{"order", "refund"}, scopes: map[string]string{"refund": "money"}, told: `type \"refund\" in the scope \"money\"`},
		"another name":                       {own: mux(nil, "purchase<order"), types: []string{"order"}},
		"messages without a type":            {own: mux(untyped, "order<order", "refund<refund"), types: []string{"order", "refund"}, scopes: map[string]string{"": rig.Scope + ":order"}, told: `type \"\" in the scope \"` + rig.Scope + `:order\", and this one in \"` + rig.Scope + `:refund\"`},
		"who has none of these":              {own: mux(untyped, "order<order", "refund<refund"), types: []string{"order", "refund"}},
		"and the other way round":            {own: mux(nil, "order", "refund"), types: []string{"order", "refund"}, scopes: map[string]string{"": rig.Scope + ":order"}},
		"a card without room":                {own: mux(nil, "order"), types: []string{"mail"}, rules: 300},
	} {
		t.Run(name, func(t *testing.T) {
			rig.Bubble(t, one, func(r *rig.Rig) {
				sitsBeside(r, "w-8", func(s *control.WorkerStatus) {
					s.Types, s.Scopes, s.PausedBy = c.types, c.scopes, slices.Repeat([]string{"rule"}, c.rules)
				})
				r.W = r.Worker(func(s *rig.Setup) { s.Handler = c.own })
				r.RunFor(25 * time.Second)
				n, all := r.Logged.Count("level=ERROR", "another live worker", "worker=w-8", "JobOptions.Was", "each job may be done by both", c.told), r.Logged.Count("another live worker")
				if want := min(1, len(c.told)); all != want || want == 1 && n != 1 {
					r.Errorf("%d of %d lines tell, want %d", n, all, want)
				}
			}, rig.Steered)
		})
	}
}

// TestNeighboursBefore: the rule: a process that comes back as a Mux within a minute, and does not
// say so, tells that its own jobs are done again. So does one that takes the seat of a worker that
// has died. Neither settings that do no such harm, nor a Mux that says what it was, are told.
func TestNeighboursBefore(t *testing.T) {
	for name, c := range map[string]struct {
		was  string
		dead bool
		told int
	}{"it does not say so": {"", false, 1}, "it takes a seat": {"", true, 1}, "it says so": {onceq.OneHandler, false, 0}} {
		t.Run(name, func(t *testing.T) {
			rig.Bubble(t, rig.Returns(nil), func(r *rig.Rig) {
				if c.dead {
					sitsBeside(r, "w-8", nil)
					rig.Pass(time.Hour + 15*time.Minute)
				} else {
					r.RunFor(time.Minute)
					rig.Pass(30 * time.Second)
				}
				var m onceq.Mux
				m.On("order", rig.Returns(nil), &onceq.JobOptions{Was: c.was})
				r.W = r.Worker(func(s *rig.Setup) { s.Handler, s.Retention = &m, 30*day })
				r.RunFor(25 * time.Second)
				if n := r.Logged.Count("level=ERROR", "worker that the queue had before", `type \"order\"`); n != c.told || r.Logged.Count("had before") != n {
					r.Errorf("%d lines tell, want %d", n, c.told)
				}
			}, rig.Steered)
		})
	}
}

// TestNeighboursLongBefore: the rule: for as long as keys are kept, the first worker that looks for
// them elsewhere tells of it, though no seat shows any more who had them. The next ones do not, and
// neither does a Mux that says what it was, or one that comes when the keys are gone.
func TestNeighboursLongBefore(t *testing.T) {
	for name, c := range map[string]struct {
		after time.Duration
		was   string
		told  int
	}{"within Retention": {20 * day, "", 1}, "it says so": {20 * day, onceq.OneHandler, 0}, "after Retention": {32 * day, "", 0}} {
		t.Run(name, func(t *testing.T) {
			rig.Bubble(t, rig.Returns(nil), func(r *rig.Rig) {
				r.RunFor(time.Minute)
				rig.Pass(c.after)
				var m onceq.Mux
				m.On("order", rig.Returns(nil), &onceq.JobOptions{Was: c.was})
				for n := range 2 {
					r.W = r.Worker(func(s *rig.Setup) { s.Handler = &m })
					r.RunFor(25 * time.Second)
					if got := r.Logged.Count("level=ERROR", "worker that the queue had before", `type \"order\"`, "done again"); got != c.told || r.Logged.Count("had before") != got {
						r.Errorf("after worker %d %d lines tell, want %d", n, got, c.told)
					}
				}
			}, rig.Steered, func(r *rig.Rig) { r.Cfg.Retention = 30 * day })
		})
	}
}

// TestStrict: a strict worker does not start beside one with another scope, and does when that has
// left. A worker without a seat cannot be strict.
func TestStrict(t *testing.T) {
	h := func(context.Context, *onceq.Job) error { return nil }
	rig.Bubble(t, h, func(r *rig.Rig) {
		other := sitsBeside(r, "w-8", func(c *control.WorkerStatus) { c.Scope = "order" })
		r.Send("a")
		ctx, cancel := context.WithTimeout(r.Context(), time.Minute)
		defer cancel()
		err := r.W.Run(ctx)
		if !errors.Is(err, onceq.ErrWorkersDiffer) || !strings.Contains(err.Error(), `w-8 has Scope "order"`) {
			t.Errorf("Run: %v", err)
		}
		r.WantQueue(1)
		if err := other.Leave(r.Context()); err != nil {
			t.Fatal(err)
		}
		r.RunFor(time.Minute)
		r.WantOutcomes("a", "done")
	}, rig.Steered, rig.With(func(c *rig.Setup) { c.Control.Strict = true }))
	_, err := onceq.NewProcessor(onceq.ProcessorConfig{
		Scope: rig.Scope, Handler: onceq.HandlerFunc(h), Store: onceq.NoStore, Control: onceq.ControlOptions{Strict: true, Every: -1},
	})
	if err == nil || !strings.Contains(err.Error(), "ProcessorConfig.Control.Strict") {
		t.Error(err)
	}
}

// TestShortRetention: on a queue that keeps its messages for ever no Retention is refused, so a
// short one is told.
func TestShortRetention(t *testing.T) {
	for _, retention := range []time.Duration{time.Minute, 24 * time.Hour} {
		rig.Bubble(t, func(context.Context, *onceq.Job) error { return nil }, func(r *rig.Rig) {
			r.Q.ChangeLimits = func(l broker.Limits) broker.Limits { l.Durable = true; return l }
			r.W = r.Worker(func(f *rig.Setup) { f.Broker, f.Retention = rig.Keeping{Broker: r.Q}, retention })
			r.RunFor(time.Second)
			want := 0
			if retention < 24*time.Hour {
				want = 1
			}
			if n := r.Logged.Count("level=WARN", "Retention is short", "retention=1m0s"); n != want {
				t.Errorf("Retention %v: %d lines", retention, n)
			}
		})
	}
}
