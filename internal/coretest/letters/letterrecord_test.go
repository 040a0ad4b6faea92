package letters

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/coretest/rig"
)

// From a letter one finds the record of its job, wherever the worker took scope and key from.
func TestLetterNamesItsRecord(t *testing.T) {
	bad := func(context.Context, *onceq.Job) error { return onceq.Permanent(rig.ErrBoom) }
	mux := new(onceq.Mux)
	mux.On("pay", onceq.HandlerFunc(bad), nil)
	mux.On("own", onceq.HandlerFunc(bad), &onceq.JobOptions{Scope: "elsewhere"})
	keyed := func(m *broker.Message) (dedupe.Key, error) {
		switch tenant, order, ok := strings.Cut(string(m.Body), "/"); {
		case !ok:
			return dedupe.Key{}, errors.New("no tenant")
		default:
			return dedupe.Key{Scope: tenant, Key: order}, nil
		}
	}
	for _, c := range []struct {
		name string
		sent broker.Outgoing
		set  func(c *rig.Setup)
		want dedupe.Key // zero = the letter says nothing
	}{
		{"plain", rig.Message("a"), nil, rig.Key("a")},
		{"by id", broker.Outgoing{Meta: &broker.Meta{ID: "i-1"}}, nil, rig.Key("i-1")},
		{"a type", rig.Typed("pay", "a"), func(c *rig.Setup) { c.Handler = mux }, dedupe.Key{Scope: rig.Scope + ":pay", Key: "a"}},
		{"JobOptions.Scope", rig.Typed("own", "a"), func(c *rig.Setup) { c.Handler = mux }, dedupe.Key{Scope: "elsewhere", Key: "a"}},
		{"Config.Key", broker.Outgoing{Body: []byte("t-3/7"), Meta: &broker.Meta{Key: "a"}}, func(c *rig.Setup) { c.Key = keyed }, dedupe.Key{Scope: "t-3", Key: "7"}},
		{"no key", broker.Outgoing{Body: []byte("x"), Meta: &broker.Meta{Key: "a"}}, func(c *rig.Setup) { c.Key = keyed }, dedupe.Key{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			rig.Bubble(t, bad, func(r *rig.Rig) {
				r.Put(c.sent)
				r.RunFor(time.Minute)
				ms := r.Letters()
				if len(ms) != 1 {
					t.Fatalf("%d letters", len(ms))
				}
				d := ms[0].Meta.Dead
				if got := (dedupe.Key{Scope: d.Scope, Key: d.Key}); got != c.want {
					t.Errorf("the letter names %+v, want %+v", got, c.want)
				}
				if c.want == (dedupe.Key{}) {
					return
				}
				rs, err := r.Store.Get(t.Context(), []dedupe.Key{c.want})
				if err != nil || rs[0] == nil || rs[0].Fence != d.Fence || rs[0].Status != dedupe.Failed {
					t.Errorf("the record is %+v, %v; the letter is %+v", rs, err, d)
				}
			}, func(r *rig.Rig) {
				if c.set != nil {
					c.set(&r.Cfg)
				}
			})
		})
	}
}
