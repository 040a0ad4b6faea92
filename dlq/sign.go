package dlq

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"hash"
	"maps"
	"slices"
	"time"

	"github.com/onceq/onceq/broker"
)

// MinSigningKey is the fewest bytes of one of [Keys].
const MinSigningKey = 32

// Keys sign dead letters, so that only what a worker, or an operator with a key, has put can reopen a failure. The first key
// signs and every key verifies: to rotate, put the new key in front, and drop the old one when no letter of it is left. Each
// has [MinSigningKey] random bytes or more. No keys: nothing is signed, and nothing is verified.
type Keys [][]byte

// Check tells which key is too short.
func (ks Keys) Check() error {
	for i, k := range ks {
		if len(k) < MinSigningKey {
			return fmt.Errorf("key %d has %d bytes, want at least %d, drawn at random", i, len(k), MinSigningKey)
		}
	}
	return nil
}

// Sign signs an outgoing letter, or its replay, in its metadata, which must be its own. One without a fence reopens nothing
// and gets no signature.
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

// Signed tells whether one of the keys has signed the letter m, and nothing of it was changed that decides what its job does.
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

// letterMAC covers what decides whether and how the letter's job runs. The texts of errors are left out, for a letter that does not
// fit has them cut; so is the group, which a queue may require and get from us.
func letterMAC(key, body []byte, attributes map[string]string, m *broker.Meta) []byte {
	d := m.Dead
	h := hmac.New(sha256.New, key)
	write(h, "onceq letter 1", d.Source, d.Class)
	number(h, int64(d.Fence), int64(d.Attempts), millis(d.At)) //nolint:gosec // the same bits
	if len(d.Attributes) > 0 {
		attributes = folded(d.Attributes, attributes)
	}
	job(h, body, attributes, m)
	return h.Sum(nil)
}

// noPriority stands where metadata once had a priority, so that signatures stay what they were.
const noPriority = 0

// job writes each part with its length, so that no two lists of parts are one. Times and the timeout are written as they travel.
func job(h hash.Hash, body []byte, attributes map[string]string, m *broker.Meta) {
	if m == nil {
		m = &broker.Meta{}
	}
	write(h, m.Key, m.ID, m.Type, m.CorrelationID)
	number(h, millis(m.Created), millis(m.NotBefore), millis(m.Expires), int64(m.MaxAttempts), noPriority,
		int64((m.Timeout+time.Millisecond-1)/time.Millisecond), int64(len(body)))
	h.Write(body)
	for _, k := range slices.Sorted(maps.Keys(attributes)) {
		if k != broker.TraceAttribute && k != UnreadableAttribute {
			write(h, k, attributes[k])
		}
	}
}

func write(h hash.Hash, parts ...string) {
	for _, p := range parts {
		number(h, int64(len(p)))
		h.Write([]byte(p))
	}
}

func number(h hash.Hash, ns ...int64) {
	var b [8]byte
	for _, n := range ns {
		binary.BigEndian.PutUint64(b[:], uint64(n)) //nolint:gosec // the same bits
		h.Write(b[:])
	}
}

// millis tells the zero time, which does not travel, from the epoch.
func millis(t time.Time) int64 {
	if t.IsZero() {
		return -1 << 63
	}
	return t.UnixMilli()
}
