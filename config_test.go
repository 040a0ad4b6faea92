package onceq_test

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
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/memstore"
)

// config is one that New takes.
func config(t *testing.T) onceq.Config {
	t.Helper()
	return onceq.Config{
		ProcessorConfig: onceq.ProcessorConfig{
			Handler: returns(nil), Store: newStore(t), Scope: scope, DeadLetter: newBroker(t, membroker.Options{}),
		},
		Broker: newBroker(t, membroker.Options{}),
	}
}

// limited is a broker with other limits.
type limited struct {
	*membroker.Broker
	l broker.Limits
}

func (b limited) Limits() broker.Limits { return b.l }

func TestConfigSaysWhichFieldCannotBe(t *testing.T) {
	for _, c := range []struct {
		field  string
		set    func(c *onceq.Config)
		reason string
	}{
		{"Config.Handler", func(c *onceq.Config) { c.Handler = nil }, "nil"},
		{"Config.Handler", func(c *onceq.Config) { c.Handler = onceq.HandlerFunc(nil) }, "nil"},
		{"Config.Handler", func(c *onceq.Config) { c.Handler = (*onceq.Mux)(nil) }, "nil"},
		{"Config.Handler", func(c *onceq.Config) { c.Handler = new(onceq.Mux) }, "no handlers"},
		{"Config.Store", func(c *onceq.Config) { c.Store = nil }, "NoStore"},
		{"Config.Store", func(c *onceq.Config) { c.Store = (*memstore.Store)(nil) }, "NoStore"},
		{"Config.Store", func(c *onceq.Config) {
			c.Store.(*store).limits = func(dedupe.Limits) dedupe.Limits { return dedupe.Limits{} }
		}, "MaxBatch is 0"},
		{"Config.DeadLetter", func(c *onceq.Config) { c.DeadLetter = nil }, "KeepInQueue"},
		{"Config.DeadLetter", func(c *onceq.Config) { c.DeadLetter = (*membroker.Broker)(nil) }, "KeepInQueue"},
		{"Config.Scope", func(c *onceq.Config) { c.Scope = "" }, "empty"},
		{"Config.Scope", func(c *onceq.Config) { c.Scope = "a:b" }, "':'"},
		{"Config.Scope", func(c *onceq.Config) { c.Scope = strings.Repeat("s", 256) }, "255"},
		{"Config.Scope", func(c *onceq.Config) { c.Scope = "\x00" }, "NUL"},
		{"Config.Scope", func(c *onceq.Config) { c.Scope = "\xff" }, "UTF-8"},
		{"Config.Retention", func(c *onceq.Config) { c.Retention = time.Second }, "1m0s"},
		{"Config.Retention", func(c *onceq.Config) { c.Retention = -1 }, "1m0s"},
		{"Config.Lease", func(c *onceq.Config) { c.Lease = 99 * time.Millisecond }, "100ms"},
		{"Config.Lease", func(c *onceq.Config) { c.Lease = 13 * time.Hour }, "12h"},
		{"Config.SettleTimeout", func(c *onceq.Config) { c.SettleTimeout = 5 }, "is its unit missing"},
		{"Config.CallTimeout", func(c *onceq.Config) { c.CallTimeout = 5 }, "is its unit missing"},
		{"Config.Owner", func(c *onceq.Config) { c.Owner = strings.Repeat("o", 256) }, "255"},
		{"Config.Defaults.Timeout", func(c *onceq.Config) { c.Defaults.Timeout = -1 }, "negative"},
		{"Config.Defaults.Interrupted", func(c *onceq.Config) { c.Defaults.Interrupted = 7 }, "Park"},
		{"Config.Defaults.Scope", func(c *onceq.Config) { c.Defaults.Scope = "a:b" }, "':'"},
		{"Config.Defaults.Scope", func(c *onceq.Config) { c.Defaults.Scope = strings.Repeat("s", 256) }, "255"},
		{"Config.Broker", func(c *onceq.Config) { c.Broker = nil }, "nil"},
		{"Config.Broker", func(c *onceq.Config) { c.Broker = (*membroker.Broker)(nil) }, "nil"},
		{"Config.Broker", func(c *onceq.Config) { c.Broker = limited{l: broker.Limits{SettleBatch: 1}} }, "ReceiveBatch 0"},
		{"Config.Broker", func(c *onceq.Config) { c.Broker = limited{l: broker.Limits{ReceiveBatch: 1}} }, "SettleBatch 0"},
		{"Config.Concurrency", func(c *onceq.Config) { c.Concurrency = -1 }, "100000"},
		{"Config.Concurrency", func(c *onceq.Config) { c.Concurrency = 100_001 }, "100000"},
		{"Config.Pollers", func(c *onceq.Config) { c.Pollers = -1 }, "64"},
		{"Config.Pollers", func(c *onceq.Config) { c.Pollers = 65 }, "64"},
		{"Config.PollPause", func(c *onceq.Config) { c.PollPause = -1 }, "negative"},
		{"Config.Visibility", func(c *onceq.Config) { c.Visibility = time.Millisecond }, "100ms"},
		{"Config.Visibility", func(c *onceq.Config) {
			c.Broker, c.Visibility = newBroker(t, membroker.Options{Preset: membroker.PubSub}), 9*time.Second
		}, "10s"},
		{"Config.Visibility", func(c *onceq.Config) {
			c.Broker, c.Visibility = newBroker(t, membroker.Options{Preset: membroker.PubSub}), 11*time.Minute
		}, "10m"},
		{"Config.AckLinger", func(c *onceq.Config) { c.AckLinger = 11 * time.Second }, "10s"},
	} {
		cfg := config(t)
		c.set(&cfg)
		w, err := onceq.New(cfg)
		bad, ok := errors.AsType[*onceq.ConfigError](err)
		if !ok || w != nil || bad.Field != c.field || !strings.Contains(bad.Reason, c.reason) {
			t.Errorf("New answered %v; want a ConfigError of %s with %q", err, c.field, c.reason)
		}
		if !strings.HasPrefix(c.field, "Config.Broker") && !slices.Contains([]string{"Config.Concurrency", "Config.Pollers", "Config.PollPause", "Config.Visibility", "Config.AckLinger"}, c.field) {
			if _, err := onceq.NewProcessor(cfg.ProcessorConfig); err == nil {
				t.Errorf("NewProcessor takes a bad %s", c.field)
			}
		}
	}
	if _, err := onceq.New(config(t)); err != nil {
		t.Errorf("New answered %v", err)
	}
}

