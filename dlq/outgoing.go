package dlq

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"maps"
	"time"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/letter"
)

// This file owns what a replay sends for a letter, or why it sends nothing. replay.go calls
// replayOf in the goroutine of Replay. No lock is held, and the letter itself stays as it is.

// The reasons why a letter is not sent.
var (
	errNoFence   = errors.New("no claim was won for it (fence 0), so it would be refused again: give it another key with Edit")
	errNoMeta    = errors.New("its metadata was taken away by Edit")
	errNoKey     = errors.New("it was left neither Key nor ID by Edit")
	errMismatch  = errors.New("a message with another payload has its key, so it would be refused again: give it another key with Edit")
	errExpired   = errors.New("its job had expired: ReplayOptions.Expired runs it all the same, or Edit gives it another Expires")
	errUnproven  = errors.New("it was so old that its record may be gone, so it may be done already: look, and then set ReplayOptions.Unproven")
	errSameJob   = errors.New("this replay has sent the job already, and it failed again, or had failed before: run it again")
	errCopyStays = errors.New("a copy of a letter that was not sent")
)

// replayOf is what a replay sends for the letter: the message as the worker met it, with the reason
// and the fence of its failure. An error says why it is not to be sent.
func replayOf(of *item, l broker.Limits, o *ReplayOptions, keys Keys) (broker.Outgoing, error) {
	m, edit := of.m, o.Edit
	out := broker.Outgoing{Body: m.Body, Attributes: maps.Clone(m.Attributes), Meta: m.Meta.Clone(), Group: m.Group}
	if out.Meta != nil {
		out.Meta.Postponed = time.Time{} // the handler says again how long the job waits
	}
	unfold(&out, l)
	restore(&out)
	dead, key, typ, expires := deadOf(out.Meta), keyOf(out.Meta), typeOf(out.Meta), expiresOf(out.Meta)
	forged := of.unsigned && !o.TrustUnsigned
	if forged && dead != nil {
		dead.Fence, dead.Signature = 0, ""
	}
	had := out.Meta != nil
	if edit != nil {
		out.Body = bytes.Clone(m.Body) // the letter itself stays as it is
		shown := out
		if shown.Attributes == nil {
			shown.Attributes = make(map[string]string)
		}
		shown.Meta = out.Meta.Clone()
		if err := edit(&shown); err != nil {
			return out, err
		}
		out = shown
		switch {
		case had && out.Meta == nil:
			return out, errNoMeta
		case keyOf(out.Meta) == "" && key != "":
			return out, errNoKey
		case out.Meta != nil:
			out.Meta = out.Meta.Clone() // Edit may have given the same one to several letters
			out.Meta.Dead = dead
			// Edit has replaced what was unreadable.
			delete(out.Attributes, broker.MetaAttribute)
		}
	}
	if dead != nil && dead.Fence == 0 && !forged && keyOf(out.Meta) == key && typeOf(out.Meta) == typ {
		if err := o.checkSendable(dead, expiresOf(out.Meta).Equal(expires)); err != nil {
			return out, err
		}
		if dead.Class == classExpired && o.Expired && expiresOf(out.Meta).Equal(expires) {
			out.Meta.Expires = time.Time{}
		}
	}
	keys.Sign(&out) // Edit may have changed what was signed, and the first key may be new
	if l.RequireGroup && out.Group == "" {
		out.Group = identify("group", 0, keyOf(out.Meta), m.ID).String()
	}
	out.DedupID = replayID(m, &out, edit != nil)
	return out, nil
}

// checkSendable says why a letter without a fence is not sent as it is; nil = it is sent. These are
// sent:
//
//   - one that a worker refused because of its own configuration, because of the time, because
//     another message had failed, or because the store refused its claim;
//   - one that has expired or is unproven, where the options say so;
//   - any other one if its handler had been started, which happens without a store.
func (o *ReplayOptions) checkSendable(d *broker.Letter, sameExpiry bool) error {
	switch d.Class {
	case classTooEarly, classDuplicate, classNoKey, classBadKey, classNoHandler, classConfig, classError, classClaimRefused:
		return nil
	case classExpired:
		if sameExpiry && !o.Expired {
			return errExpired
		}
		return nil
	case classUnproven:
		if !o.Unproven {
			return errUnproven
		}
		return nil
	}
	switch {
	case d.Attempts > 0:
		return nil
	case d.Class == classMismatch:
		return errMismatch
	}
	return errNoFence
}

func expiresOf(m *broker.Meta) (t time.Time) {
	if m != nil {
		t = m.Expires
	}
	return t
}

// unfold gives the user's attributes their places back, if there is room for all of them beside
// ours.
func unfold(out *broker.Outgoing, l broker.Limits) {
	if !letter.IsFolded(out.Meta) {
		return
	}
	all := letter.Attributes(out.Attributes, out.Meta)
	if l.MaxAttributes > 0 && len(all)+1 > l.MaxAttributes && all[UnreadableAttribute] == "" {
		return
	}
	out.Attributes, out.Meta.Dead.Attributes = all, nil
}

// restore makes a message what it was, where the worker could not read its metadata: that worker
// may have been too old. In any other letter the attribute comes from somebody who would like to
// choose the metadata, so restore drops it.
func restore(out *broker.Outgoing) {
	raw, ok := out.Attributes[UnreadableAttribute]
	if !ok {
		return
	}
	delete(out.Attributes, UnreadableAttribute)
	if d := deadOf(out.Meta); d != nil && d.Class == classBadMeta && d.Fence == 0 {
		out.Attributes[broker.MetaAttribute] = withoutDead(raw)
		out.Meta = nil
	}
}

// withoutDead takes the permission to reopen out of metadata that nobody could read, because no
// worker has written it.
func withoutDead(raw string) string {
	var members map[string]json.RawMessage
	if json.Unmarshal([]byte(raw), &members) != nil || members["dead"] == nil {
		return raw // no version reads what is no JSON
	}
	delete(members, "dead")
	b, err := json.Marshal(members)
	if err != nil {
		return raw
	}
	return string(b)
}

// replayID is the broker-level deduplication id of a replay. It is not the letter's own, because a
// FIFO queue would swallow that. For five minutes such a queue takes a second message with the same
// id for the first one. That is right where a replay is sent once more, after a crash between send
// and ack: the first one was taken, and a worker acks it only for a done job or a stored letter. So
// the id holds all that makes two replays differ: the failure, the content, and, where there is no
// fence, the letter itself.
func replayID(m *broker.Message, out *broker.Outgoing, edited bool) string {
	parts := []string{sourceOf(m.Meta), typeOf(out.Meta), keyOf(out.Meta), string(out.Body)}
	if fenceOf(m.Meta) == 0 {
		parts = append(parts, m.ID)
	}
	if edited {
		parts = append(parts, broker.EncodeMeta(out.Meta), out.Group)
	}
	parts = content(out.Attributes, out.Meta, parts...)
	return identify("replay", fenceOf(m.Meta), parts...).String()
}

// jobName tells jobs apart, as far as metadata does; empty where there is none.
func jobName(m *broker.Meta) string {
	if key := keyOf(m); key != "" {
		return cmp.Or(m.Type, "-") + "\x00" + key
	}
	return ""
}

// within is f as a whole number from 1 to most. An int does not hold each rate.
func within(f float64, most int) int {
	if f >= float64(most) {
		return most
	}
	return max(1, int(f))
}
