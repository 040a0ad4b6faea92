package brokertest

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/onceq/onceq/broker"
)

// This file has the cases of content: bodies, attributes, limits of size, and copies. Run calls
// each in a subtest with a queue of its own. A case has one goroutine, so nothing is locked.

// arrives takes one message and checks that it is what was sent.
func arrives(e *env, o broker.Outgoing) *broker.Message {
	e.Helper()
	m := e.takeOne()
	e.unchanged(m, o)
	return m
}

// unchanged checks that m carries what o holds.
func (e *env) unchanged(m *broker.Message, o broker.Outgoing) {
	e.Helper()
	if !bytes.Equal(m.Body, o.Body) {
		e.Errorf("a body of %d bytes, %.60q, came as %d bytes, %.60q", len(o.Body), o.Body, len(m.Body), m.Body)
	}
	if !maps.Equal(m.Attributes, o.Attributes) {
		e.Errorf("the attributes %s came as %s", attributes(o.Attributes), attributes(m.Attributes))
	}
	if m.MetaErr != nil {
		e.Errorf("MetaErr is %v", m.MetaErr)
	}
	// The coded form shows all that travels: times in milliseconds, unknown members.
	if got, want := broker.EncodeMeta(m.Meta), broker.EncodeMeta(o.Meta); o.Meta != nil && got != want {
		e.Errorf("the metadata\n%.400s\ncame as\n%.400s", want, got)
	}
	if e.l.OrderedGroups && m.Group != o.Group {
		e.Errorf("the group %q came as %q", o.Group, m.Group)
	}
}

func attributes(as map[string]string) string {
	const shown = 300
	s := fmt.Sprintf("%q", as)
	if len(s) > shown {
		s = fmt.Sprintf("%d of them, %s…", len(as), s[:shown])
	}
	return s
}

// numbered is n attributes of the user's.
func numbered(n int) map[string]string {
	as := make(map[string]string, n)
	for i := range n {
		as[fmt.Sprintf("a%d", i)] = fmt.Sprintf("value %d", i)
	}
	return as
}

func bodyAtLimit(e *env) {
	o := e.out(strings.Repeat("x", e.l.MaxBody))
	e.send(o)
	e.ack(arrives(e, o))
}

// tooLarge sends o between two others.
func tooLarge(e *env, o broker.Outgoing) {
	e.Helper()
	ids, err := e.b.Send(e.Context(), []broker.Outgoing{e.out("a"), o, e.out("b")})
	e.Want("the message", broker.ErrAt(err, 1), broker.ErrTooLarge)
	sentBeside(e, ids, err)
}

func bodyOverLimit(e *env) { tooLarge(e, e.out(strings.Repeat("x", e.l.MaxBody+1))) }

func attributesAtLimit(e *env) {
	foreign := e.out("foreign")
	foreign.Attributes = numbered(e.l.MaxAttributes)
	e.send(foreign)
	e.ack(arrives(e, foreign))
	ours := e.out("ours")
	ours.Attributes = numbered(e.l.MaxAttributes - 1)
	ours.Meta = &broker.Meta{ID: "j-1"}
	e.send(ours)
	e.ack(arrives(e, ours))
}

func attributesOverLimit(e *env) {
	foreign := e.out("foreign")
	foreign.Attributes = numbered(e.l.MaxAttributes + 1)
	tooLarge(e, foreign)
	ours := e.out("ours")
	ours.Attributes = numbered(e.l.MaxAttributes)
	ours.Meta = &broker.Meta{ID: "j-1"}
	tooLarge(e, ours)
}

func letterThatDoesNotFit(e *env) {
	letter := e.out("")
	letter.Attributes = numbered(max(e.l.MaxAttributes, 1) - 1)
	letter.Meta = fullMeta()
	meta := len(broker.EncodeMeta(letter.Meta))
	letter.Body = bytes.Repeat([]byte("x"), max(e.l.MaxBody-meta, 1))
	letter.Meta.Dead.FirstErr = strings.Repeat("first ", 50_000)
	letter.Meta.Dead.LastErr = strings.Repeat("last\x00\xff", 50_000)
	ids, err := e.b.Send(e.Context(), []broker.Outgoing{e.out("a"), letter, e.out("b")})
	at := broker.ErrAt(err, 1)
	if at != nil {
		e.Want("the letter", at, broker.ErrTooLarge)
		sentBeside(e, ids, err)
		return
	}
	e.OK(err, "Send")
	// A service that does not count metadata has taken it: then it must be whole.
	ms := e.take(3)
	e.ack(ms...) // one by one, a busy server takes longer than they stay hidden
	for _, m := range ms {
		if m.ID == ids[1] {
			e.unchanged(m, letter)
		}
	}
}

func batchKeepsApart(e *env) {
	n := min(e.l.SendBatch, 10)
	os := make([]broker.Outgoing, n)
	for i := range os {
		os[i] = e.out(fmt.Sprintf("body %d", i))
		os[i].Attributes = map[string]string{"all": fmt.Sprintf("value %d", i), fmt.Sprintf("a%d", i): "one"}
		os[i].Meta = &broker.Meta{ID: fmt.Sprintf("j-%d", i), Key: fmt.Sprintf("k-%d", i)}
	}
	ids := e.send(os...)
	ms := e.take(n)
	e.ack(ms...) // one by one, a busy server takes longer than they stay hidden
	for _, m := range ms {
		i := slices.Index(ids, m.ID)
		if i < 0 {
			e.Fatalf("message %s came, which is none of %q", m.ID, ids)
		}
		e.unchanged(m, os[i])
	}
}

