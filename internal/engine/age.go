package engine

import (
	"fmt"
	"time"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/verdict"
)

// tooOld says why a job must not start although its claim was won; nil means that it may start.
// There are two reasons:
//
//   - The job expired.
//   - Its message was older than Retention when the key's record was made. An earlier record may
//     have said done, and be gone by now.
//
// It looks at when the record was made, not at whether this claim made it. The worker that first
// found the message too old may have died before it settled that.
func (en *Engine[J]) tooOld(m *broker.Message, created, now time.Time) *Refusal {
	if m.Meta != nil && !m.Meta.Expires.IsZero() && !now.Before(m.Meta.Expires) {
		return &Refusal{Class: verdict.Expired, Err: fmt.Errorf("onceq: the job expired at %s", m.Meta.Expires.UTC().Format(time.RFC3339))}
	}
	made := madeAt(m)
	if made.IsZero() || created.IsZero() {
		return nil
	}
	if age := created.Sub(made); age > en.o.Retention {
		return &Refusal{Class: verdict.Unproven, Err: fmt.Errorf("onceq: the job was %v old when its record was made: an earlier record may have been kept for %v and be gone", age.Round(time.Second), en.o.Retention)}
	}
	return nil
}

// madeAt is when the job was made, or failed, or might start: the latest of these. It is the zero
// time where nobody says. Where the metadata says nothing, the time at which the broker took the
// message counts. That time counts as well where the metadata names a later one, because only a
// sender who wants to be younger says so.
func madeAt(m *broker.Message) time.Time {
	if m.Meta == nil {
		return m.Published
	}
	made := m.Meta.Created
	if m.Meta.Dead != nil {
		made = latest(made, m.Meta.Dead.At)
	}
	if !m.Published.IsZero() && (made.IsZero() && m.Meta.NotBefore.IsZero() || made.After(m.Published)) {
		made = m.Published
	}
	return latest(made, m.Meta.NotBefore)
}

// sentAt is when the job was sent, as far as its message tells. Of a Do nobody tells.
func sentAt(m *broker.Message) time.Time {
	if m.Meta != nil && !m.Meta.Created.IsZero() {
		return m.Meta.Created
	}
	return m.Published
}

// age is how old the job is, as far as its message tells; 0 = it does not.
func age(m *broker.Message, now time.Time) time.Duration {
	sent := sentAt(m)
	if sent.IsZero() {
		return 0
	}
	return max(0, now.Sub(sent))
}
