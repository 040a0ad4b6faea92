package onceq

import (
	"maps"
	"time"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/letter"
)

// given is the room for a user's copy of a message. One allocation makes those of a whole receive.
type given struct {
	message broker.Message
	meta    broker.Meta
}

// give makes the user's copy of the message. So a letter is made from what was received, whatever
// the user does with the copy.
func give(r *run) {
	m, meta := r.Job.Message, r.Job.Message.Meta
	*m = *r.Message
	m.Attributes = maps.Clone(m.Attributes)
	if m.Meta == nil {
		return
	}
	*meta = *m.Meta
	if meta.Dead != nil {
		meta.Dead = m.Meta.Clone().Dead
	}
	m.Meta = meta
}

// newRun makes the run of a delivery. The user's copy of the message goes into g.
func newRun(f *flow, m *broker.Message, g *given, now time.Time) *run {
	unfold(m)
	r := f.NewRun(m, now)
	g.message.Meta = &g.meta
	r.Job = Job{Message: &g.message, r: r}
	return r
}

// unfold puts a replayed letter's attributes back into their places, where a queue on its way had
// no room for them. So the handler sees the message as it was. Where an attribute of the same name
// came with the message, that one wins.
func unfold(m *broker.Message) {
	if m == nil || !letter.IsFolded(m.Meta) { // a batch may bring a delivery without a message
		return
	}
	m.Attributes, m.Meta = letter.Attributes(m.Attributes, m.Meta), m.Meta.Clone() // the driver may hold on to its own
	m.Meta.Dead.Attributes = nil
}
