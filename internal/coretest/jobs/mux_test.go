package jobs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/coretest/rig"
)

// at is what the store keeps for the key in that scope.
func at(r *rig.Rig, scope, k string) dedupe.Status {
	r.Helper()
	rs, err := r.Store.Store.Get(r.Context(), []dedupe.Key{{Scope: scope, Key: k}})
	if err != nil {
		r.Fatal(err)
	}
	if rs[0] == nil {
		return 0
	}
	return rs[0].Status
}

func TestTypesHaveTheirOwnScopes(t *testing.T) {
	ran := make(map[string]int)
	note := func(typ string) onceq.HandlerFunc {
		return func(context.Context, *onceq.Job) error { ran[typ]++; return nil }
	}
	mux := new(onceq.Mux)
	mux.On("mail", note("mail"), nil)
	mux.On("pay", note("pay"), nil)
	mux.On("own", note("own"), &onceq.JobOptions{Scope: "elsewhere"})
	rig.SynctestMux(t, mux, func(r *rig.Rig) {
		r.Put(rig.Typed("mail", "a"), rig.Typed("pay", "a"), rig.Typed("own", "a"))
		r.RunFor(time.Second)
		for s, want := range map[string]dedupe.Status{"test:mail": dedupe.Done, "test:pay": dedupe.Done, "elsewhere": dedupe.Done, "test": 0} {
			if got := at(r, s, "a"); got != want {
				t.Errorf("in scope %q the record is %v, want %v", s, got, want)
			}
		}
		if len(ran) != 3 {
			t.Errorf("ran %v", ran)
		}
	}, rig.With(func(c *rig.Setup) { c.Concurrency = 1 }))
}

func TestUnknownTypeIsRetriedAndFoundLater(t *testing.T) {
	mux := new(onceq.Mux)
	mux.On("known", rig.Returns(nil), nil)
	rig.SynctestMux(t, mux, func(r *rig.Rig) {
		r.Put(rig.Typed("new", "a"))
		r.RunFor(2500 * time.Millisecond)
		if got := at(r, "test:new", "a"); got != dedupe.Released {
			t.Errorf("under the type's scope the record is %v, want released", got)
		}
		recs, err := r.Store.Get(t.Context(), []dedupe.Key{{Scope: "test:new", Key: "a"}})
		if err != nil {
			t.Fatal(err)
		}
		if rec := recs[0]; rec.ErrClass != onceq.ClassNoHandler || !strings.Contains(rec.LastErr, `"new"`) {
			t.Errorf("the record is %+v", rec)
		}
		r.NoLetters()
		r.WantQueue(1)
		deployed := new(onceq.Mux)
		deployed.On("new", rig.Returns(nil), nil)
		r.W = r.Worker(func(c *rig.Setup) { c.Handler = deployed })
		r.RunFor(time.Minute)
		if got := at(r, "test:new", "a"); got != dedupe.Done {
			t.Errorf("after the deployment the record is %v", got)
		}
		r.WantQueue(0)
	}, rig.Steady)
	rig.SynctestMux(t, mux, func(r *rig.Rig) {
		r.Put(rig.Typed("new", "a"), rig.Typed("", "b"))
		r.RunFor(time.Minute)
		for _, m := range r.Letters() {
			if m.Meta.Dead.Class != onceq.ClassNoHandler {
				t.Errorf("the letter is %+v", m.Meta.Dead)
			}
		}
		r.WantQueue(0)
	}, rig.Steady, rig.Most(3))
}

