package engine

import (
	"crypto/rand"
	"testing"
	"time"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dlq"
)

func sumOf(m *broker.Message, secret dedupe.Token) string { return string(appendSum(nil, m, secret)) }

func drawn(t testing.TB) (k dedupe.Token) {
	t.Helper()
	if _, err := rand.Read(k[:]); err != nil {
		t.Fatal(err)
	}
	return k
}

// No two contents have one sum. Neighbours in length and in place are told apart, and so are
// attributes that run into each other.
func TestContentSumTellsContentsApart(t *testing.T) {
	secret := drawn(t)
	seen := make(map[string]string)
	add := func(what string, m *broker.Message) {
		t.Helper()
		s := sumOf(m, secret)
		if was, ok := seen[s]; ok {
			t.Errorf("%s has the sum of %s", what, was)
		}
		seen[s] = what
	}
	for n := range 40 {
		add("zeros", &broker.Message{Body: make([]byte, n)})
		for i := range n {
			for _, c := range []byte{1, 0x80, 0xff} {
				b := make([]byte, n)
				b[i] = c
				add("one byte", &broker.Message{Body: b})
			}
		}
	}
	for _, as := range []map[string]string{{"": ""}, {"a": "bc"}, {"ab": "c"}, {"a": "b", "c": ""}, {"a": "", "b": "c"}, {"a": "c", "b": ""}} {
		add("attributes", &broker.Message{Attributes: as})
	}
	at := time.UnixMilli(1 << 40)
	for _, meta := range []broker.Meta{
		{Type: "t"}, {NotBefore: at}, {Expires: at}, {MaxAttempts: 1}, {MaxAttempts: -1}, {Timeout: 1}, {Timeout: time.Hour},
	} {
		add("metadata", &broker.Message{Meta: &meta})
	}
}

// What differs between two honest sends, between a message and its letter, and between two places,
// changes nothing.
func TestContentSumLeavesOut(t *testing.T) {
	secret := drawn(t)
	m := &broker.Message{ID: "1", Body: []byte("body"), Attributes: map[string]string{"a": "1"}}
	again := &broker.Message{
		ID: "2", Body: []byte("body"), Group: "g", Attributes: map[string]string{"a": "1", broker.TraceAttribute: "00", dlq.UnreadableAttribute: "x"},
		Meta: &broker.Meta{ID: "i", Key: "k", CorrelationID: "c", Created: time.Now(), Dead: &broker.Letter{Fence: 1}},
	}
	if sumOf(m, secret) != sumOf(again, secret) {
		t.Error("an honest second message has another sum")
	}
	if sumOf(m, secret) == sumOf(m, drawn(t)) {
		t.Error("the sum does not depend on the secret")
	}
	for _, half := range []int{0, 8} {
		other := secret
		other[half] ^= 1
		if sumOf(m, secret) == sumOf(m, other) {
			t.Errorf("the sum does not depend on byte %d of the secret", half)
		}
	}
}

// Records keep these sums for weeks, and workers of other versions compare them. So no sum may
// change.
func TestContentSumStays(t *testing.T) {
	secret := dedupe.Token{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}
	at := time.UnixMilli(1764000000000)
	for want, m := range map[string]*broker.Message{
		"8shunpxr7vgp": {},
		"90tlnp3mlfee": {Body: []byte("995 cents"), Attributes: map[string]string{"tenant": "acme"}, Meta: &broker.Meta{Type: "charge"}},
		"gkm4mih3vijn": {Body: []byte("995 cents"), Meta: &broker.Meta{NotBefore: at, Expires: at, MaxAttempts: 3, Timeout: time.Minute}},
	} {
		if got := sumOf(m, secret); got != want {
			t.Errorf("the sum of %+v is %s, want %s", m, got, want)
		}
	}
}

func BenchmarkContentSum(b *testing.B) {
	secret := drawn(b)
	m := &broker.Message{ID: "1", Body: make([]byte, 100), Meta: &broker.Meta{Type: "mail"}}
	var buf [32]byte
	b.ReportAllocs()
	for b.Loop() {
		appendSum(buf[:0], m, secret)
	}
}
