package outages

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/coretest/rig"
)

// A record that is gone while its message may still come proves nothing.
func TestRetentionBelowTheQueues(t *testing.T) {
	const day = 24 * time.Hour
	for name, c := range map[string]struct {
		queue, letters rig.Keeping
		retention      time.Duration
		refused        bool
	}{
		"queue alone":       {rig.Keeping{Kept: 4 * day}, rig.Keeping{Err: rig.ErrBoom}, 4*day - 1, true},
		"as long":           {rig.Keeping{Kept: 4 * day}, rig.Keeping{Err: rig.ErrBoom}, 4 * day, false},
		"both":              {rig.Keeping{Kept: 4 * day}, rig.Keeping{Kept: 14 * day}, 18*day - 1, true},
		"as long as both":   {rig.Keeping{Kept: 4 * day}, rig.Keeping{Kept: 14 * day}, 18 * day, false},
		"letters alone":     {rig.Keeping{Err: rig.ErrBoom}, rig.Keeping{Kept: 14 * day}, 14*day - 1, true},
		"for ever":          {rig.Keeping{Kept: rig.ForEver}, rig.Keeping{Kept: rig.ForEver}, rig.ForEver, false},
		"cannot be read":    {rig.Keeping{Err: rig.ErrBoom, Kept: 99 * day}, rig.Keeping{Err: rig.ErrBoom, Kept: 99 * day}, time.Minute, false},
		"the default on 28": {rig.Keeping{Kept: 14 * day}, rig.Keeping{Kept: 14 * day}, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			rig.Bubble(t, rig.Returns(nil), func(r *rig.Rig) {
				c.queue.Broker, c.letters.Broker = r.Q.Broker, r.DLQ
				r.W = r.Worker(func(f *rig.Setup) { f.Broker, f.DeadLetter, f.Retention = c.queue, c.letters, c.retention })
				r.Start()
				rig.Pass(time.Second)
				err := r.Stop()
				if (err != nil) != c.refused {
					t.Fatalf("Run: %v", err)
				}
				if err != nil && (!strings.Contains(err.Error(), "ProcessorConfig.Retention") || !strings.Contains(err.Error(), "below")) {
					t.Errorf("Run: %v", err)
				}
			})
		})
	}
}

// What could not be read is told, because the check of Retention is weaker then. A queue that has
// no such settings is not worth a line.
func TestRetentionThatCannotBeReadWarns(t *testing.T) {
	refuses := fmt.Errorf("no: %w", broker.ErrUnsupported)
	for name, c := range map[string]struct {
		queue, letters error
		want           []string
	}{
		"read":            {nil, nil, nil},
		"has no settings": {refuses, refuses, nil},
		"the queue's":     {rig.ErrBoom, nil, []string{"settings of the queue "}},
		"the letters'":    {nil, rig.ErrBoom, []string{"settings of the dead-letter queue "}},
		"neither is read": {rig.ErrBoom, rig.ErrBoom, []string{"settings of the queue ", "settings of the dead-letter queue "}},
	} {
		t.Run(name, func(t *testing.T) {
			rig.Bubble(t, rig.Returns(nil), func(r *rig.Rig) {
				r.W = r.Worker(func(f *rig.Setup) {
					f.Broker, f.DeadLetter = rig.Keeping{Broker: r.Q.Broker, Err: c.queue}, rig.Keeping{Broker: r.DLQ, Err: c.letters}
				})
				r.RunFor(time.Hour)
				if n := r.Logged.Count("could not be read"); n != len(c.want) {
					t.Errorf("%d warnings, want %d", n, len(c.want))
				}
				for _, text := range c.want {
					if r.Logged.Count(text, "level=WARN", "error=boom") != 1 {
						t.Errorf("no warning has %q", text)
					}
				}
			})
		})
	}
}

func TestRetentionWithoutAStore(t *testing.T) {
	rig.Bubble(t, rig.Returns(nil), func(r *rig.Rig) {
		r.W = r.Worker(func(f *rig.Setup) {
			f.Broker, f.Retention = rig.Keeping{Broker: r.Q.Broker, Kept: time.Hour}, time.Minute
		})
		r.RunFor(time.Second)
	}, rig.NoStore)
}

// Nothing would end a job that always fails.
func TestNoStoreWhereNobodyCounts(t *testing.T) {
	for attempts, refused := range map[int]bool{0: true, 3: true, -1: false} {
		c := rig.Config(t)
		b := rig.NewBroker(t, membroker.Options{})
		l := b.Limits()
		l.Attempts = false
		c.Broker, c.Defaults.MaxAttempts = rig.Limited{Broker: b.Broker, L: l}, attempts
		if _, err := rig.NewWorker(c); err != nil {
			t.Errorf("with a store: %v", err)
		}
		c.Store = onceq.NoStore
		_, err := rig.NewWorker(c)
		if (err != nil) != refused {
			t.Errorf("MaxAttempts %d: %v", attempts, err)
		}
		if err != nil && !strings.Contains(err.Error(), "ProcessorConfig.Defaults.MaxAttempts") {
			t.Error(err)
		}
	}
}

// An outage is told of once. A claim that was refused does not count as trouble for ever, so
// receiving goes on.
func TestTroubleEndsWithARefusedClaim(t *testing.T) {
	h := func(context.Context, *onceq.Job) error { rig.Takes(time.Second); return nil }
	rig.Bubble(t, h, func(r *rig.Rig) {
		erring(r, rig.ErrBoom, func(k string) bool { return k == "bad" })
		r.Send("bad")
		r.Send(rig.Numbered("a", 15)...)
		r.Start()
		rig.Pass(time.Minute)
		r.Send(rig.Numbered("b", 5)...)
		rig.Pass(3 * time.Minute)
		for _, k := range append(rig.Numbered("a", 15), rig.Numbered("b", 5)...) {
			r.WantStatus(k, dedupe.Done)
		}
	}, rig.Preset(membroker.SQSStandard), rig.With(func(c *rig.Setup) { c.Concurrency, c.Prefetch = 2, 20 }))
}

// Ten letters that are too large together, each of which fits alone.
func TestLettersOfAMegabyteKeepTheirFences(t *testing.T) {
	rig.Bubble(t, rig.Failing, func(r *rig.Rig) {
		for _, k := range rig.Numbered("k", 10) {
			m := rig.Message(k)
			m.Body = make([]byte, 300_000)
			r.Put(m)
		}
		r.RunFor(3 * time.Hour)
		ms := r.Letters()
		for _, m := range ms {
			if m.Meta == nil || m.Meta.Dead == nil || m.Meta.Dead.Fence == 0 {
				t.Errorf("a letter has lost its fence: %+v", m.Meta)
			}
		}
		if len(ms) != 10 {
			t.Errorf("%d letters", len(ms))
		}
		r.WantQueue(0)
	}, rig.Preset(membroker.SQSStandard))
}
