package engine

import (
	"time"

	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/durations"
)

// Timing is how a run went, in times.
type Timing struct {
	Key        dedupe.Key
	Attempt    int
	Fence      uint64
	QueueWait  time.Duration
	Process    time.Duration
	Visibility time.Duration
	Heartbeat  bool
	Beats      int
	Receives   int

	Ran          bool
	Began, Ended time.Time
	Held, Settle time.Duration
	Age, Delay   time.Duration
	Policy       dedupe.Policy
	PrevClass    string
	From         string
	DeadFor      time.Duration
}

// Timing is that of a run which has ended.
func (en *Engine[J]) Timing(r *Run[J]) Timing {
	t := en.timingUpTo(r, over)
	if r.Ran {
		t.Process = max(0, r.ended-r.began)
		t.Ended = t.Began.Add(t.Process)
		t.Settle = max(0, time.Since(t.Ended))
	}
	if r.Action == Nack {
		t.Delay = r.Verdict.Delay
	}
	return t
}

// Took is how long the handler of a run that has ended has taken; false where none has, or where
// the claim was lost while it ran.
func (r *Run[J]) Took() (time.Duration, bool) { return r.ended - r.began, r.Ran && r.ended > r.began }

// TimingOfAbandoned is that of a run which was given up.
func (en *Engine[J]) TimingOfAbandoned(r *Run[J]) Timing { return en.timingUpTo(r, phase(r.left)) }

// timingUpTo is what is known of a run that has got so far. It reads nothing that later phases
// write, because others may be writing it.
func (en *Engine[J]) timingUpTo(r *Run[J], at phase) Timing {
	t := Timing{Visibility: en.o.Visibility, Heartbeat: r.f.Terms.Holds()}
	if at >= claimed {
		t.Key, t.Attempt, t.Fence = r.Key, int(r.Attempt), r.Fence
		t.Heartbeat = t.Heartbeat || r.Fence != 0
		t.Policy = r.Opts.Policy
		if k := r.known; k != nil {
			t.PrevClass, t.From, t.DeadFor = k.prevClass, k.from, k.deadFor
		}
	}
	if at >= running && r.Ran {
		t.Ran, t.Began = true, r.f.epoch.Add(r.began)
		t.Held = max(0, r.began-r.came)
	}
	if at == running {
		t.Process = time.Since(r.f.epoch) - r.began
	}
	if r.hasOneLease() {
		t.Heartbeat = false
		t.Visibility = min(MaxLease, durations.Sum(r.known.until.Sub(r.f.epoch), en.o.SettleTimeout))
	}
	m := r.Message
	if m == nil {
		return t
	}
	t.Receives = m.Attempt
	r.mu.Lock()
	t.Beats = int(r.beats)
	r.mu.Unlock()
	from := m.Published
	t.Age = age(m, time.Now())
	if m.Meta != nil {
		from = latest(latest(from, m.Meta.NotBefore), m.Meta.Postponed)
	}
	if at >= running && r.Ran && !from.IsZero() {
		t.QueueWait = max(0, r.f.epoch.Add(r.began).Sub(from))
	}
	return t
}
