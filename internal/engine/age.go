package engine

import (
	"fmt"
	"time"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/verdict"
)

// tooOld tells why a job whose claim was won must not start: it expired, or its message was older
// than Retention when its record was made, so that an earlier record may have said done and be
// gone. It looks at the record's beginning, not at whether this claim made it: the first who found
// the message too old may have died before that was settled.
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

// madeAt is when the job was made, or failed, or might start; the zero time where nobody says. What
// was made or failed later than the broker took the message was not: its sender says so to be
// younger.
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

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
