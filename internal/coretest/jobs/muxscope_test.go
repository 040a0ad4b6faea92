package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/control"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/coretest/rig"
)

type anOrder struct{ OrderID string }

// orderKey is that of docs/foreign-producers.md.
func orderKey(m *broker.Message) (dedupe.Key, error) {
	if m.Meta != nil && m.Meta.Key != "" { // one of our own producers
		return dedupe.Key{Key: m.Meta.Key}, nil
	}
	var body anOrder
	if err := json.Unmarshal(m.Body, &body); err != nil || body.OrderID == "" {
		return dedupe.Key{}, errors.New("no OrderID in the body")
	}
	return dedupe.Key{Key: body.OrderID}, nil
}

// charges counts the runs of each order.
type charges map[string]int

func (c charges) charge(_ context.Context, _ *onceq.Job, o anOrder) error {
	c[o.OrderID]++
	return nil
}

func (c charges) want(t *testing.T, orders ...string) {
	t.Helper()
	for _, o := range orders {
		if c[o] != 1 {
			t.Errorf("order %s was charged %d times", o, c[o])
		}
	}
	if len(c) != len(orders) {
		t.Errorf("the charges are %v, want of %q", c, orders)
	}
}

// A queue comes to a Mux in steps: bare messages and one handler, the same with a Mux, then a Kind.
// Whoever says what the new type was keeps its keys: what was done is not done again, in whichever
// form it comes. Where the steps need it, old and new workers run side by side.
func TestTheWayToAMux(t *testing.T) {
	kind := func(typ, was string) onceq.Kind[anOrder] {
		return onceq.Kind[anOrder]{Type: typ, Key: func(o anOrder) string { return o.OrderID }, Options: onceq.JobOptions{Was: was}}
	}
	one := func(c charges) onceq.Handler { return onceq.JSON(c.charge) }
	mux := func(set func(m *onceq.Mux), ks ...onceq.Kind[anOrder]) func(c charges) onceq.Handler {
		return func(c charges) onceq.Handler {
			m := new(onceq.Mux)
			for _, k := range ks {
				k.On(m, c.charge)
			}
			if set != nil {
				set(m)
			}
			return m
		}
	}
	heir := kind("order", onceq.OneHandler)
	untyped := func(m *onceq.Mux) { m.Untyped("order") }
	bare := func(r *rig.Rig, id string) { r.SendForeign(`{"OrderID":"` + id + `"}`) }
	by := func(k onceq.Kind[anOrder]) func(r *rig.Rig, id string) {
		return func(r *rig.Rig, id string) {
			if err := k.Send(r.Context(), r.Q, anOrder{id}); err != nil {
				r.Fatal(err)
			}
		}
	}
	for name, c := range map[string]struct {
		old, young func(c charges) onceq.Handler
		first      func(r *rig.Rig, id string)
		again      []func(r *rig.Rig, id string)
	}{
		"bare messages to a Kind":       {one, mux(untyped, heir), bare, []func(*rig.Rig, string){bare, by(heir)}},
		"typed messages to a Kind":      {one, mux(nil, heir), by(heir), []func(*rig.Rig, string){by(heir)}},
		"several types, in one scope":   {one, mux((*onceq.Mux).OneScope, kind("order", ""), kind("refund", "")), by(kind("order", "")), []func(*rig.Rig, string){by(kind("order", ""))}},
		"one scope, and bare messages":  {one, mux(func(m *onceq.Mux) { m.OneScope(); m.Untyped("order") }, kind("order", "")), bare, []func(*rig.Rig, string){bare, by(kind("order", ""))}},
		"a type gets another name":      {mux(nil, kind("order", "")), mux(nil, kind("purchase", "order")), by(kind("order", "")), []func(*rig.Rig, string){by(kind("order", "")), by(kind("purchase", ""))}},
		"a Mux gets bare messages":      {mux(nil, kind("order", "")), mux(untyped, kind("order", "order")), by(kind("order", "")), []func(*rig.Rig, string){bare, by(kind("order", ""))}},
		"the one handler, by its Scope": {one, mux(untyped, onceq.Kind[anOrder]{Type: "order", Key: heir.Key, Options: onceq.JobOptions{Scope: rig.Scope}}), bare, []func(*rig.Rig, string){by(heir)}},
	} {
		t.Run(name, func(t *testing.T) {
			done := charges{}
			rig.Bubble(t, nil, func(r *rig.Rig) {
				old := r.Worker(func(s *rig.Setup) { s.Handler = c.old(done) })
				young := r.Worker(func(s *rig.Setup) { s.Handler = c.young(done) })
				c.first(r, "A-1")
				r.W = old
				r.RunFor(time.Minute)
				done.want(t, "A-1")
				for _, send := range c.again {
					send(r, "A-1")
				}
				r.W = young
				r.RunFor(time.Minute)
				done.want(t, "A-1")
				r.NoLetters()

				// A deploy: each delivery goes to one or to the other.
				r.W = old
				r.Start()
				ctx, stop := context.WithCancel(r.Context())
				ended := make(chan error, 1)
				go func() { ended <- young.Run(ctx) }()
				for range 4 {
					c.first(r, "A-2")
					rig.Pass(time.Second)
					for _, send := range c.again {
						send(r, "A-2")
						rig.Pass(time.Second)
					}
				}
				rig.Pass(time.Minute)
				stop()
				if err := <-ended; err != nil {
					r.Error(err)
				}
				if err := r.Stop(); err != nil {
					r.Error(err)
				}
				done.want(t, "A-1", "A-2")

				r.W = young // and what comes in the former form later
				c.first(r, "A-3")
				r.RunFor(time.Minute)
				done.want(t, "A-1", "A-2", "A-3")
				r.NoLetters()
			}, rig.With(func(s *rig.Setup) { s.Key, s.Handler = orderKey, one(done) }))
		})
	}
}

