package letters

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/coretest/rig"
)

// A message may lower the operator's limits. It may raise them, but not above the ceilings.
func TestMetaRaisesAttemptsToTheCeiling(t *testing.T) {
	for _, c := range []struct {
		name                   string
		worker, ceiling, asks  int
		typeAttempts, typeMost int
		want                   int
	}{
		{"nothing asked", 3, 0, 0, 0, 0, 3},
		{"fewer", 3, 0, 1, 0, 0, 1},
		{"more", 3, 0, 5, 0, 0, 5},
		{"unlimited", 3, 0, -1, 0, 0, 100},
		{"far more", 3, 0, 1 << 40, 0, 0, 100},
		{"the worker has more than the default ceiling", 120, 0, -1, 0, 0, 120},
		{"a ceiling of its own", 3, 4, 9, 0, 0, 4},
		{"a ceiling at the worker's own", 3, 3, -1, 0, 0, 3},
		{"a type's ceiling", 3, 0, -1, 6, 7, 7},
		{"a type under the default's ceiling", 3, 8, -1, 6, 0, 8},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := onceq.HandlerFunc(rig.Returns(rig.ErrBoom))
			rig.Bubble(t, rig.Returns(rig.ErrBoom), func(r *rig.Rig) {
				m := rig.Message("a")
				m.Meta.Type, m.Meta.MaxAttempts = "t", c.asks
				r.Put(m)
				r.RunFor(time.Hour)
				if n := r.Seen.Started("a"); n != c.want {
					t.Errorf("%d attempts, want %d", n, c.want)
				}
			}, rig.Steady, rig.With(func(cfg *rig.Setup) {
				cfg.Defaults.MaxAttempts, cfg.Defaults.Ceilings.Attempts = c.worker, c.ceiling
				if c.typeAttempts != 0 {
					var mux onceq.Mux
					mux.On("t", h, &onceq.JobOptions{MaxAttempts: c.typeAttempts, Ceilings: onceq.Ceilings{Attempts: c.typeMost}})
					cfg.Handler = &mux
				}
			}))
		})
	}
	for _, o := range []onceq.JobOptions{{MaxAttempts: -1}, {MaxAttempts: 3, Ceilings: onceq.Ceilings{Attempts: -1}}} {
		rig.Bubble(t, rig.Returns(rig.ErrBoom), func(r *rig.Rig) {
			m := rig.Message("a")
			m.Meta.MaxAttempts = -1
			r.Put(m)
			r.RunFor(10 * time.Minute)
			if n := r.Seen.Started("a"); n < 500 {
				t.Errorf("%d attempts under %+v", n, o)
			}
		}, rig.With(func(c *rig.Setup) {
			c.Defaults.MaxAttempts, c.Defaults.Ceilings.Attempts = o.MaxAttempts, o.Ceilings.Attempts
		}), rig.Steady)
	}
}

func TestMetaRaisesTheTimeoutToTheCeiling(t *testing.T) {
	for _, c := range []struct {
		name                  string
		worker, ceiling, asks time.Duration
		want                  time.Duration // 0 = no deadline
	}{
		{"nothing asked", time.Minute, 0, 0, time.Minute},
		{"shorter", time.Minute, 0, time.Second, time.Second},
		{"longer", time.Minute, 0, time.Hour, time.Hour},
		{"far longer", time.Minute, 0, 1<<63 - 1, 24 * time.Hour},
		{"the worker has more than the default ceiling", 30 * time.Hour, 0, 1<<63 - 1, 30 * time.Hour},
		{"a ceiling of its own", time.Minute, 2 * time.Minute, time.Hour, 2 * time.Minute},
		{"no ceiling", time.Minute, -1, 1000 * time.Hour, 1000 * time.Hour},
		{"no timeout", 0, 0, 0, 0},
		{"no timeout to lift", 0, 0, 1000 * time.Hour, 1000 * time.Hour},
		{"no timeout, and a ceiling", 0, time.Hour, 1000 * time.Hour, time.Hour},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := func(ctx context.Context, _ *onceq.Job) error {
				at, ok := ctx.Deadline()
				if got := time.Until(at); ok != (c.want > 0) || ok && got.Round(time.Second) != c.want {
					t.Errorf("the deadline is %v, %v; want %v", got, ok, c.want)
				}
				return nil
			}
			rig.Bubble(t, h, func(r *rig.Rig) {
				m := rig.Message("a")
				m.Meta.Timeout = c.asks
				r.Put(m)
				r.RunFor(time.Second)
				if n := r.Seen.Started("a"); n != 1 {
					t.Errorf("%d runs", n)
				}
			}, rig.With(func(cfg *rig.Setup) { cfg.Defaults.Timeout, cfg.Defaults.Ceilings.Timeout = c.worker, c.ceiling }))
		})
	}
}

