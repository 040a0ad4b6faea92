package jobs

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
	"github.com/onceq/onceq/internal/coretest/rig"
)

func TestConfigSaysWhichFieldCannotBe(t *testing.T) {
	for _, c := range []struct {
		field  string
		set    func(c *rig.Setup)
		reason string
	}{
		{"ProcessorConfig.Handler", func(c *rig.Setup) { c.Handler = nil }, "nil"},
		{"ProcessorConfig.Handler", func(c *rig.Setup) { c.Handler = onceq.HandlerFunc(nil) }, "nil"},
		{"ProcessorConfig.Handler", func(c *rig.Setup) { c.Handler = (*onceq.Mux)(nil) }, "nil"},
		{"ProcessorConfig.Handler", func(c *rig.Setup) { c.Handler = new(onceq.Mux) }, "no handlers"},
		{"ProcessorConfig.Store", func(c *rig.Setup) { c.Store = nil }, "NoStore"},
		{"ProcessorConfig.Store", func(c *rig.Setup) { c.Store = (*memstore.Store)(nil) }, "NoStore"},
		{"ProcessorConfig.Store", func(c *rig.Setup) {
			c.Store.(*rig.Store).ChangeLimits = func(dedupe.Limits) dedupe.Limits { return dedupe.Limits{} }
		}, "MaxBatch is 0"},
		{"WorkerConfig.DeadLetter", func(c *rig.Setup) { c.DeadLetter = nil }, "KeepInQueue"},
		{"WorkerConfig.DeadLetter", func(c *rig.Setup) { c.DeadLetter = (*membroker.Broker)(nil) }, "KeepInQueue"},
		{"ProcessorConfig.Scope", func(c *rig.Setup) { c.Scope = "" }, "empty"},
		{"ProcessorConfig.Scope", func(c *rig.Setup) { c.Scope = "a:b" }, "':'"},
		{"ProcessorConfig.Scope", func(c *rig.Setup) { c.Scope = strings.Repeat("s", 256) }, "255"},
		{"ProcessorConfig.Scope", func(c *rig.Setup) { c.Scope = "\x00" }, "NUL"},
		{"ProcessorConfig.Scope", func(c *rig.Setup) { c.Scope = "\xff" }, "UTF-8"},
		{"ProcessorConfig.Queue", func(c *rig.Setup) { c.Queue = strings.Repeat("q", 256) }, "has 256 bytes, the limit is 255"},
		{"ProcessorConfig.Queue", func(c *rig.Setup) { c.Queue = "orders-\xfc" }, "UTF-8"},
		{"ProcessorConfig.Queue", func(c *rig.Setup) { c.Queue = "a\x1b[2Jb" }, "control"},
		{"ProcessorConfig.Retention", func(c *rig.Setup) { c.Retention = time.Second }, "1m0s"},
		{"ProcessorConfig.Retention", func(c *rig.Setup) { c.Retention = -1 }, "1m0s"},
		{"ProcessorConfig.Lease", func(c *rig.Setup) { c.Lease = 99 * time.Millisecond }, "100ms"},
		{"ProcessorConfig.Lease", func(c *rig.Setup) { c.Lease = 13 * time.Hour }, "12h"},
		{"ProcessorConfig.SettleTimeout", func(c *rig.Setup) { c.SettleTimeout = 5 }, "is its unit missing"},
		{"ProcessorConfig.CallTimeout", func(c *rig.Setup) { c.CallTimeout = 5 }, "is its unit missing"},
		{"ProcessorConfig.Owner", func(c *rig.Setup) { c.Owner = strings.Repeat("o", 256) }, "255"},
		{"ProcessorConfig.Defaults.Timeout", func(c *rig.Setup) { c.Defaults.Timeout = -1 }, "negative"},
		{"ProcessorConfig.Defaults.Timeout", func(c *rig.Setup) { c.Defaults.Timeout = 30 }, "30ns is below 1ms; is its unit missing"},
		{"ProcessorConfig.Defaults.Ceilings.Timeout", func(c *rig.Setup) { c.Defaults.Ceilings.Timeout = 60 }, "60ns is below 1ms; is its unit missing"},
		{"ProcessorConfig.Defaults.Ceilings.NotBefore", func(c *rig.Setup) { c.Defaults.Ceilings.NotBefore = 24 }, "24ns is below 1ms; is its unit missing"},
		{"ProcessorConfig.Defaults.Interrupted", func(c *rig.Setup) { c.Defaults.Interrupted = 7 }, "Park"},
		{"ProcessorConfig.Defaults.Scope", func(c *rig.Setup) { c.Defaults.Scope = "a:b" }, "':'"},
		{"ProcessorConfig.Defaults.Scope", func(c *rig.Setup) { c.Defaults.Scope = strings.Repeat("s", 256) }, "255"},
		{"Processor.Worker", func(c *rig.Setup) { c.Broker = nil }, "nil"},
		{"Processor.Worker", func(c *rig.Setup) { c.Broker = (*membroker.Broker)(nil) }, "nil"},
		{"Processor.Worker", func(c *rig.Setup) { c.Broker = rig.Limited{L: broker.Limits{SettleBatch: 1}} }, "ReceiveBatch 0"},
		{"Processor.Worker", func(c *rig.Setup) { c.Broker = rig.Limited{L: broker.Limits{ReceiveBatch: 1}} }, "SettleBatch 0"},
		{"WorkerConfig.Concurrency", func(c *rig.Setup) { c.Concurrency = -1 }, "100000"},
		{"WorkerConfig.Concurrency", func(c *rig.Setup) { c.Concurrency = 100_001 }, "100000"},
		{"WorkerConfig.Pollers", func(c *rig.Setup) { c.Pollers = -1 }, "64"},
		{"WorkerConfig.Pollers", func(c *rig.Setup) { c.Pollers = 65 }, "64"},
		{"WorkerConfig.PollPause", func(c *rig.Setup) { c.PollPause = -1 }, "negative"},
		{"WorkerConfig.PollPause", func(c *rig.Setup) { c.PollPause = 500 }, "500ns is below 1ms; is its unit missing"},
		{"WorkerConfig.Visibility", func(c *rig.Setup) { c.Visibility = time.Millisecond }, "100ms"},
		{"WorkerConfig.Visibility", func(c *rig.Setup) {
			c.Broker, c.Visibility = rig.NewBroker(t, membroker.Options{Preset: membroker.PubSub}), 9*time.Second
		}, "10s"},
		{"WorkerConfig.Visibility", func(c *rig.Setup) {
			c.Broker, c.Visibility = rig.NewBroker(t, membroker.Options{Preset: membroker.PubSub}), 11*time.Minute
		}, "10m"},
		{"WorkerConfig.AckLinger", func(c *rig.Setup) { c.AckLinger = 11 * time.Second }, "10s"},
		{"WorkerConfig.AckLinger", func(c *rig.Setup) { c.AckLinger = 200 }, "200ns is below 1ms; is its unit missing"},
		{"WorkerConfig.DrainTimeout", func(c *rig.Setup) { c.DrainTimeout = 20 }, "20ns is below 1ms; is its unit missing"},
		{"WorkerConfig.Name", func(c *rig.Setup) { c.Name = strings.Repeat("n", 256) }, "255"},
		{"WorkerConfig.Name", func(c *rig.Setup) { c.Name = "orders-\xfc" }, "UTF-8"},
		{"WorkerConfig.Name", func(c *rig.Setup) { c.Name = "a\nb" }, "control"},
	} {
		cfg := rig.Config(t)
		c.set(&cfg)
		w, err := rig.NewWorker(cfg)
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
		b, err := cfg.Batches()
		if c.field == "WorkerConfig.DeadLetter" || c.field == "WorkerConfig.Name" || forDo {
			field := strings.Replace(c.field, "Worker", "Batch", 1)
			bad, ok := errors.AsType[*onceq.ConfigError](err)
			if !ok || b != nil || bad.Field != field || !strings.Contains(bad.Reason, c.reason) {
				t.Errorf("Batches: %v; want a ConfigError of %s with %q", err, field, c.reason)
			}
		}
	}
	cfg := rig.Config(t)
	if _, err := rig.NewWorker(cfg); err != nil {
		t.Error(err)
	}
	if _, err := cfg.Batches(); err != nil {
		t.Error(err)
	}
}