func TestMuxChecks(t *testing.T) {
	h := rig.Returns(nil)
	for name, c := range map[string]struct {
		set  func(m *onceq.Mux)
		want string
	}{
		"nothing":      {func(*onceq.Mux) {}, "no handlers"},
		"empty type":   {func(m *onceq.Mux) { m.On("", h, nil) }, "type is empty"},
		"twice":        {func(m *onceq.Mux) { m.On("a", h, nil); m.On("a", h, nil) }, `"a" has a handler`},
		"nil":          {func(m *onceq.Mux) { m.On("a", nil, nil) }, `"a" is nil`},
		"nil function": {func(m *onceq.Mux) { m.On("a", onceq.HandlerFunc(nil), nil) }, `"a" is nil`},
		"nil JSON":     {func(m *onceq.Mux) { m.On("a", onceq.JSON[int](nil), nil) }, `"a" is nil`},
		"nil JSONResult": {
			func(m *onceq.Mux) { m.On("a", onceq.JSONResult[int, int](nil), nil) }, `"a" is nil`,
		},
		"options":  {func(m *onceq.Mux) { m.On("a", h, &onceq.JobOptions{Timeout: -1}) }, `Mux.On("a") options.Timeout`},
		"scope":    {func(m *onceq.Mux) { m.On("a", h, &onceq.JobOptions{Scope: "a:b"}) }, `Mux.On("a") options.Scope`},
		"NUL":      {func(m *onceq.Mux) { m.On("a\x00", h, nil) }, "NUL"},
		"too long": {func(m *onceq.Mux) { m.On(strings.Repeat("t", 251), h, nil) }, "255"},
		"not UTF-8": {
			func(m *onceq.Mux) { m.On("\xff", h, nil) }, "UTF-8",
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := new(onceq.Mux)
			c.set(m)
			cfg := rig.Config(t)
			cfg.Handler = m
			_, err := rig.NewWorker(cfg)
			if _, ok := errors.AsType[*onceq.ConfigError](err); !ok || !strings.Contains(err.Error(), c.want) {
				t.Errorf("New answered %v, want a ConfigError with %q", err, c.want)
			}
		})
	}
	m := new(onceq.Mux)
	m.On(strings.Repeat("t", 250), h, nil)
	m.On("b", h, &onceq.JobOptions{})
	cfg := rig.Config(t)
	cfg.Handler = m
	if _, err := rig.NewWorker(cfg); err != nil {
		t.Errorf("New answered %v", err)
	}
	if got := m.Types(); len(got) != 2 || !slices.IsSorted(got) {
		t.Errorf("the types are %q", got)
	}
}

func TestMiddlewareOrder(t *testing.T) {
	var order []string
	mw := func(name string) onceq.Middleware {
		return func(h onceq.Handler) onceq.Handler {
			return onceq.HandlerFunc(func(ctx context.Context, j *onceq.Job) error {
				order = append(order, name)
				return h.Handle(ctx, j)
			})
		}
	}
	h := onceq.HandlerFunc(func(context.Context, *onceq.Job) error { order = append(order, "handler"); return nil })
	mux := new(onceq.Mux)
	mux.Use(mw("1"))
	mux.On("before", h, nil)
	mux.Use(mw("2"), mw("3"))
	mux.On("after", onceq.Chain(h, mw("own"), mw("inner")), nil)
	rig.SynctestMux(t, mux, func(r *rig.Rig) {
		for typ, want := range map[string][]string{
			"before": {"1", "2", "3", "handler"},
			"after":  {"1", "2", "3", "own", "inner", "handler"},
		} {
			order = nil
			r.Put(rig.Typed(typ, typ))
			r.RunFor(time.Second)
			if !slices.Equal(order, want) {
				t.Errorf("%q went through %q, want %q", typ, order, want)
			}
		}
	})
}

func TestParkWinsOverTheType(t *testing.T) {
	for _, c := range []struct {
		defaults, typ dedupe.Policy
		parks         bool
	}{{dedupe.Rerun, dedupe.Rerun, false}, {dedupe.Rerun, dedupe.Park, true}, {dedupe.Park, dedupe.Rerun, true}} {
		mux := new(onceq.Mux)
		mux.On("t", onceq.HandlerFunc(func(context.Context, *onceq.Job) error { panic("boom") }), &onceq.JobOptions{Interrupted: c.typ})
		rig.SynctestMux(t, mux, func(r *rig.Rig) {
			r.Put(rig.Typed("t", "a"))
			r.RunFor(500 * time.Millisecond)
			if got := at(r, "test:t", "a") == dedupe.Parked; got != c.parks {
				t.Errorf("%+v: parked %v", c, got)
			}
		}, rig.Steady, rig.With(func(cfg *rig.Setup) { cfg.Defaults.Interrupted = c.defaults }))
	}
}

