// Package dlq makes dead letters, and looks after them: messages that could not be done, with the reason why and the
// permission to try exactly that failure once more. A [Queue] lists, groups, replays and purges them, on any broker.
package dlq

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"maps"

	"github.com/onceq/onceq/broker"
)

// Fit is how far a letter is cut down to what a dead-letter queue takes. A letter is never dropped
// because it does not fit.
type Fit int

// The fits, from the whole letter to the message alone.
const (
	Whole   Fit = iota // everything
	Trimmed            // error texts cut to TrimmedText bytes
	Folded             // as Trimmed, and the user's attributes inside the metadata, as one attribute
	Bare               // as it was received, without our metadata: its replay cannot reopen the failure
	Fits               // how many fits there are
)

// TrimmedText is how many bytes of an error's text a Trimmed letter keeps.
const TrimmedText = 120

// UnreadableAttribute is where a letter keeps our metadata attribute when it could not be read, as it
// came. The name is ours, as that of the attribute is: a user's attribute of this name is left out of a letter.
const UnreadableAttribute = broker.MetaAttribute + "-unreadable"

// The classes of letters that a replay treats in a way of their own; package onceq names all classes.
const (
	ClassBadMeta   = "bad-meta"  // our metadata could not be read: the replay restores it
	ClassExpired   = "expired"   // these four have no fence, for nothing failed; their replay's claim is an ordinary one
	ClassUnproven  = "unproven"  //
	ClassTooEarly  = "too-early" //
	ClassDuplicate = "duplicate" //

	// The worker's configuration was wrong, and not the message: one that was mended takes it.
	classNoKey     = "no-key"
	classBadKey    = "bad-key"
	classNoHandler = "no-handler"
	classConfig    = "config"

	classMismatch = "mismatch" // another message has its key
)

// FitFor is the first fit worth trying, by the number of attributes that the queue takes.
func FitFor(m *broker.Message, l broker.Limits) Fit {
	if l.MaxAttributes > 0 && len(m.Attributes) >= l.MaxAttributes {
		return Folded
	}
	return Whole
}

// Key names the job that a letter is of.
type Key struct{ Scope, Key string }

// Letter is the dead letter of m. Its metadata is the message's, with d; a message of a foreign producer gets
// metadata with its key, so that the letter can be found and replayed. Broker-level deduplication sees each
// failure once, and never takes the letter for the message itself.
func Letter(m *broker.Message, k Key, d broker.Dead, f Fit) broker.Outgoing {
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
	meta := m.Meta.Clone()
	if meta == nil {
		meta = foreign(m, k)
	}
	if f >= Trimmed {
		d.FirstErr, d.LastErr = trim(d.FirstErr), trim(d.LastErr)
	}
	if meta.Dead != nil {
		// The message is a letter that was moved back as it was: what is folded in it stays.
		d.Attributes = meta.Dead.Attributes
	}
	if f >= Folded {
		d.Attributes, out.Attributes = folded(d.Attributes, out.Attributes), nil
	}
	meta.Dead = &d
	out.Meta = meta
	return out
}

// folded puts the message's attributes beside those that were folded before; the message's own win.
func folded(inside, outer map[string]string) map[string]string {
	if len(inside) == 0 {
		return outer
	}
	all := maps.Clone(inside)
	maps.Copy(all, outer)
	return all
}

// foreign is the metadata of a message that came without. Where no key was found it has no id either: a replay would take
// the broker's message id, which a redrive changes, for the key.
func foreign(m *broker.Message, k Key) *broker.Meta {
	meta := &broker.Meta{Key: k.Key, Created: m.Published}
	if k.Key != "" {
		meta.ID = m.ID
	}
	return meta
}

// dedupID is derived and never the original's: within five minutes a FIFO queue would swallow it, and the
// ack that follows would lose the job. Where no claim was won there is no fence, and the message's id
// tells letters apart; so it does for bare letters, for one that is moved back shows no fence, and becomes a letter
// of the same failure once more.
func dedupID(k Key, fence uint64, direction, id string, f Fit) string {
	if fence != 0 && f < Bare {
		id = ""
	}
	h := sha256.New()
	var n [8]byte
	for _, part := range [...]string{k.Scope, k.Key, direction, id} {
		binary.BigEndian.PutUint64(n[:], uint64(len(part)))
		h.Write(n[:])
		h.Write([]byte(part))
	}
	binary.BigEndian.PutUint64(n[:], fence)
	h.Write(n[:])
	return hex.EncodeToString(h.Sum(nil)[:16])
}

func trim(s string) string { return cutAt(s, TrimmedText) }

// cutAt leaves n bytes of a longer text, and tells how long it was.
func cutAt(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && s[n]&0xC0 == 0x80 {
		n--
	}
	return fmt.Sprintf("%s… (%d bytes)", s[:n], len(s))
}
