package worlds

import (
	"context"
	"strings"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/coretest/rig"
)

// This file owns what a world is for: what must be true at its end. The test's goroutine asks.

func (w *world) record(k dedupe.Key) *dedupe.Record {
	rs, err := w.st.Get(context.WithoutCancel(w.t.Context()), []dedupe.Key{k})
	if err != nil {
		w.t.Error(err)
		return nil
	}
	return rs[0]
}

func (w *world) check(keys []dedupe.Key) {
	for name, q := range map[string]Queue{"queue": w.q, "outbox": w.outbox} {
		d, err := q.Depth(w.t.Context())
		if n := d.Visible + d.InFlight + d.Delayed; err != nil || n != 0 {
			w.t.Errorf("%d messages are still in the %s, %v", n, name, err)
		}
	}
	letters := w.letters()
	ends := make(map[string]int)
	for _, k := range keys {
		rec := w.record(k)
		if rec == nil {
			w.wrong(k.Key, "is lost: there is no record")
			continue
		}
		end := rec.Status.String()
		if rec.ErrClass == onceq.ClassCancelled {
			end = onceq.ClassCancelled
		}
		ends[end]++
		w.checkEnd(rec, letters)
		w.checkEffects(rec)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, k := range keys {
		if w.bad[k.Key] {
			w.t.Logf("%s:%s", k, w.book.timeLine(k, w.record(k)))
		}
	}
	starts := 0
	for _, n := range w.starts {
		starts += n
	}
	w.t.Logf("%d hosts, %d starts of %d jobs, which are %v; %d letters; %v", w.born, starts, len(keys), ends, len(letters), w.done)
}

// checkEnd checks that a job has come to an end, and that its letter is there.
func (w *world) checkEnd(r *dedupe.Record, letters map[letterOf]bool) {
	k := r.Key.Key
	switch r.Status {
	case dedupe.Done:
	case dedupe.Failed, dedupe.Parked:
		if r.ErrClass != onceq.ClassCancelled && !letters[letterOf{k, r.Fence}] {
			w.wrong(k, "is lost: it is %v with fence %d, and there is no such letter", r.Status, r.Fence)
		}
	case dedupe.Claimed, dedupe.Released:
		w.wrong(k, "is lost: it is %v, with an empty queue", r.Status)
	}
	if r.ErrClass == onceq.ClassCancelled && !w.asked[k] {
		w.wrong(k, "is cancelled, and nobody has asked for that")
	}
	if w.cancelled[k] && r.ErrClass != onceq.ClassCancelled {
		w.wrong(k, "was cancelled, and is %v", r.Status)
	}
}

func (w *world) checkEffects(r *dedupe.Record) {
	k, done := r.Key.Key, r.Status == dedupe.Done
	_, typ, _ := strings.Cut(r.Key.Scope, ":")
	want := 0
	if done && (strings.HasPrefix(typ, "tx-") || typ == due) {
		want = 1
	}
	if n := w.commits[k]; n != want {
		w.wrong(k, "is %v, and its effect was committed %d times", r.Status, n)
	}
	if n := w.outside[k]; n > 1 {
		w.wrong(k, "had its effect elsewhere %d times, and its policy is Park", n)
	}
	if n := w.outside[k]; done && strings.HasSuffix(typ, "once") && n != 1 {
		w.wrong(k, "is done, and its effect happened %d times", n)
	}
	for _, name := range stepNames {
		if done && typ == "steps" && !w.charged[onceq.EffectKey(r.Key, name)] {
			w.wrong(k, "is done, and its step %s has had no effect", name)
		}
	}
}

type letterOf struct {
	key   string
	fence uint64
}

// letters takes all of them out of their queue.
func (w *world) letters() map[letterOf]bool {
	seen := make(map[letterOf]bool)
	o := broker.ReceiveOptions{Max: w.dlq.Limits().ReceiveBatch, Wait: time.Second, Visibility: time.Minute}
	for {
		ms, err := w.dlq.Receive(w.t.Context(), o)
		if err != nil {
			w.t.Fatal(err)
		}
		if len(ms) == 0 {
			if d, err := w.dlq.Depth(w.t.Context()); err != nil || d == (broker.Depth{}) {
				return seen
			}
			rig.Takes(time.Minute)
		}
		for _, m := range ms {
			if m.Meta == nil || m.Meta.Dead == nil {
				w.t.Errorf("a letter has lost its reason: %q", m.Body)
				continue
			}
			seen[letterOf{m.Meta.Key, m.Meta.Dead.Fence}] = true
			if err := w.dlq.Ack(w.t.Context(), []broker.Receipt{m.Receipt}); err != nil {
				w.t.Fatal(err)
			}
		}
	}
}
