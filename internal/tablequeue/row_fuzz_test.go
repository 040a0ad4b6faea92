package tablequeue

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/onceq/onceq/broker"
)

// FuzzRow: a row may be written by anybody with SQL. Whatever stands in its columns, it is read
// without a panic and keeps its body or says why in MetaErr. What was read is what a driver would
// write, and is read from its own row as the same message.
func FuzzRow(f *testing.F) {
	meta := broker.EncodeMeta(&broker.Meta{ID: "job-7", Key: "order-7", MaxAttempts: 3})
	for _, s := range []struct{ meta, attributes, body string }{
		{"", "", "x"},
		{meta, `{"a":"1"}`, "x"},
		{`{"v":1,"id":"a","be":"base64"}`, "", "eA=="},
		{`{"v":1,"id":"a","be":"base64"}`, "", "?"},
		{`{"v":1,"id":"a","be":"rot13"}`, "", "x"},
		{"nonsense", `{"a":1,"b":null,"c":{"d":[2]}}`, "x"},
		{"", `{"` + broker.MetaAttribute + `":` + quoted(meta) + `,"a":"\u0000"}`, "x"},
		{meta, `{"` + broker.MetaAttribute + `":"nonsense"}`, "x"},
		{"", `["a"]`, ""},
		{"", `{"a":"\ud800","a":"2"}`, "\x00\xff"},
	} {
		f.Add(s.meta, s.attributes, []byte(s.body), int64(7), int32(1), "g")
	}
	settings := Settings{Database: "test", MaxBody: 64 << 20}
	f.Fuzz(func(t *testing.T, meta, attributes string, body []byte, seq int64, attempts int32, group string) {
		w := Row{Seq: seq, Attempts: attempts, Published: time.Unix(1, 0), Body: bytes.Clone(body)}
		if meta != "" {
			w.Meta = &meta
		}
		if attributes != "" {
			w.Attributes = &attributes
		}
		if group != "" {
			w.Group = &group
		}
		m, r := w.Message()
		if got, ok := ParseReceipt(m.Receipt); seq > 0 && attempts > 0 && (!ok || got != r) {
			t.Fatalf("receipt %q is %+v, want %+v", m.Receipt, got, r)
		}
		if m.Group != group || m.Attempt != int(attempts) {
			t.Fatalf("%+v of group %q, attempt %d", m, group, attempts)
		}
		if m.MetaErr != nil {
			if !errors.Is(m.MetaErr, broker.ErrBadMeta) || m.Meta != nil || !bytes.Equal(m.Body, body) {
				t.Fatalf("%v, %+v, body %q of %q", m.MetaErr, m.Meta, m.Body, body)
			}
			return
		}
		o := broker.Outgoing{Body: m.Body, Attributes: m.Attributes, Meta: m.Meta}
		as, written, err := settings.Check(&o)
		if err != nil { // larger than what may be sent, or an attribute that is ours beside a Meta
			return
		}
		if as != "" && !json.Valid([]byte(as)) || !utf8.ValidString(as) {
			t.Fatalf("the attributes are written as %q", as)
		}
		again := Row{Seq: seq, Attempts: attempts, Published: w.Published, Body: bytes.Clone(m.Body)}
		if as != "" {
			again.Attributes = &as
		}
		if written != "" {
			again.Meta = &written
		}
		got, _ := again.Message()
		if got.MetaErr != nil || !bytes.Equal(got.Body, m.Body) || !maps.Equal(got.Attributes, m.Attributes) ||
			broker.EncodeMeta(got.Meta) != written || got.Published != m.Published {
			t.Fatalf("read again: %+v, %v; want %+v", got, got.MetaErr, m)
		}
	})
}