// A message whose not-before lies too far ahead becomes a dead letter, because it would hold its
// group for ever.
func TestTooEarly(t *testing.T) {
	year9999 := time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)
	var d rig.Down
	d.Mended = true
	rig.Bubble(t, d.Handle, func(r *rig.Rig) {
		m := rig.Message("a")
		m.Group, m.Meta.NotBefore = "g", year9999
		r.Put(m)
		r.Send("g/b")
		r.RunFor(time.Minute)
		l := r.Letter(onceq.ClassTooEarly)
		if l.Meta.Dead.Fence != 0 || l.Meta.Key != "a" {
			t.Errorf("the letter is %+v", l.Meta)
		}
		r.WantOutcomes("a", onceq.ClassTooEarly)
		if !slices.Equal(d.Ran, []string{"b"}) {
			t.Errorf("ran %q", d.Ran)
		}
		// Its replay is refused again while it is too early, and may be edited.
		r.Replay(l)
		r.RunFor(time.Minute)
		l = r.Letter(onceq.ClassTooEarly)
		if _, err := r.DLQ.Send(r.Context(), []broker.Outgoing{{Body: l.Body, Meta: l.Meta, Group: "g"}}); err != nil {
			t.Fatal(err)
		}
		replayAll(r, nil, func(o *broker.Outgoing) error { o.Meta.NotBefore = time.Time{}; return nil })
		r.RunFor(time.Minute)
		if !slices.Equal(d.Ran, []string{"b", "a"}) {
			t.Errorf("ran %q", d.Ran)
		}
	}, rig.Preset(membroker.SQSFIFO))
}

func TestMostNotBefore(t *testing.T) {
	day := 24 * time.Hour
	for _, c := range []struct {
		name          string
		most, ofType  time.Duration
		ahead         time.Duration
		refused, none bool
	}{
		{"the retention", 0, 0, 31 * day, false, false},
		{"beyond the retention", 0, 0, 31*day + time.Minute, true, false},
		{"within", time.Hour, 0, time.Hour, false, false},
		{"beyond", time.Hour, 0, time.Hour + time.Minute, true, false},
		{"any", -1, 0, 300 * day, false, false},
		{"the type has another", time.Hour, 2 * time.Hour, 90 * time.Minute, false, false},
		{"a short retention", 0, 0, 30 * day, false, false},
		{"beyond the type's", -1, 2 * time.Hour, 3 * time.Hour, true, false},
		{"no key", time.Hour, 0, 2 * time.Hour, true, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			rig.Bubble(t, rig.Never(t), func(r *rig.Rig) {
				m := rig.Message("a")
				m.Meta.Type, m.Meta.NotBefore = "t", time.Now().Add(c.ahead)
				if c.none {
					m.Meta.Key = ""
				}
				r.PutRaw(m)
				r.RunFor(time.Second)
				switch {
				case !c.refused:
					r.NoLetters()
				case c.none:
					r.NoLetters()
					r.WantOutcomes("", "kept")
				default:
					r.Letter(onceq.ClassTooEarly)
				}
			}, rig.With(func(cfg *rig.Setup) {
				cfg.Defaults.Ceilings.NotBefore = c.most
				if c.name == "a short retention" {
					cfg.Retention = time.Hour
				}
				if c.ofType != 0 {
					var mux onceq.Mux
					mux.On("t", onceq.HandlerFunc(rig.Never(t)), &onceq.JobOptions{Ceilings: onceq.Ceilings{NotBefore: c.ofType}})
					cfg.Handler = &mux
				}
			}))
		})
	}
}

func TestBadCeilings(t *testing.T) {
	ofType := func(o onceq.JobOptions) func(c *rig.Setup) {
		return func(c *rig.Setup) {
			var mux onceq.Mux
			mux.On("t", onceq.HandlerFunc(rig.Returns(nil)), &o)
			c.Handler = &mux
			c.Defaults.Ceilings.Attempts, c.Defaults.Ceilings.Timeout = 20, time.Hour
		}
	}
	for _, c := range []struct {
		field, reason string
		set           func(c *rig.Setup)
	}{
		{"ProcessorConfig.Defaults.Ceilings.Attempts", "5 is below MaxAttempts, 10", func(c *rig.Setup) { c.Defaults.Ceilings.Attempts = 5 }},
		{"ProcessorConfig.Defaults.Ceilings.Attempts", "5 is below MaxAttempts, -1", func(c *rig.Setup) { c.Defaults.MaxAttempts, c.Defaults.Ceilings.Attempts = -1, 5 }},
		{"ProcessorConfig.Defaults.Ceilings.Timeout", "1m0s is below Timeout, 1h0m0s", func(c *rig.Setup) { c.Defaults.Timeout, c.Defaults.Ceilings.Timeout = time.Hour, time.Minute }},
		{"ProcessorConfig.Defaults.Ceilings.Timeout", "unit", func(c *rig.Setup) { c.Defaults.Ceilings.Timeout = 30 }},
		{`Mux.On("t") options.Ceilings.Attempts`, "20 is below MaxAttempts, 50", ofType(onceq.JobOptions{MaxAttempts: 50})},
		{`Mux.On("t") options.Ceilings.Attempts`, "9 is below MaxAttempts, 10", ofType(onceq.JobOptions{Ceilings: onceq.Ceilings{Attempts: 9}})},
		{`Mux.On("t") options.Ceilings.Timeout`, "below Timeout, 2h", ofType(onceq.JobOptions{Timeout: 2 * time.Hour})},
		{"ProcessorConfig.LetterKeys", "key 1 has 31 bytes, want at least 32", func(c *rig.Setup) {
			c.LetterKeys = [][]byte{make([]byte, 32), make([]byte, 31)}
		}},
	} {
		cfg := rig.Config(t)
		c.set(&cfg)
		_, err := rig.NewWorker(cfg)
		bad, ok := errors.AsType[*onceq.ConfigError](err)
		if !ok || bad.Field != c.field || !strings.Contains(bad.Reason, c.reason) {
			t.Errorf("New answered %v; want a ConfigError of %s with %q", err, c.field, c.reason)
		}
	}
}
