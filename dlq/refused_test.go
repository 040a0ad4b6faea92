package dlq_test

import (
	"strings"
	"testing"
	"time"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dlq"
)

// refused is a letter of that class for which no claim was won.
func refused(class string, change ...func(*broker.Outgoing)) broker.Outgoing {
	o := letterOf("a", 0, change...)
	o.Meta.Dead.Class, o.Meta.Dead.Attempts = class, 0
	return o
}

// What is sent of letters without a fence goes by their class: what the worker's configuration
// refused is sent as it is, and what may do harm needs the operator's word.
func TestReplayByClass(t *testing.T) {
	const sent = ""
	another := func(o *broker.Outgoing) error { o.Meta.Key = "a-2"; return nil }
	later := func(o *broker.Outgoing) error { o.Meta.Expires = o.Meta.Expires.Add(time.Hour); return nil }
	for _, c := range []struct {
		class string
		o     dlq.ReplayOptions
		want  string // a part of the reason; empty = it is sent
	}{
		{"no-key", dlq.ReplayOptions{}, sent},
		{"bad-key", dlq.ReplayOptions{}, sent},
		{"no-handler", dlq.ReplayOptions{}, sent},
		{"config", dlq.ReplayOptions{}, sent},
		{"too-early", dlq.ReplayOptions{}, sent},
		{"duplicate", dlq.ReplayOptions{}, sent},
		{"mismatch", dlq.ReplayOptions{}, "another payload has its key"},
		{"mismatch", dlq.ReplayOptions{Expired: true, Unproven: true}, "another payload has its key"},
		{"mismatch", dlq.ReplayOptions{Edit: another}, sent},
		{"claim-refused", dlq.ReplayOptions{}, sent},
		{"error", dlq.ReplayOptions{}, sent},
		{"panic", dlq.ReplayOptions{}, "fence 0"},
		{"expired", dlq.ReplayOptions{}, "ReplayOptions.Expired"},
		{"expired", dlq.ReplayOptions{Unproven: true}, "ReplayOptions.Expired"},
		{"expired", dlq.ReplayOptions{Expired: true}, sent},
		{"expired", dlq.ReplayOptions{Edit: later}, sent},
		{"unproven", dlq.ReplayOptions{}, "ReplayOptions.Unproven"},
		{"unproven", dlq.ReplayOptions{Expired: true}, "ReplayOptions.Unproven"},
		{"unproven", dlq.ReplayOptions{Unproven: true}, sent},
		{"unproven", dlq.ReplayOptions{Edit: another}, sent},
	} {
		t.Run(c.class+" "+c.want, func(t *testing.T) {
			in(t, func(t *testing.T, r *rig) {
				expires := time.Now().Add(-time.Hour)
				r.put(refused(c.class, func(o *broker.Outgoing) { o.Meta.Expires = expires }))
				rep := r.mustReplay(c.o)
				if c.want != sent {
					r.report(rep, 1, 0, 0, 1)
					if got := rep.Skipped[0].Reason; !strings.Contains(got, c.want) {
						t.Errorf("the reason is %q, want %q", got, c.want)
					}
					r.depths(1, 0)
					return
				}
				r.report(rep, 1, 1)
				m := r.drain(r.queue)[0]
				want := expires
				switch {
				case c.o.Expired && c.class == "expired":
					want = time.Time{}
				case c.class == "expired":
					want = expires.Add(time.Hour)
				}
				if !m.Meta.Expires.Equal(want) {
					t.Errorf("it expires at %v, want %v", m.Meta.Expires, want)
				}
			})
		})
	}
}
