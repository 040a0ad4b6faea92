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

// config is one that is taken.
func config(t *testing.T) setup {
	t.Helper()
	return setup{
		ProcessorConfig: onceq.ProcessorConfig{
			Handler: returns(nil), Store: newStore(t), Scope: scope,
		},
		WorkerConfig: onceq.WorkerConfig{DeadLetter: newBroker(t, membroker.Options{})},
		Broker:       newBroker(t, membroker.Options{}),
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
		set    func(c *setup)
		reason string
	}{
		{"ProcessorConfig.Handler", func(c *setup) { c.Handler = nil }, "nil"},
		{"ProcessorConfig.Handler", func(c *setup) { c.Handler = onceq.HandlerFunc(nil) }, "nil"},
		{"ProcessorConfig.Handler", func(c *setup) { c.Handler = (*onceq.Mux)(nil) }, "nil"},
		{"ProcessorConfig.Handler", func(c *setup) { c.Handler = new(onceq.Mux) }, "no handlers"},
		{"ProcessorConfig.Store", func(c *setup) { c.Store = nil }, "NoStore"},
		{"ProcessorConfig.Store", func(c *setup) { c.Store = (*memstore.Store)(nil) }, "NoStore"},
		{"ProcessorConfig.Store", func(c *setup) {
			c.Store.(*store).limits = func(dedupe.Limits) dedupe.Limits { return dedupe.Limits{} }
		}, "MaxBatch is 0"},
		{"WorkerConfig.DeadLetter", func(c *setup) { c.DeadLetter = nil }, "KeepInQueue"},
		{"WorkerConfig.DeadLetter", func(c *setup) { c.DeadLetter = (*membroker.Broker)(nil) }, "KeepInQueue"},
		{"ProcessorConfig.Scope", func(c *setup) { c.Scope = "" }, "empty"},
		{"ProcessorConfig.Scope", func(c *setup) { c.Scope = "a:b" }, "':'"},
		{"ProcessorConfig.Scope", func(c *setup) { c.Scope = strings.Repeat("s", 256) }, "255"},
		{"ProcessorConfig.Scope", func(c *setup) { c.Scope = "\x00" }, "NUL"},
		{"ProcessorConfig.Scope", func(c *setup) { c.Scope = "\xff" }, "UTF-8"},
		{"ProcessorConfig.Queue", func(c *setup) { c.Queue = strings.Repeat("q", 256) }, "has 256 bytes, the limit is 255"},
		{"ProcessorConfig.Queue", func(c *setup) { c.Queue = "orders-\xfc" }, "UTF-8"},
		{"ProcessorConfig.Queue", func(c *setup) { c.Queue = "a\x1b[2Jb" }, "control"},
		{"ProcessorConfig.Retention", func(c *setup) { c.Retention = time.Second }, "1m0s"},
		{"ProcessorConfig.Retention", func(c *setup) { c.Retention = -1 }, "1m0s"},
		{"ProcessorConfig.Lease", func(c *setup) { c.Lease = 99 * time.Millisecond }, "100ms"},
		{"ProcessorConfig.Lease", func(c *setup) { c.Lease = 13 * time.Hour }, "12h"},
		{"ProcessorConfig.SettleTimeout", func(c *setup) { c.SettleTimeout = 5 }, "is its unit missing"},
		{"ProcessorConfig.CallTimeout", func(c *setup) { c.CallTimeout = 5 }, "is its unit missing"},
		{"ProcessorConfig.Owner", func(c *setup) { c.Owner = strings.Repeat("o", 256) }, "255"},
		{"ProcessorConfig.Defaults.Timeout", func(c *setup) { c.Defaults.Timeout = -1 }, "negative"},
		{"ProcessorConfig.Defaults.Timeout", func(c *setup) { c.Defaults.Timeout = 30 }, "30ns is below 1ms; is its unit missing"},
		{"ProcessorConfig.Defaults.MostTimeout", func(c *setup) { c.Defaults.MostTimeout = 60 }, "60ns is below 1ms; is its unit missing"},
		{"ProcessorConfig.Defaults.MostNotBefore", func(c *setup) { c.Defaults.MostNotBefore = 24 }, "24ns is below 1ms; is its unit missing"},
		{"ProcessorConfig.Defaults.Interrupted", func(c *setup) { c.Defaults.Interrupted = 7 }, "Park"},
		{"ProcessorConfig.Defaults.Scope", func(c *setup) { c.Defaults.Scope = "a:b" }, "':'"},
		{"ProcessorConfig.Defaults.Scope", func(c *setup) { c.Defaults.Scope = strings.Repeat("s", 256) }, "255"},
		{"Processor.Worker", func(c *setup) { c.Broker = nil }, "nil"},
		{"Processor.Worker", func(c *setup) { c.Broker = (*membroker.Broker)(nil) }, "nil"},
		{"Processor.Worker", func(c *setup) { c.Broker = limited{l: broker.Limits{SettleBatch: 1}} }, "ReceiveBatch 0"},
		{"Processor.Worker", func(c *setup) { c.Broker = limited{l: broker.Limits{ReceiveBatch: 1}} }, "SettleBatch 0"},
		{"WorkerConfig.Concurrency", func(c *setup) { c.Concurrency = -1 }, "100000"},
		{"WorkerConfig.Concurrency", func(c *setup) { c.Concurrency = 100_001 }, "100000"},
		{"WorkerConfig.Pollers", func(c *setup) { c.Pollers = -1 }, "64"},
		{"WorkerConfig.Pollers", func(c *setup) { c.Pollers = 65 }, "64"},
		{"WorkerConfig.PollPause", func(c *setup) { c.PollPause = -1 }, "negative"},
		{"WorkerConfig.PollPause", func(c *setup) { c.PollPause = 500 }, "500ns is below 1ms; is its unit missing"},
		{"WorkerConfig.Visibility", func(c *setup) { c.Visibility = time.Millisecond }, "100ms"},
		{"WorkerConfig.Visibility", func(c *setup) {
			c.Broker, c.Visibility = newBroker(t, membroker.Options{Preset: membroker.PubSub}), 9*time.Second
		}, "10s"},
		{"WorkerConfig.Visibility", func(c *setup) {
			c.Broker, c.Visibility = newBroker(t, membroker.Options{Preset: membroker.PubSub}), 11*time.Minute
		}, "10m"},
		{"WorkerConfig.AckLinger", func(c *setup) { c.AckLinger = 11 * time.Second }, "10s"},
		{"WorkerConfig.AckLinger", func(c *setup) { c.AckLinger = 200 }, "200ns is below 1ms; is its unit missing"},
		{"WorkerConfig.DrainTimeout", func(c *setup) { c.DrainTimeout = 20 }, "20ns is below 1ms; is its unit missing"},
		{"WorkerConfig.Name", func(c *setup) { c.Name = strings.Repeat("n", 256) }, "255"},
		{"WorkerConfig.Name", func(c *setup) { c.Name = "orders-\xfc" }, "UTF-8"},
		{"WorkerConfig.Name", func(c *setup) { c.Name = "a\nb" }, "control"},
	} {
		cfg := config(t)
		c.set(&cfg)
		w, err := newWorker(cfg)
		bad, ok := errors.AsType[*onceq.ConfigError](err)
		if !ok || w != nil || bad.Field != c.field || !strings.Contains(bad.Reason, c.reason) {
			t.Errorf("Worker: %v; want a ConfigError of %s with %q", err, c.field, c.reason)
		}
		// Without a Handler it can be for Do.
		forDo := c.field == "ProcessorConfig.Handler" && c.reason == "nil"
		_, err = onceq.NewProcessor(cfg.ProcessorConfig)
		if want := strings.HasPrefix(c.field, "ProcessorConfig.") && !forDo; (err != nil) != want {
			t.Errorf("%s: NewProcessor answered %v, want an error: %v", c.field, err, want)
		}
		b, err := cfg.batches()
		if c.field == "WorkerConfig.DeadLetter" || c.field == "WorkerConfig.Name" || forDo {
			field := strings.Replace(c.field, "Worker", "Batch", 1)
			bad, ok := errors.AsType[*onceq.ConfigError](err)
			if !ok || b != nil || bad.Field != field || !strings.Contains(bad.Reason, c.reason) {
				t.Errorf("Batches: %v; want a ConfigError of %s with %q", err, field, c.reason)
			}
		}
	}
	cfg := config(t)
	if _, err := newWorker(cfg); err != nil {
		t.Error(err)
	}
	if _, err := cfg.batches(); err != nil {
		t.Error(err)
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
	}, with(func(c *setup) { c.Defaults.Backoff = func(int, error) time.Duration { return 1<<63 - 1 } }))
	bubble(t, h, func(r *rig) {
		r.send("a")
		r.run(time.Second)
		if got := r.q.delays("a"); len(got) == 0 || slices.Max(got) != 0 {
			t.Errorf("nacked with %v", got)
		}
	}, most(3), with(func(c *setup) { c.Defaults.Backoff = func(int, error) time.Duration { return -1 << 63 } }))
}

func TestBackoffThatPanics(t *testing.T) {
	bubble(t, returns(errBoom), func(r *rig) {
		r.send("a")
		r.run(time.Minute)
		r.letter(onceq.ClassError)
		if n := r.log.count("Backoff panicked"); n != 2 {
			t.Errorf("%d log records, want 2", n)
		}
	}, most(3), with(func(c *setup) { c.Defaults.Backoff = func(int, error) time.Duration { panic("Backoff") } }))
}

func TestBackoffIsToldTheAttemptAndTheError(t *testing.T) {
	var attempts []int
	bubble(t, returns(errBoom), func(r *rig) {
		r.send("a")
		r.run(time.Minute)
		if !slices.Equal(attempts, []int{1, 2}) {
			t.Errorf("Backoff was asked for attempts %v", attempts)
		}
	}, most(3), with(func(c *setup) {
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
