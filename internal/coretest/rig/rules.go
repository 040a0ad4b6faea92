package rig

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/control"
	"github.com/onceq/onceq/internal/controlstore"
)

// Bound is after what time a rule holds everywhere: Every and CallTimeout.
const Bound = 15 * time.Second

// Steered lets the rig's worker obey rules, which a store in memory does not do by itself.
func Steered(r *Rig) { r.Cfg.Control.Every, r.Cfg.Queue = 10*time.Second, Scope }

// Rules changes the rules as an operator does, whose store always answers.
func (r *Rig) Rules(edit func(*controlstore.Rules)) controlstore.Rules {
	r.Helper()
	got, err := controlstore.Change(r.Context(), r.Store.Store, func(rs *controlstore.Rules) error {
		edit(rs)
		return nil
	})
	if err != nil {
		r.Fatal(err)
	}
	return got
}

// Orders adds a rule for d.
func (r *Rig) Orders(d time.Duration, set func(*control.Rule)) string {
	r.Helper()
	rule := control.Rule{Do: control.Pause, Until: time.Now().Add(d), By: "ana", Reason: "SMTP migration"}
	set(&rule)
	got := r.Rules(func(rs *controlstore.Rules) { rs.Rules = append(rs.Rules, rule) })
	return got.Rules[len(got.Rules)-1].ID
}

// watcher also keeps the events of workers, but for those of the store's outages.
type watcher struct {
	*Seen
	events []string
}

func (w *watcher) WorkerEvent(_ context.Context, e *onceq.WorkerEvent) {
	w.Mu.Lock()
	defer w.Mu.Unlock()
	w.events = append(w.events, strings.TrimSpace(string(e.Kind)+" "+e.Reason))
}

func Watched(r *Rig) { r.Cfg.Observer = &watcher{Seen: r.Seen} }

func (r *Rig) WantEvents(want ...string) {
	r.Helper()
	w := r.Cfg.Observer.(*watcher)
	w.Mu.Lock()
	defer w.Mu.Unlock()
	if !slices.Equal(w.events, want) {
		r.Errorf("the events are %q, want %q", w.events, want)
	}
}

func JobOf(typ, key, group string) broker.Outgoing {
	m := Message(key)
	m.Meta.Type, m.Group = typ, group
	if group == "" {
		m.Group = key
	}
	return m
}
