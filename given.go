package onceq

import (
	"maps"
	"time"

	"github.com/onceq/onceq/broker"
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
	r := f.NewRun(m, now)
	g.message.Meta = &g.meta
	r.Job = Job{Message: &g.message, r: r}
	return r
}
