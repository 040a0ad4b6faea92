package brokertest

import (
	"bytes"
	"errors"
	"math"
	"time"

	"github.com/onceq/onceq/broker"
)

// fullMeta sets every member that a user may set.
func fullMeta() *broker.Meta {
	now := time.Now().Truncate(time.Second).Add(123456789)
	return &broker.Meta{
		ID: "j-1", Type: "order.charge", Key: "order-7 \x00😀", CorrelationID: "<req&9>",
		Created: now.Add(-time.Hour), NotBefore: now.Add(time.Millisecond), Postponed: now.Add(time.Hour), Expires: now.Add(1000 * time.Hour),
		MaxAttempts: -1, Timeout: 1500*time.Millisecond + 1,
		Dead: &broker.Letter{
			Fence: math.MaxUint64, Class: "permanent", FirstErr: "no such customer", LastErr: "still\nnone \uFFFE",
			Attempts: 7, Saved: "charge", Source: "orders", Scope: "orders:order.charge", Key: "7", At: now.Add(-time.Minute), Attributes: map[string]string{"a": "1", "b\x00": ""},
			Signature: "c2lnbmVk_-",
		},
	}
}

func noMetadata(e *env) {
	o := e.out("body")
	o.Attributes = map[string]string{"a": "1"}
	e.send(o)
	m := arrives(e, o)
	if m.Meta != nil {
		e.Errorf("Meta is %+v", *m.Meta)
	}
	e.ack(m)
}

// raw sends past the driver and takes what comes.
func raw(e *env, body string, as map[string]string) *broker.Message {
	e.Helper()
	if err := e.queue.SendRaw(e.Context(), []byte(body), as); err != nil {
		e.Harnessf("Queue.SendRaw: %v", err)
	}
	return e.takeOne()
}

func foreignMessage(e *env) {
	for _, as := range []map[string]string{nil, {"a": "1", "b": "2"}} {
		m := raw(e, "foreign", as)
		if m.Meta != nil {
			e.Errorf("Meta is %+v", *m.Meta)
		}
		e.unchanged(m, broker.Outgoing{Body: []byte("foreign"), Attributes: as, Group: m.Group})
		e.ack(m)
	}
}

func metadataRoundTrip(e *env) {
	plain := fullMeta()
	plain.Dead = nil
	for _, meta := range []*broker.Meta{
		fullMeta(),
		plain,
		{},
		{ID: "only", Dead: &broker.Letter{}},
		{ID: "its own key", Dead: &broker.Letter{Scope: "orders", Key: "its own key"}},
		{ID: "newer", Version: 9, Extra: `"zz":{"a":[1,"é"]}`, Dead: &broker.Letter{Fence: 3, Extra: `"n":null`}},
	} {
		o := e.out("body")
		o.Meta = meta
		e.send(o)
		m := arrives(e, o)
		if m.Meta == nil {
			e.Errorf("Meta is nil; %s was sent", broker.EncodeMeta(meta))
		}
		e.ack(m)
	}
}

func newerMetadataKept(e *env) {
	const newer = `{"v":7,"id":"j-1","lane":"fast","k":"key","dead":{"f":5,"c":"timeout","where":{"line":3}},"steps":[1,2]}`
	m := raw(e, "body", map[string]string{broker.MetaAttribute: newer})
	if m.MetaErr != nil || m.Meta == nil {
		e.Fatalf("Meta is %v and MetaErr %v", m.Meta, m.MetaErr)
	}
	want, err := broker.DecodeMeta(newer)
	e.OK(err, "DecodeMeta")
	again := e.out("body")
	again.Meta = m.Meta
	e.send(again)
	for range 2 {
		if got, want := broker.EncodeMeta(m.Meta), broker.EncodeMeta(want); got != want {
			e.Errorf("the metadata\n%s\ncame as\n%s", want, got)
		}
		e.ack(m)
		if again.Body == nil {
			return
		}
		m = e.takeOne()
		again.Body = nil
	}
}

func encodedBody(e *env) {
	m := raw(e, "AP8K", map[string]string{broker.MetaAttribute: `{"v":1,"id":"j-1","be":"base64"}`})
	e.unchanged(m, broker.Outgoing{Body: []byte("\x00\xff\n"), Meta: &broker.Meta{ID: "j-1"}, Group: m.Group})
	e.ack(m)
}

func badMetadata(e *env) {
	for _, bad := range []string{"not metadata", `{"v":1`, `{"v":1,"id":7}`, `{"id":"x"}`, `[]`, `{"v":1,"be":"rot13"}`, `{"v":1,"be":"base64"}`} {
		m := raw(e, "a body", map[string]string{broker.MetaAttribute: bad, "a": "1"})
		if m.Meta != nil || !errors.Is(m.MetaErr, broker.ErrBadMeta) {
			e.Errorf("the metadata %q came as Meta %v and MetaErr %v", bad, m.Meta, m.MetaErr)
		}
		if !bytes.Equal(m.Body, []byte("a body")) || m.Attributes["a"] != "1" || m.Attributes[broker.MetaAttribute] != bad {
			e.Errorf("the metadata %q came with body %q and attributes %s", bad, m.Body, attributes(m.Attributes))
		}
		e.ack(m)
	}
	e.gone("after the ack of all")
}
