package letters

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/coretest/rig"
)

// TestSquattingOnAKey: a producer that is first with another's key. By default the other's job is
// acked as done, as SECURITY.md says. With a Fingerprint it becomes a letter of class mismatch, and
// with a Key that joins an authenticated sender and the sender's own key both jobs run.
func TestSquattingOnAKey(t *testing.T) {
	send := func(r *rig.Rig, from, body string) {
		m := broker.Outgoing{Body: []byte(body), Attributes: map[string]string{"from": from}, Meta: &broker.Meta{Key: "order-7"}}
		if err := onceq.SendOne(r.Context(), r.Q.Broker, &m); err != nil {
			r.Fatal(err)
		}
		rig.Pass(time.Minute)
	}
	joined := rig.With(func(c *rig.Setup) {
		c.Key = func(m *broker.Message) (dedupe.Key, error) {
			return dedupe.Key{Key: m.Attributes["from"] + "/" + m.Meta.Key}, nil
		}
	})
	for _, c := range []struct {
		name    string
		options []rig.Option
		ran     string
		letters int
	}{
		{"as it is", nil, "mail", 0},
		{"Fingerprint", []rig.Option{printed}, "mail", 1},
		{"Fingerprint and Key", []rig.Option{printed, joined}, "mail charge", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			var ran []string
			rig.Bubble(t, func(_ context.Context, j *onceq.Job) error {
				ran = append(ran, string(j.Message.Body))
				return nil
			}, func(r *rig.Rig) {
				r.Start()
				send(r, "mails", "mail")
				send(r, "orders", "charge")
				got := 0
				for _, l := range r.Letters() {
					if got++; l.Meta.Dead.Class != onceq.ClassMismatch {
						r.Errorf("a letter of class %s", l.Meta.Dead.Class)
					}
				}
				if s := strings.Join(ran, " "); s != c.ran || got != c.letters {
					r.Errorf("ran %q, %d letters; want %q, %d", s, got, c.ran, c.letters)
				}
			}, append(c.options, rig.Warnings)...)
		})
	}
}
