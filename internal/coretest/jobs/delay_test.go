package jobs

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/coretest/rig"
)

// A job that was sent with a delay beyond Retention is not old when it is due: it runs.
func TestDelayBeyondRetention(t *testing.T) {
	const day = 24 * time.Hour
	for name, set := range map[string]func(m *broker.Outgoing, d time.Duration){
		"Delay":           func(m *broker.Outgoing, d time.Duration) { m.Delay = d },
		"NotBefore":       func(m *broker.Outgoing, d time.Duration) { m.Meta.NotBefore = time.Now().Add(d) },
		"the later wins":  func(m *broker.Outgoing, d time.Duration) { m.Delay, m.Meta.NotBefore = d, time.Now().Add(time.Hour) },
		"made before":     func(m *broker.Outgoing, d time.Duration) { m.Delay, m.Meta.Created = d, time.Now().Add(-day) },
		"without a store": func(m *broker.Outgoing, d time.Duration) { m.Delay = d },
	} {
		for _, d := range []time.Duration{2 * time.Hour, 30 * day, 40 * day, 300 * day} {
			t.Run(name+" of "+d.String(), func(t *testing.T) {
				ran := 0
				h := func(context.Context, *onceq.Job) error { ran++; return nil }
				rig.Bubble(t, h, func(r *rig.Rig) {
					m := onceq.Message("t", "a", nil)
					set(&m, d)
					if err := onceq.SendOne(r.Context(), r.Q, &m); err != nil {
						r.Fatal(err)
					}
					rig.Pass(d) // no worker runs meanwhile
					r.RunFor(time.Minute)
					r.NoLetters()
					if ran != 1 {
						r.Errorf("%d runs: %q", ran, r.Seen.Outcomes("a"))
					}
				}, rig.With(func(c *rig.Setup) {
					if name == "without a store" {
						c.Store = onceq.NoStore
					}
				}))
			})
		}
	}
}

// Fill says when a delayed job is due, so that whoever looks at the message later knows. The same
// message filled again is the same job. A delay that every queue knows leaves no trace: it would
// make two sends of one job differ, and put the sender's clock against the worker's.
func TestFillDelay(t *testing.T) {
	made := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	shared := &broker.Meta{ID: "id", Key: "k", Created: made}
	ms := []broker.Outgoing{
		{Meta: shared, Delay: 40 * 24 * time.Hour},
		{Meta: shared, Delay: 15 * time.Minute},
		{Meta: &broker.Meta{NotBefore: made.Add(time.Hour), Created: made}, Delay: 30 * time.Minute},
	}
	for range 2 {
		if err := onceq.Fill(ms); err != nil {
			t.Fatal(err)
		}
		if nb := ms[0].Meta.NotBefore; !nb.Equal(made.Add(40 * 24 * time.Hour)) {
			t.Errorf("40 days: not before %v", nb)
		}
		if nb := ms[1].Meta.NotBefore; !nb.IsZero() || ms[1].Meta != shared {
			t.Errorf("15 minutes: not before %v", nb)
		}
		if nb := ms[2].Meta.NotBefore; !nb.Equal(made.Add(time.Hour)) {
			t.Errorf("30 minutes, and an hour: not before %v", nb)
		}
	}
	if !shared.NotBefore.IsZero() {
		t.Error("the Meta of another message was changed")
	}
	err := onceq.Fill([]broker.Outgoing{{Meta: &broker.Meta{Expires: time.Now().Add(time.Hour)}, Delay: 2 * time.Hour}})
	if err == nil || !strings.Contains(err.Error(), "the field Delay") {
		t.Errorf("a job that expires before it is due: %v", err)
	}
}

// SendAt sends jobs that wait for a time, on queues that hide messages and on those that do not.
func TestSendAt(t *testing.T) {
	kind := onceq.Kind[string]{Type: "t", Key: func(s string) string { return s }}
	for _, p := range []membroker.Preset{membroker.Memory, membroker.SQSStandard, membroker.PubSub} {
		for _, in := range []time.Duration{-time.Hour, 0, 5 * time.Minute, time.Hour, 50 * time.Hour} {
			t.Run(p.String()+" in "+in.String(), func(t *testing.T) {
				rig.Bubble(t, rig.Returns(nil), func(r *rig.Rig) {
					at := time.Now().Add(in)
					for range 2 { // the second is the same job
						if err := kind.SendAt(r.Context(), r.Q, at, "a"); err != nil {
							r.Fatal(err)
						}
					}
					r.Start()
					if in > 0 {
						rig.Pass(in - time.Second)
						if n := r.Seen.Started("a"); n != 0 {
							r.Errorf("%d runs before it is due", n)
						}
					}
					rig.Pass(time.Minute)
					if n := r.Seen.Started("a"); n != 1 {
						r.Errorf("%d runs", n)
					}
					r.NoLetters()
				}, rig.Preset(p), rig.Warnings)
			})
		}
	}
}
