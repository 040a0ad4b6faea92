package dlq

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/digest"
	"github.com/onceq/onceq/internal/letter"
)

// MinSigningKey is the fewest bytes of one of [Keys].
const MinSigningKey = 32

// Keys sign dead letters. Only a letter that a worker has put, or an operator with a key, can then
// reopen a failure. The first key signs, and every key verifies. To rotate, put the new key in
// front, and drop the old one when no letter of it is left. Each key has [MinSigningKey] random
// bytes or more. Without keys nothing is signed, and nothing is verified.
type Keys [][]byte

// Check names the first key that is too short; nil = none is.
func (ks Keys) Check() error {
	for i, k := range ks {
		if len(k) < MinSigningKey {
			return fmt.Errorf("key %d has %d bytes, want at least %d, drawn at random", i, len(k), MinSigningKey)
		}
	}
	return nil
}

// Sign signs an outgoing letter, or its replay. It writes the signature into the letter's metadata,
// which nobody else may share. A letter without a fence reopens nothing and gets no signature.
func (ks Keys) Sign(out *broker.Outgoing) {
	d := deadOf(out.Meta)
	if d == nil || len(ks) == 0 {
		return
	}
	d.Signature = ""
	if d.Fence != 0 {
		d.Signature = base64.RawURLEncoding.EncodeToString(letterMAC(ks[0], out.Body, out.Attributes, out.Meta))
	}
}

// Signed reports whether one of the keys has signed the letter m, and nothing has been changed
// since that decides what its job does.
func (ks Keys) Signed(m *broker.Message) bool {
	d := deadOf(m.Meta)
	if d == nil || d.Fence == 0 {
		return false
	}
	sum, err := base64.RawURLEncoding.DecodeString(d.Signature)
	if err != nil {
		return false
	}
	signed := false
	for _, k := range ks {
		signed = hmac.Equal(sum, letterMAC(k, m.Body, m.Attributes, m.Meta)) || signed
	}
	return signed
}

// noPriority stands where metadata once had a priority, so that signatures stay what they were.
const noPriority = 0

// letterMAC covers what decides whether and how the letter's job runs. Times and the timeout are
// covered as they travel. These are left out:
//
//   - the texts of errors, because a letter that does not fit has them cut;
//   - the group, because a queue may require one and get it from us;
//   - the trace, and metadata that could not be read.
func letterMAC(key, body []byte, attributes map[string]string, m *broker.Meta) []byte {
	d := m.Dead
	form := []string{"onceq letter 1"}
	if d.Scope != "" || d.Key != "" { // else the letter may be from before there were these
		form = []string{"onceq letter 2", d.Scope, d.Key}
	}
	b := digest.Texts(digest.Texts(nil, form...), d.Source, d.Class)
	b = digest.Numbers(b, int64(d.Fence), int64(d.Attempts), millis(d.At)) // the same bits
	b = digest.Texts(b, m.Key, m.ID, m.Type, m.CorrelationID)
	b = digest.Numbers(b, millis(m.Created), millis(m.NotBefore), millis(m.Expires), int64(m.MaxAttempts), noPriority,
		int64((m.Timeout+time.Millisecond-1)/time.Millisecond), int64(len(body)))
	h := hmac.New(sha256.New, key)
	h.Write(b)
	h.Write(body)
	attributes = letter.Attributes(attributes, m)
	b = b[:0]
	for _, k := range slices.Sorted(maps.Keys(attributes)) {
		if k != broker.TraceAttribute && k != UnreadableAttribute {
			b = digest.Texts(b, k, attributes[k])
		}
	}
	h.Write(b)
	return h.Sum(nil)
}

// millis distinguishes the zero time, which does not travel, from the epoch.
func millis(t time.Time) int64 {
	if t.IsZero() {
		return -1 << 63
	}
	return t.UnixMilli()
}

// SignReplay signs what is sent in the place of a letter's replay, with the first of
// Options.LetterKeys, as [Keys.Sign] does. Without keys it does nothing.
func (q *Queue) SignReplay(out *broker.Outgoing) { q.o.LetterKeys.Sign(out) }