// A letter of the single handler is replayed under the Mux: it reopens the failure that it is of.
func TestLettersOnTheWayToAMux(t *testing.T) {
	done, mended := charges{}, false
	h := func(ctx context.Context, j *onceq.Job, o anOrder) error {
		if !mended {
			return onceq.Permanent(rig.ErrBoom)
		}
		return done.charge(ctx, j, o)
	}
	rig.Bubble(t, nil, func(r *rig.Rig) {
		r.SendForeign(`{"OrderID":"A-1"}`)
		r.RunFor(time.Minute)
		mended = true
		l := r.Letter(onceq.ClassPermanent)
		var mux onceq.Mux
		mux.On("order", onceq.JSON(h), &onceq.JobOptions{Was: onceq.OneHandler})
		mux.Untyped("order")
		r.W = r.Worker(func(s *rig.Setup) { s.Handler = &mux })
		r.Replay(l)
		r.RunFor(time.Minute)
		r.NoLetters()
		done.want(t, "A-1")
		r.WantStatus("A-1", dedupe.Done)
	}, rig.With(func(s *rig.Setup) { s.Key, s.Handler = orderKey, onceq.JSON(h) }))
}

// What the Mux is not told would put keys into two places, so it asks.
func TestMuxScopeMistakes(t *testing.T) {
	h := onceq.HandlerFunc(func(context.Context, *onceq.Job) error { return nil })
	for name, c := range map[string]struct {
		set   func(m *onceq.Mux, s *rig.Setup)
		field string
		want  string
	}{
		"untyped, and nobody says where its keys are": {func(m *onceq.Mux, _ *rig.Setup) { m.On("a", h, nil); m.Untyped("a") }, "Mux.Untyped", "OneHandler"},
		"untyped without a handler":                   {func(m *onceq.Mux, _ *rig.Setup) { m.On("a", h, nil); m.Untyped("b") }, "Mux.Untyped", "no handler"},
		"untyped twice":                               {func(m *onceq.Mux, _ *rig.Setup) { m.On("a", h, nil); m.Untyped("a"); m.Untyped("b") }, "Mux.Untyped", `"b"`},
		"untyped without a name":                      {func(m *onceq.Mux, _ *rig.Setup) { m.On("a", h, nil); m.Untyped("") }, "Mux.Untyped", "want one"},
		"two heirs of the one handler": {func(m *onceq.Mux, _ *rig.Setup) {
			m.On("a", h, &onceq.JobOptions{Was: onceq.OneHandler})
			m.On("b", h, &onceq.JobOptions{Was: onceq.OneHandler})
		}, `Mux.On("b") options.Was`, "OneScope"},
		"Was beside Scope": {func(m *onceq.Mux, _ *rig.Setup) { m.On("a", h, &onceq.JobOptions{Was: "b", Scope: "c"}) }, `Mux.On("a") options.Was`, "one scope"},
		"a Was that is too long": {func(m *onceq.Mux, _ *rig.Setup) {
			m.On("a", h, &onceq.JobOptions{Was: strings.Repeat("x", 255)})
		}, `Mux.On("a")`, "255"},
		"the Defaults": {func(m *onceq.Mux, s *rig.Setup) { m.On("a", h, nil); s.Defaults.Was = "b" }, "ProcessorConfig.Defaults.Was", "type of a Mux"},
	} {
		cfg := rig.Config(t)
		var m onceq.Mux
		c.set(&m, &cfg)
		cfg.Handler = &m
		_, err := rig.NewWorker(cfg)
		var bad *onceq.ConfigError
		if !errors.As(err, &bad) || bad.Field != c.field || !strings.Contains(bad.Reason, c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A type that this worker does not know yet has its keys where the worker has them that knows it.
func TestUnknownTypesUnderOneScope(t *testing.T) {
	for _, one := range []bool{false, true} {
		mux := new(onceq.Mux)
		mux.On("known", onceq.HandlerFunc(rig.Never(t)), nil)
		want := "test:new"
		if one {
			mux.OneScope()
			want = "other"
		}
		rig.SynctestMux(t, mux, func(r *rig.Rig) {
			r.Put(rig.Typed("new", "a"))
			r.RunFor(500 * time.Millisecond)
			if rs, err := r.Store.Store.Get(r.Context(), []dedupe.Key{{Scope: want, Key: "a"}}); err != nil || rs[0] == nil {
				t.Errorf("no record in the scope %q: %v", want, err)
			}
		}, rig.Steady, rig.With(func(c *rig.Setup) { c.Defaults.Scope = "other" }))
	}
}

// Who pauses a type pauses its jobs by each name that they come under.
func TestPausedByEachName(t *testing.T) {
	mux := new(onceq.Mux)
	mux.On("purchase", onceq.HandlerFunc(func(context.Context, *onceq.Job) error { return nil }), &onceq.JobOptions{Was: "order"})
	mux.Untyped("purchase")
	rig.Bubble(t, nil, func(r *rig.Rig) {
		r.Orders(50*time.Minute, func(u *control.Rule) { u.Type = "purchase" })
		r.Start()
		r.Put(rig.JobOf("purchase", "new", ""), rig.JobOf("order", "former", ""), rig.JobOf("", "none", ""))
		rig.Pass(30 * time.Minute)
		if r.Seen.Started("new")+r.Seen.Started("former")+r.Seen.Started("none") != 0 {
			t.Error("a paused job was started")
		}
		rig.Pass(time.Hour)
		for _, k := range []string{"new", "former", "none"} {
			if r.Seen.Started(k) != 1 {
				t.Errorf("%q was started %d times after the pause", k, r.Seen.Started(k))
			}
		}
	}, rig.Steered, rig.With(func(c *rig.Setup) { c.Handler = mux }))
}
