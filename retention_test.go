package onceq_test

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
)

// keeping is a queue that tells how long it keeps messages.
type keeping struct {
	broker.Broker
	kept time.Duration
	err  error
}

func (k keeping) Redrive(context.Context) (broker.RedrivePolicy, error) {
	return broker.RedrivePolicy{Retention: k.kept}, k.err
}

// A record that is gone while its message may still come proves nothing.
func TestRetentionBelowTheQueues(t *testing.T) {
	const day = 24 * time.Hour
	for name, c := range map[string]struct {
		queue, letters keeping
		retention      time.Duration
		refused        bool
	}{
		"queue alone":       {keeping{kept: 4 * day}, keeping{err: errBoom}, 4*day - 1, true},
		"as long":           {keeping{kept: 4 * day}, keeping{err: errBoom}, 4 * day, false},
		"both":              {keeping{kept: 4 * day}, keeping{kept: 14 * day}, 18*day - 1, true},
		"as long as both":   {keeping{kept: 4 * day}, keeping{kept: 14 * day}, 18 * day, false},
		"letters alone":     {keeping{err: errBoom}, keeping{kept: 14 * day}, 14*day - 1, true},
		"for ever":          {keeping{kept: forEver}, keeping{kept: forEver}, forEver, false},
		"cannot be read":    {keeping{err: errBoom, kept: 99 * day}, keeping{err: errBoom, kept: 99 * day}, time.Minute, false},
		"the default on 28": {keeping{kept: 14 * day}, keeping{kept: 14 * day}, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, returns(nil), func(r *rig) {
				c.queue.Broker, c.letters.Broker = r.q.Broker, r.dlq
				r.w = r.worker(func(f *setup) { f.Broker, f.DeadLetter, f.Retention = c.queue, c.letters, c.retention })
				r.start()
				pass(time.Second)
				err := r.stop()
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
		"the queue's":     {errBoom, nil, []string{"settings of the queue "}},
		"the letters'":    {nil, errBoom, []string{"settings of the dead-letter queue "}},
		"neither is read": {errBoom, errBoom, []string{"settings of the queue ", "settings of the dead-letter queue "}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, returns(nil), func(r *rig) {
				r.w = r.worker(func(f *setup) {
					f.Broker, f.DeadLetter = keeping{Broker: r.q.Broker, err: c.queue}, keeping{Broker: r.dlq, err: c.letters}
				})
				r.run(time.Hour)
				if n := r.log.count("could not be read"); n != len(c.want) {
					t.Errorf("%d warnings, want %d", n, len(c.want))
				}
				for _, text := range c.want {
					if r.log.count(text, "level=WARN", "error=boom") != 1 {
						t.Errorf("no warning has %q", text)
					}
				}
			})
		})
	}
}

func TestRetentionWithoutAStore(t *testing.T) {
	bubble(t, returns(nil), func(r *rig) {
		r.w = r.worker(func(f *setup) {
			f.Broker, f.Retention = keeping{Broker: r.q.Broker, kept: time.Hour}, time.Minute
		})
		r.run(time.Second)
	}, noStore)
}

// Nothing would end a job that always fails.
func TestNoStoreWhereNobodyCounts(t *testing.T) {
	for attempts, refused := range map[int]bool{0: true, 3: true, -1: false} {
		c := config(t)
		b := newBroker(t, membroker.Options{})
		l := b.Limits()
		l.Attempts = false
		c.Broker, c.Defaults.MaxAttempts = limited{b.Broker, l}, attempts
		if _, err := newWorker(c); err != nil {
			t.Errorf("with a store: %v", err)
		}
		c.Store = onceq.NoStore
		_, err := newWorker(c)
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
	h := func(context.Context, *onceq.Job) error { takes(time.Second); return nil }
	bubble(t, h, func(r *rig) {
		r.erring(errBoom, func(k string) bool { return k == "bad" })
		r.send("bad")
		r.send(numbered("a", 15)...)
		r.start()
		pass(time.Minute)
		r.send(numbered("b", 5)...)
		pass(3 * time.Minute)
		for _, k := range append(numbered("a", 15), numbered("b", 5)...) {
			r.wantStatus(k, dedupe.Done)
		}
	}, preset(membroker.SQSStandard), with(func(c *setup) { c.Concurrency, c.Prefetch = 2, 20 }))
}

// Ten letters that are too large together, each of which fits alone.
func TestLettersOfAMegabyteKeepTheirFences(t *testing.T) {
	bubble(t, failing, func(r *rig) {
		for _, k := range numbered("k", 10) {
			m := message(k)
			m.Body = make([]byte, 300_000)
			r.put(m)
		}
		r.run(3 * time.Hour)
		ms := r.letters()
		for _, m := range ms {
			if m.Meta == nil || m.Meta.Dead == nil || m.Meta.Dead.Fence == 0 {
				t.Errorf("a letter has lost its fence: %+v", m.Meta)
			}
		}
		if len(ms) != 10 {
			t.Errorf("%d letters", len(ms))
		}
		r.wantQueue(0)
	}, preset(membroker.SQSStandard))
}
