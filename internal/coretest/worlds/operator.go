package worlds

import (
	"errors"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/control"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dlq"
	"github.com/onceq/onceq/internal/controlstore"
	"github.com/onceq/onceq/internal/coretest/rig"
	"github.com/onceq/onceq/ops"
)

// This file owns the operator, who acts in a goroutine of his own while everything goes wrong, and
// what hosts owe to his rules.

// replayed are the types whose letters may be replayed. Park's jobs whose effect lies elsewhere are
// left alone, because a replay of them is a person's decision.
var replayed = []string{"tx-rerun", "tx-park", "steps", "tx-bulk"}

// obeyed is after what time a host that has read a rule starts nothing more against it: what it had
// claimed by then has begun.
const obeyed = 15 * time.Second

// order is a rule that was made.
type order struct {
	control.Rule
	version int
}

// operator cancels jobs, replays letters and makes rules.
func (w *world) operator(keys []dedupe.Key, until time.Time) {
	letters, err := dlq.New(w.dlq, nil)
	if err != nil {
		w.t.Error(err)
		return
	}
	o, err := ops.New([]ops.Target{{Name: "q", Store: w.st}}, &ops.Options{By: "ana"})
	if err != nil {
		w.t.Error(err)
		return
	}
	for {
		rig.Takes(time.Duration(10+w.n(50)) * time.Second)
		if time.Now().After(until) {
			return
		}
		switch n := w.n(5); {
		case n == 0 && w.ruled:
			w.rule()
		case n < 3:
			_, err := letters.Replay(w.t.Context(), dlq.ReplayOptions{To: w.q, Filter: dlq.Filter{Type: replayed[w.n(len(replayed))]}})
			if err != nil && !errors.Is(err, dlq.ErrIncomplete) {
				w.t.Errorf("replay: %v", err)
			}
		default:
			w.cancel(o, w.unfinished(keys))
		}
	}
}

func (w *world) cancel(o *ops.Ops, k dedupe.Key) {
	w.mu.Lock()
	w.asked[k.Key] = true
	w.mu.Unlock()
	_, err := o.Cancel(w.t.Context(), ops.CancelSpec{Key: k, Reason: "soak"})
	w.book.note(k.Key, "the operator cancels it", because(err))
	if err == nil {
		w.mu.Lock()
		w.cancelled[k.Key] = true
		w.mu.Unlock()
	} else if !errors.Is(err, ops.ErrRefused) {
		w.wrong(k.Key, "could not be cancelled: %v", err)
	}
}

// unfinished draws a job that is not done, if it finds one soon.
func (w *world) unfinished(keys []dedupe.Key) (k dedupe.Key) {
	for range 30 {
		k = keys[w.n(len(keys))]
		r := w.record(k)
		if r == nil || r.Status == dedupe.Claimed || r.Status == dedupe.Released {
			break
		}
	}
	return k
}

// rule pauses the queue, a type or a scope for a while, or limits the queue.
func (w *world) rule() {
	r := control.Rule{Do: control.Pause, Until: time.Now().Add(30*time.Second + w.draw(2*time.Minute)), By: "ana", Reason: "soak"}
	typ := types[w.n(len(types))]
	switch w.n(4) {
	case 0:
		r.Queue = queue
	case 1:
		r.Type = typ
	case 2:
		r.Scope = rig.Scope + ":" + typ
	case 3:
		r.Do, r.Queue, r.Slots = control.Limit, queue, 1+w.n(3)
	}
	got, err := controlstore.Change(w.t.Context(), w.st, func(rs *controlstore.Rules) error {
		rs.Rules = append(rs.Rules, r)
		return nil
	})
	if err != nil {
		w.t.Errorf("a rule: %v", err)
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.done["rules"]++
	w.orders = append(w.orders, order{r, int(got.Version)})
}

// checkOrders checks that a job may start by the rules that its host knows. w.mu is held.
func (w *world) checkOrders(m *Machine, j *onceq.Job) {
	for i := range w.orders {
		o := &w.orders[i]
		k := j.Key()
		if !o.Fits(queue, k.Scope, j.Type(), time.Now()) {
			continue
		}
		switch since := m.known(o.version); {
		case since < obeyed:
		case o.Do == control.Pause:
			w.wrongLocked(k.Key, "starts on %s, which has known for %v that it is paused", m.name, since)
		case m.running > o.Slots && !m.function:
			w.wrongLocked(k.Key, "starts on %s as one of %d jobs, and for %v the host has known a limit of %d", m.name, m.running, since, o.Slots)
		}
	}
}