func TestAbsurdOptionsAreBounded(t *testing.T) {
	h := func(context.Context, *onceq.Job) error { return rig.ErrBoom }
	rig.Bubble(t, h, func(r *rig.Rig) {
		m := rig.Message("a")
		m.Meta.MaxAttempts, m.Meta.Timeout = 1<<62, 1<<62
		r.Put(m)
		r.RunFor(time.Minute)
		if n := r.Seen.Started("a"); n < 50 {
			t.Errorf("%d attempts", n)
		}
	}, rig.Steady)
	rig.Bubble(t, h, func(r *rig.Rig) {
		r.Send("a")
		r.RunFor(time.Minute)
		if got := r.Q.Delays("a"); len(got) != 1 || got[0] != r.Q.Limits().MaxNack {
			t.Errorf("nacked with %v", got)
		}
	}, rig.With(func(c *rig.Setup) { c.Defaults.Backoff = func(int, error) time.Duration { return 1<<63 - 1 } }))
	rig.Bubble(t, h, func(r *rig.Rig) {
		r.Send("a")
		r.RunFor(time.Second)
		if got := r.Q.Delays("a"); len(got) == 0 || slices.Max(got) != 0 {
			t.Errorf("nacked with %v", got)
		}
	}, rig.Most(3), rig.With(func(c *rig.Setup) { c.Defaults.Backoff = func(int, error) time.Duration { return -1 << 63 } }))
}

