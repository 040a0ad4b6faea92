package jobs

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/memstore"
	"github.com/onceq/onceq/internal/coretest/rig"
	"github.com/onceq/onceq/internal/must"
)

// TestRefusedSetups: a setup that would lose or repeat jobs in silence is refused when the worker
// is made.
func TestRefusedSetups(t *testing.T) {
	q := must.Get(membroker.New(nil))
	st := must.Get(memstore.New(nil))
	mux := func(set func(m *onceq.Mux)) *onceq.Mux {
		m := new(onceq.Mux)
		m.On("a", rig.Returns(nil), nil)
		set(m)
		return m
	}
	for _, c := range []struct {
		name, field string
		set         func(c *rig.Setup)
	}{
		{"the queue as its own dead-letter queue", "WorkerConfig.DeadLetter", func(c *rig.Setup) { c.DeadLetter = q }},
		{"Park without a store", "ProcessorConfig.Defaults.Interrupted", func(c *rig.Setup) {
			c.Store, c.Defaults.Interrupted = onceq.NoStore, dedupe.Park
		}},
		{"Park without a store, by type", "Mux.On", func(c *rig.Setup) {
			c.Store = onceq.NoStore
			c.Handler = mux(func(m *onceq.Mux) { m.On("b", rig.Returns(nil), &onceq.JobOptions{Interrupted: dedupe.Park}) })
		}},
		{"a Mux in a Mux", "Mux.On", func(c *rig.Setup) { c.Handler = mux(func(m *onceq.Mux) { m.On("b", new(onceq.Mux), nil) }) }},
		{"a nil middleware", "Mux.Use", func(c *rig.Setup) { c.Handler = mux(func(m *onceq.Mux) { m.Use(nil) }) }},
		{"a middleware that makes nil", "Mux.Use", func(c *rig.Setup) {
			c.Handler = mux(func(m *onceq.Mux) { m.Use(func(onceq.Handler) onceq.Handler { return nil }) })
		}},
		{"a nil middleware in a chain", "Chain", func(c *rig.Setup) { c.Handler = onceq.Chain(rig.Returns(nil), nil) }},
		{"a nil middleware around a Mux", "Chain", func(c *rig.Setup) { c.Handler = onceq.Chain(mux(func(*onceq.Mux) {}), nil) }},
		{"a chain around a nil middleware", "Chain", func(c *rig.Setup) {
			c.Handler = onceq.Chain(onceq.Chain(rig.Returns(nil), nil), func(h onceq.Handler) onceq.Handler { return h })
		}},
		{"a nil middleware in a chain, by type", "Mux.On", func(c *rig.Setup) {
			c.Handler = mux(func(m *onceq.Mux) { m.On("b", onceq.Chain(rig.Returns(nil), nil), nil) })
		}},
		{"a timeout without a unit", "ProcessorConfig.Defaults.Timeout", func(c *rig.Setup) { c.Defaults.Timeout = 5 }},
		{"holding groups that the broker does not order", "WorkerConfig.HoldGroup", func(c *rig.Setup) {
			c.HoldGroup = true
			c.Broker, _ = membroker.New(&membroker.Options{Preset: membroker.SQSStandard})
		}},
		{"an absurd prefetch", "WorkerConfig.Prefetch", func(c *rig.Setup) { c.Prefetch = 1e9 }},
	} {
		t.Run(c.name, func(t *testing.T) {
			config := rig.Setup{
				ProcessorConfig: onceq.ProcessorConfig{Handler: rig.Returns(nil), Store: st, Scope: "test"},
				WorkerConfig:    onceq.WorkerConfig{DeadLetter: onceq.KeepInQueue},
				Broker:          q,
			}
			c.set(&config)
			_, err := rig.NewWorker(config)
			var bad *onceq.ConfigError
			if !errors.As(err, &bad) || !strings.HasPrefix(bad.Field, c.field) {
				t.Errorf("New: %v, want a ConfigError of %s", err, c.field)
			}
		})
	}
}

// TestWrappedMuxRefusesJobs: a Mux that is wrapped does not know under which scope its jobs were
// claimed. Two types with one key would meet, and one of the jobs be lost.
func TestWrappedMuxRefusesJobs(t *testing.T) {
	ran := 0
	mux := new(onceq.Mux)
	mux.On("a", onceq.HandlerFunc(func(context.Context, *onceq.Job) error { ran++; return nil }), nil)
	wrapped := onceq.HandlerFunc(mux.Handle)
	rig.Bubble(t, wrapped, func(r *rig.Rig) {
		r.Put(rig.Typed("a", "k"))
		r.RunFor(time.Second)
		if rec := r.Record("k"); ran != 0 || rec.Status != dedupe.Released || rec.ErrClass != onceq.ClassConfig {
			t.Errorf("%d runs; the record is %+v", ran, rec)
		}
		r.WantQueue(1)
	})
}

// TestLateTypeIsUnknown: a type that is set after the worker was made has no scope and no options
// there.
func TestLateTypeIsUnknown(t *testing.T) {
	mux := new(onceq.Mux)
	mux.On("a", rig.Returns(nil), nil)
	rig.SynctestMux(t, mux, func(r *rig.Rig) {
		mux.On("late", rig.Never(t), nil)
		r.Put(rig.Typed("late", "k"))
		r.RunFor(time.Second)
		if got := at(r, "test:late", "k"); got != dedupe.Released {
			t.Errorf("the record is %v, want released", got)
		}
	})
}

// TestUnknownTypesDoNotMeet: two types that nobody knows keep their keys apart.
func TestUnknownTypesDoNotMeet(t *testing.T) {
	mux := new(onceq.Mux)
	mux.On("a", rig.Returns(nil), nil)
	rig.SynctestMux(t, mux, func(r *rig.Rig) {
		r.Put(rig.Typed("new", "k"), rig.Typed("newer", "k"))
		r.RunFor(time.Second)
		for _, s := range []string{"test:new", "test:newer"} {
			if got := at(r, s, "k"); got != dedupe.Released {
				t.Errorf("in scope %q the record is %v, want released", s, got)
			}
		}
	})
}

// TestRetryAfterOutlivesRetention: the record of a job that comes again after longer than Retention
// must still be there, or the job would be taken for one whose record is gone.
func TestRetryAfterOutlivesRetention(t *testing.T) {
	runs := 0
	h := func(context.Context, *onceq.Job) error {
		if runs++; runs == 1 {
			return onceq.RetryAfter(3*time.Minute, errors.New("later"))
		}
		return nil
	}
	rig.Bubble(t, h, func(r *rig.Rig) {
		r.Send("k")
		r.RunFor(5 * time.Minute)
		r.WantOutcomes("k", "retried", "done")
		r.NoLetters()
	}, rig.With(func(c *rig.Setup) { c.Retention = time.Minute }))
}
