// Package letter makes dead letters, and cuts them down to what a queue takes. The engine puts
// letters. Package dlq reads them and sends them back. Both must know one form. Workers of several
// versions share a queue, so no byte of that form may change (see dlq/testdata).
package letter

import (
	"maps"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/digest"
)

// UnreadableAttribute is where a letter keeps our metadata attribute, as it came, when the worker
// could not read it. A letter leaves out a user's attribute of this name.
const UnreadableAttribute = broker.MetaAttribute + "-unreadable"

// Key names the job that a letter is of.
type Key struct{ Scope, Key string }

// Make makes the dead letter of m in the given fit. Its metadata is the message's, with d. A
// message of a foreign producer gets metadata with its key, so that the letter can be found and
// replayed. By its deduplication id a queue sees each failure once, and never takes the letter for
// the message itself.
func Make(m *broker.Message, k Key, d broker.Letter, f Fit) broker.Outgoing {
	out := broker.Outgoing{
		Body: m.Body, Attributes: m.Attributes, Group: m.Group,
		DedupID: dedupID(k, d.Fence, "letter", m.ID, f),
	}
	if _, taken := m.Attributes[UnreadableAttribute]; taken || m.MetaErr != nil {
		out.Attributes = maps.Clone(m.Attributes)
		delete(out.Attributes, UnreadableAttribute)
	}
	if f >= Bare {
		return out
	}
	if raw, ok := out.Attributes[broker.MetaAttribute]; ok && m.MetaErr != nil {
		delete(out.Attributes, broker.MetaAttribute)
		out.Attributes[UnreadableAttribute] = raw
	}
	out.Meta = m.Meta.Clone()
	if out.Meta == nil {
		out.Meta = foreign(m, k)
	}
	if out.Meta.Dead != nil {
		// The message is a letter that was moved back as it was, so what is folded in it stays.
		d.Attributes = out.Meta.Dead.Attributes
	}
	out.Meta.Dead = &d
	Shrink(&out, f)
	return out
}

// foreign is the metadata of a message that came without. Where no key was found it gets no id
// either. A replay would take that id for the key, and it is the broker's message id, which a
// redrive changes.
func foreign(m *broker.Message, k Key) *broker.Meta {
	meta := &broker.Meta{Key: k.Key, Created: m.Published}
	if k.Key != "" {
		meta.ID = m.ID
	}
	return meta
}

// dedupID is the letter's deduplication id. It is derived, and never the original's. Within five
// minutes a FIFO queue would swallow a letter with that id, and the ack that follows would lose the
// job.
//
// Where no claim was won there is no fence, and the message's id tells letters apart. It does so
// for bare letters too. A bare letter that is moved back shows no fence, and becomes a letter of
// the same failure once more.
func dedupID(k Key, fence uint64, direction, id string, f Fit) string {
	if fence != 0 && f < Bare {
		id = ""
	}
	return digest.Hex(digest.Numbers(digest.Texts(nil, k.Scope, k.Key, direction, id), fence))
}
