package dynamooutbox

import (
	"bytes"
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/must"
)

// FuzzMessage: an item may be put by anybody with PutItem. Whatever it holds, of whichever type its
// attributes are, it is read without a panic, and keeps its body and its metadata's text where that
// cannot be read.
func FuzzMessage(f *testing.F) {
	meta := broker.EncodeMeta(&broker.Meta{ID: "job-7", Key: "order-7"})
	for _, s := range []struct{ sk, meta, group, at, body string }{
		{"t#0000000000000001#000#x", meta, "", "1", "x"},
		{"g#", `{"v":1,"id":"a","be":"base64"}`, "g", "-1", "eA=="},
		{"g#0123456789012345678901", `{"v":1,"id":"a","be":"base64"}`, "g", "9223372036854775807", "?"},
		{"", "nonsense", "\xff", "1e3", ""},
		{"u#", "", "", "x", "\x00"},
	} {
		for kinds := range 8 {
			f.Add(s.sk, s.meta, s.group, s.at, []byte(s.body), uint16(kinds*0o1111))
		}
	}
	f.Fuzz(func(t *testing.T, sk, meta, group, at string, body []byte, kinds uint16) {
		n := 0
		of := func(s string) value { // three bits say of which type it is
			k := kinds >> (3 * n) & 7
			n++
			switch k {
			case 1:
				return &types.AttributeValueMemberN{Value: s}
			case 2:
				return &types.AttributeValueMemberB{Value: []byte(s)}
			case 3:
				return &types.AttributeValueMemberNULL{Value: true}
			case 4:
				return &types.AttributeValueMemberL{Value: []value{text(s), nil}}
			case 5:
				return &types.AttributeValueMemberM{Value: item{s: text(s), "n": nil}}
			case 6:
				return nil
			}
			return text(s)
		}
		it := item{
			attrSK: text(sk), attrMeta: of(meta), attrGroup: of(group), attrAt: of(at), attrDue: of(at),
			attrBody: binary(bytes.Clone(body)), attrAttrs: of(group),
		}
		m := message(3, it)
		if _, ok := it[attrMeta].(*types.AttributeValueMemberS); !ok && (m.Meta != nil || m.MetaErr != nil) {
			t.Fatalf("metadata that is no text: %+v, %v", m.Meta, m.MetaErr)
		}
		if m.MetaErr != nil && (!errors.Is(m.MetaErr, broker.ErrBadMeta) || m.Meta != nil || !bytes.Equal(m.Body, body) || m.Attributes[broker.MetaAttribute] != meta) {
			t.Fatalf("%v, %+v", m.MetaErr, m)
		}
		if m.ID != "3/"+sk || !strings.HasPrefix(sk, groupOf(sk)) {
			t.Fatalf("id %q, group %q of %q", m.ID, groupOf(sk), sk)
		}
	})
}

// FuzzItems: what Items takes is read again as the same message, and the same message makes the
// same item.
func FuzzItems(f *testing.F) {
	f.Add("job-7", "order", "A-1", "g", "a", "1", "7", []byte("x"), int64(0), int64(1764000000000))
	f.Add("", "", "", "", "", "", "", []byte(nil), int64(5), int64(0))
	f.Add("\x00", "\xff", "\uFFFE", "g#", "\u0000", "\"", "9223372036854775807", []byte("\x00\xff"), int64(longest), int64(253402300799999))
	f.Add("i", "t", "k", "", "n", "v", "1", []byte("x"), int64(-1), int64(-1))
	b := must.Get(New(newFake().client(), testTable, testQueue, nil, nil))
	f.Cleanup(func() { _ = b.Close() })
	f.Fuzz(func(t *testing.T, id, typ, key, group, name, v, sequence string, body []byte, delay, created int64) {
		o := broker.Outgoing{
			Body: body, Group: group, Delay: time.Duration(delay),
			Meta: &broker.Meta{ID: id, Type: typ, Key: key, Created: time.UnixMilli(created)},
		}
		if name != "" || v != "" {
			o.Attributes = map[string]string{name: v}
		}
		if sequence != "" && group != "" {
			if o.Attributes == nil {
				o.Attributes = map[string]string{}
			}
			o.Attributes[SequenceAttribute] = sequence
		}
		ms := []broker.Outgoing{o}
		items, err := b.Items(ms...)
		if err != nil {
			return
		}
		o = ms[0] // filled in
		again, err := b.Items(o)
		if err != nil {
			t.Fatalf("it was taken, and is not again: %v", err)
		}
		it := items[0].Put.Item
		if sk := textOf(it[attrSK]); sk != textOf(again[0].Put.Item[attrSK]) || len(sk) > 1024 || groupOf(sk) == "" != (group == "") {
			t.Fatalf("sort key %q, then %q", sk, textOf(again[0].Put.Item[attrSK]))
		}
		m := message(0, it)
		if m.MetaErr != nil || !bytes.Equal(m.Body, body) || m.Group != group || !maps.Equal(m.Attributes, o.Attributes) {
			t.Fatalf("%v: %+v was written, %+v is read", m.MetaErr, o, m)
		}
		if got, want := broker.EncodeMeta(m.Meta), broker.EncodeMeta(o.Meta); got != want {
			t.Fatalf("metadata %q was written, %q is read", want, got)
		}
	})
}