func TestBackoffThatPanics(t *testing.T) {
	rig.Bubble(t, rig.Returns(rig.ErrBoom), func(r *rig.Rig) {
		r.Send("a")
		r.RunFor(time.Minute)
		r.Letter(onceq.ClassError)
		if n := r.Logged.Count("Backoff panicked"); n != 2 {
			t.Errorf("%d log records, want 2", n)
		}
	}, rig.Most(3), rig.With(func(c *rig.Setup) { c.Defaults.Backoff = func(int, error) time.Duration { panic("Backoff") } }))
}

func TestBackoffIsToldTheAttemptAndTheError(t *testing.T) {
	var attempts []int
	rig.Bubble(t, rig.Returns(rig.ErrBoom), func(r *rig.Rig) {
		r.Send("a")
		r.RunFor(time.Minute)
		if !slices.Equal(attempts, []int{1, 2}) {
			t.Errorf("Backoff was asked for attempts %v", attempts)
		}
	}, rig.Most(3), rig.With(func(c *rig.Setup) {
		c.Concurrency = 1
		c.Defaults.Backoff = func(n int, err error) time.Duration {
			if !errors.Is(err, rig.ErrBoom) {
				t.Errorf("Backoff was told %v", err)
			}
			attempts = append(attempts, n)
			return 0
		}
	}))
}

// The rule: a letter never goes into the queue that its worker reads.
func TestLettersGoElsewhere(t *testing.T) {
	b := rig.NewBroker(t, membroker.Options{})
	c := rig.Config(t)
	c.Broker, c.DeadLetter = b, b
	if _, err := rig.NewWorker(c); err == nil || !strings.Contains(err.Error(), "WorkerConfig.DeadLetter: is the queue itself") {
		t.Errorf("the answer is %v", err)
	}
}