func TestKeyMayNameItsScope(t *testing.T) {
	rig.Bubble(t, rig.Returns(nil), func(r *rig.Rig) {
		r.Send("a", "b")
		r.RunFor(time.Second)
		if at(r, "mine", "a") != dedupe.Done || at(r, rig.Scope, "b") != dedupe.Done {
			t.Errorf("records: %v, %v", at(r, "mine", "a"), at(r, rig.Scope, "b"))
		}
	}, rig.With(func(c *rig.Setup) {
		c.Key = func(m *broker.Message) (dedupe.Key, error) {
			k := dedupe.Key{Key: string(m.Body)}
			if k.Key == "a" {
				k.Scope = "mine"
			}
			return k, nil
		}
	}))
}

func TestDefaultsMayNameTheScope(t *testing.T) {
	rig.Bubble(t, rig.Returns(nil), func(r *rig.Rig) {
		r.Send("a")
		r.RunFor(time.Second)
		if got := at(r, "other", "a"); got != dedupe.Done {
			t.Errorf("the record is %v", got)
		}
	}, rig.With(func(c *rig.Setup) { c.Defaults.Scope = "other" }))
}

func TestJobsOfAType(t *testing.T) {
	mux := new(onceq.Mux)
	mux.On("t", onceq.HandlerFunc(func(_ context.Context, j *onceq.Job) error {
		if j.Type() != "t" || j.Key() != (dedupe.Key{Scope: "test:t", Key: "a"}) || j.Fence() == 0 || j.ID() == "" || j.Retain() != onceq.DefaultRetention ||
			j.Lease().Fence != j.Fence() || j.Lease().Key != j.Key() || j.Lease().Attempt != 1 {
			return fmt.Errorf("the job is %+v, lease %+v", j, j.Lease())
		}
		return nil
	}), nil)
	rig.SynctestMux(t, mux, func(r *rig.Rig) {
		r.Put(rig.Typed("t", "a"))
		r.RunFor(500 * time.Millisecond)
		rs, err := r.Store.Store.Get(r.Context(), []dedupe.Key{{Scope: "test:t", Key: "a"}})
		if err != nil || rs[0].Status != dedupe.Done {
			t.Errorf("%+v, %v", rs[0], err)
		}
		if rec := r.Seen.Ends[0]; rec.Type != "t" || rec.JobID == "" {
			t.Errorf("the job report is %+v", rec)
		}
	}, rig.Steady)
}

func TestTimeoutWins(t *testing.T) {
	mux := new(onceq.Mux)
	mux.On("t", rig.Works(time.Hour), &onceq.JobOptions{Timeout: 20 * time.Second})
	mux.On("u", rig.Works(time.Hour), nil)
	rig.SynctestMux(t, mux, func(r *rig.Rig) {
		for _, c := range []struct {
			typ     string
			timeout time.Duration
			want    time.Duration
		}{{"t", 5 * time.Second, 5 * time.Second}, {"t", 0, 20 * time.Second}, {"u", 0, 30 * time.Second}} {
			m := rig.Message(c.typ + c.timeout.String())
			m.Meta.Type, m.Meta.Timeout = c.typ, c.timeout
			r.Put(m)
			r.RunFor(45 * time.Second)
			for _, rec := range r.Seen.Of(m.Meta.Key) {
				if rec.Outcome != "handed-back" && (rec.Process != c.want || rec.ErrClass != onceq.ClassTimeout) {
					t.Errorf("%+v ran for %v, class %q", c, rec.Process, rec.ErrClass)
				}
			}
		}
	}, rig.Most(1), rig.With(func(c *rig.Setup) { c.Defaults.Timeout = 30 * time.Second }))
}
