package vectors

import (
	"encoding/hex"
	"testing"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dlq"
)

// signed is a dead letter, and its signature under a key.
type signed struct {
	Name       string            `json:"name"`
	KeyHex     string            `json:"key_hex"`
	Body       string            `json:"body"`
	Attributes map[string]string `json:"attributes,omitempty"`
	Unsigned   string            `json:"metadata"`
	Signature  string            `json:"signature"`
}

func TestLetters(t *testing.T) {
	key := []byte("0123456789abcdef0123456789abcdef")
	job := func() *broker.Meta {
		return &broker.Meta{ID: "0190e1b2", Type: "charge", Key: "order-7", Created: at, MaxAttempts: 5, Dead: dead()}
	}
	cut := job()
	cut.Dead.LastErr = "card"
	none := job()
	none.Dead.Fence = 0
	folded := job()
	folded.Dead.Attributes = map[string]string{"tenant": "acme", "source": "shop"}
	all := []signed{
		{Name: "a letter", Body: `{"cents":995}`, Unsigned: broker.EncodeMeta(job())},
		{Name: "a cut text has the same signature", Body: `{"cents":995}`, Unsigned: broker.EncodeMeta(cut)},
		{Name: "attributes are covered", Body: `{"cents":995}`, Attributes: map[string]string{"tenant": "acme", "source": "shop"}, Unsigned: broker.EncodeMeta(job())},
		{Name: "folded in they are the same", Body: `{"cents":995}`, Unsigned: broker.EncodeMeta(folded)},
		{Name: "the trace is not covered", Body: `{"cents":995}`, Attributes: map[string]string{broker.TraceAttribute: "00-1-2-01"}, Unsigned: broker.EncodeMeta(job())},
		{Name: "without a fence it reopens nothing, and is not signed", Body: `{"cents":995}`, Unsigned: broker.EncodeMeta(none)},
	}
	for i := range all {
		l := &all[i]
		l.KeyHex = hex.EncodeToString(key)
		m, err := broker.DecodeMeta(l.Unsigned)
		if err != nil {
			t.Fatal(err)
		}
		out := broker.Outgoing{Body: []byte(l.Body), Attributes: l.Attributes, Meta: m}
		dlq.Keys{key}.Sign(&out)
		l.Signature = m.Dead.Signature
	}
	for _, same := range [][2]int{{0, 1}, {2, 3}, {0, 4}} {
		if all[same[0]].Signature != all[same[1]].Signature {
			t.Errorf("%q and %q have two signatures", all[same[0]].Name, all[same[1]].Name)
		}
	}
	if all[0].Signature == all[2].Signature || all[5].Signature != "" {
		t.Error("the signature does not cover the attributes, or a letter without a fence has one")
	}
	hold(t, "letters.json", all)
}
