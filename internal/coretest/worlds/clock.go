package worlds

import (
	"time"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
)

// This file owns wrong clocks. A bubble has one clock, so a machine whose clock is ahead by ten
// minutes sees instead each time that comes from elsewhere as ten minutes longer ago, and what it
// writes is put right by as much. What it times by itself is the same with any clock. Times within
// what a job has saved stay as they are.

// inside is a time from elsewhere as the machine takes it.
func (m *Machine) inside(t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	return t.Add(-m.ahead)
}

// outside is a time of the machine's as others take it.
func (m *Machine) outside(t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	return t.Add(m.ahead)
}

// shift changes a message that has come. It is the caller's.
func (m *Machine) shift(x *broker.Message) {
	if m.ahead == 0 {
		return
	}
	x.Published = m.inside(x.Published)
	x.Meta = meta(x.Meta, m.inside)
}

// shifted are messages as they leave.
func (m *Machine) shifted(ms []broker.Outgoing) []broker.Outgoing {
	if m.ahead == 0 {
		return ms
	}
	out := make([]broker.Outgoing, len(ms))
	for i := range ms {
		out[i] = ms[i]
		out[i].Meta = meta(ms[i].Meta, m.outside)
	}
	return out
}

func meta(was *broker.Meta, by func(time.Time) time.Time) *broker.Meta {
	d := was.Clone()
	if d == nil {
		return nil
	}
	d.Created, d.NotBefore, d.Expires, d.Postponed = by(d.Created), by(d.NotBefore), by(d.Expires), by(d.Postponed)
	if d.Dead != nil {
		d.Dead.At = by(d.Dead.At)
	}
	return d
}

// shiftRecord is one of the store's as the machine takes it. It is the caller's.
func (m *Machine) shiftRecord(r *dedupe.Record) *dedupe.Record {
	if r == nil || m.ahead == 0 {
		return r
	}
	for _, t := range []*time.Time{&r.LeaseUntil, &r.Sent, &r.Created, &r.ClaimedAt, &r.Updated, &r.Finished, &r.Expires} {
		*t = m.inside(*t)
	}
	return r
}