func emptyBody(e *env) {
	for _, body := range [][]byte{nil, {}} {
		for _, meta := range []*broker.Meta{nil, {ID: "j-1"}} {
			o := e.out("")
			o.Body, o.Meta = body, meta
			e.send(o)
			e.ack(arrives(e, o))
		}
	}
}

// hostileTexts are valid UTF-8 that services, XML and JSON are known to spoil.
var hostileTexts = []string{
	" ", "\n", " leading and trailing ", "a\r\nb\rc\n", "\x00", "\x00\x01\x1f\x7f\u0085\u009f", "\uFFFD", "\uFFFE", "\uFFFF",
	"\uFEFFbom", "😀 e\u0301 \u202e", "<a>&amp;\"'</a>", "]]>", `\u0000 \n "quoted"`, "%00%zz+", "null", "{}", "eyJhIjoxfQ==", "\U0010FFFF\U0001FFFE",
}

func anyBytesInBodies(e *env) {
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	hostile := [][]byte{all, {0xff}, {0xc0, 0x80}, []byte("valid \xed\xa0\x80 not"), bytes.Repeat([]byte{0}, 1000)}
	for _, s := range hostileTexts {
		hostile = append(hostile, []byte(s))
	}
	for _, body := range hostile {
		for _, meta := range []*broker.Meta{nil, {ID: "j-1", Key: "k"}} {
			o := e.out("")
			o.Body, o.Meta = body, meta
			e.send(o)
			e.ack(arrives(e, o))
		}
	}
}

func anyTextInAttributes(e *env) {
	values := append([]string{"", strings.Repeat("0123456789abcde\n", 64)}, hostileTexts...)
	for _, v := range values {
		for _, meta := range []*broker.Meta{nil, {ID: "j-1"}} {
			o := e.out("body")
			o.Attributes, o.Meta = map[string]string{"plain": "x", "value": v}, meta
			e.send(o)
			e.ack(arrives(e, o))
		}
	}
}

func strangeAttributeNames(e *env) {
	for _, name := range []string{
		"UPPER", "upper", "dots.and-dashes_", "0", "with space", "tab\t", "nul\x00", "ünïcode", "😀", "", ".", "a..b", "AWS.name",
		"Amazon.name", "googclient_x", strings.Repeat("n", 300), "ID", "body", broker.TraceAttribute, broker.MetaAttribute,
	} {
		o := e.out("body")
		o.Attributes = map[string]string{"plain": "x", name: "a value"}
		_, err := e.b.Send(e.Context(), []broker.Outgoing{o})
		if err != nil {
			e.Logf("an attribute named %.40q is refused: %v", name, err)
			continue
		}
		m := e.takeOne()
		if name != broker.MetaAttribute || m.MetaErr == nil {
			e.unchanged(m, o)
		} else if !maps.Equal(m.Attributes, o.Attributes) {
			e.Errorf("the attributes %s came as %s", attributes(o.Attributes), attributes(m.Attributes))
		}
		e.ack(m)
	}
	e.gone("a message whose send was refused")
}

// full is a message that uses all there is.
func full(e *env) broker.Outgoing {
	o := e.out("a body\x00\xff")
	o.Attributes = map[string]string{"a": "1", broker.TraceAttribute: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
	o.Meta = fullMeta()
	return o
}

func redeliveryIsUnchanged(e *env) {
	o := full(e)
	if e.l.OrderedGroups {
		o.Group = "g"
	}
	e.send(o)
	var published time.Time
	for i := range 3 {
		m := arrives(e, o)
		if i > 0 && !m.Published.Equal(published) {
			e.Errorf("Published was %v and is %v", published, m.Published)
		}
		published = m.Published
		e.nack(m, 0)
	}
}

func publishedIsTheSend(e *env) {
	began := time.Now()
	e.sendBodies("a")
	sent := time.Now()
	e.Pause(e.h.Slack + e.v/10) // the time of the receive would be another one
	m := e.takeOne()
	switch at := m.Published; {
	case at.IsZero():
		e.Errorf("Published is zero")
	case at.Before(began.Add(-e.h.Slack)) || at.After(sent.Add(e.h.Slack)):
		e.Errorf("Published is %s; the message was sent between %s and %s", e.at(at.Local()), e.at(began), e.at(sent))
	}
	e.ack(m)
}

func receiverOwnsMessage(e *env) {
	o := full(e)
	e.send(o)
	m := arrives(e, o)
	spoil(m.Body, m.Attributes, m.Meta)
	e.nack(m, 0)
	m = arrives(e, o)
	e.ack(m)
}

func spoil(body []byte, as map[string]string, m *broker.Meta) {
	for i := range body {
		body[i] = '#'
	}
	for name := range as {
		as[name] = "#"
	}
	if as != nil {
		as["more"] = "#"
	}
	if m != nil {
		m.ID, m.Key, m.Created = "#", "#", time.Time{}
		if m.Dead != nil {
			m.Dead.Class, m.Dead.Fence = "#", 1
			m.Dead.Attributes["more"] = "#"
		}
	}
}

func senderKeepsMessage(e *env) {
	o := full(e)
	before := full(e)
	before.Group, before.DedupID = o.Group, o.DedupID
	before.Meta = o.Meta.Clone()
	e.send(o)
	if !bytes.Equal(o.Body, before.Body) || !maps.Equal(o.Attributes, before.Attributes) || broker.EncodeMeta(o.Meta) != broker.EncodeMeta(before.Meta) {
		e.Errorf("Send changed the message to %q, %s, %s", o.Body, attributes(o.Attributes), broker.EncodeMeta(o.Meta))
	}
	spoil(o.Body, o.Attributes, o.Meta)
	e.ack(arrives(e, before))
}