func TestAbsurdOptionsAreBounded(t *testing.T) {
	h := func(context.Context, *onceq.Job) error { return errBoom }
	bubble(t, h, func(r *rig) {
		m := message("a")
		m.Meta.MaxAttempts, m.Meta.Timeout = 1<<62, 1<<62
		r.put(m)
		r.run(time.Minute)
		if n := r.seen.started("a"); n < 50 {
			t.Errorf("%d attempts", n)
		}
	}, steady)
	bubble(t, h, func(r *rig) {
		r.send("a")
		r.run(time.Minute)
		if got := r.q.delays("a"); len(got) != 1 || got[0] != r.q.Limits().MaxNack {
			t.Errorf("nacked with %v", got)
		}
	}, with(func(c *onceq.Config) { c.Defaults.Backoff = func(int, error) time.Duration { return 1<<63 - 1 } }))
	bubble(t, h, func(r *rig) {
		r.send("a")
		r.run(time.Second)
		if got := r.q.delays("a"); len(got) == 0 || slices.Max(got) != 0 {
			t.Errorf("nacked with %v", got)
		}
	}, most(3), with(func(c *onceq.Config) { c.Defaults.Backoff = func(int, error) time.Duration { return -1 << 63 } }))
}

func TestBackoffThatPanics(t *testing.T) {
	bubble(t, returns(errBoom), func(r *rig) {
		r.send("a")
		r.run(time.Minute)
		r.letter(onceq.ClassError)
		if n := r.log.count("Backoff panicked"); n != 2 {
			t.Errorf("%d log records, want 2", n)
		}
	}, most(3), with(func(c *onceq.Config) { c.Defaults.Backoff = func(int, error) time.Duration { panic("Backoff") } }))
}

func TestBackoffIsToldTheAttemptAndTheError(t *testing.T) {
	var attempts []int
	bubble(t, returns(errBoom), func(r *rig) {
		r.send("a")
		r.run(time.Minute)
		if !slices.Equal(attempts, []int{1, 2}) {
			t.Errorf("Backoff was asked for attempts %v", attempts)
		}
	}, most(3), with(func(c *onceq.Config) {
		c.Concurrency = 1
		c.Defaults.Backoff = func(n int, err error) time.Duration {
			if !errors.Is(err, errBoom) {
				t.Errorf("Backoff was told %v", err)
			}
			attempts = append(attempts, n)
			return 0
		}
	}))
}
