package gocloudpubsub

import (
	"bytes"
	"crypto/rand"
	"maps"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"gocloud.dev/pubsub"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/pubsubwire"
	"github.com/onceq/onceq/internal/sqswire"
)

// This file owns how a message of gocloud is read. Receive calls read for each one. What a
// service's own driver of ours has written is read past gocloud, in the form of that driver; what
// gocloud's Topic has written is read as gocloud gives it. Nothing is locked, because a message
// belongs to its reader. send.go writes.

// read makes the contract's message, without Receipt and Deadline.
func read(m *pubsub.Message) *broker.Message {
	if s := sqsMessage(m); s != nil {
		return readSQS(m, s)
	}
	if r := receivedOf(m); r != nil {
		p := r.GetMessage()
		out := &broker.Message{ID: p.GetMessageId(), Group: p.GetOrderingKey(), Attempt: int(r.GetDeliveryAttempt())}
		var published time.Time
		if t := p.GetPublishTime(); t != nil {
			published = t.AsTime()
		}
		pubsubwire.Decode(out, bytes.Clone(p.GetData()), p.GetAttributes(), published)
		return out
	}
	out := &broker.Message{ID: m.LoggableID}
	if out.ID == "" || out.ID == unknownID {
		out.ID = rand.Text()
	}
	readGocloud(out, m)
	return out
}

// unknownID is what gocloud says where a driver tells no id.
const unknownID = "unknown"

// readGocloud reads what gocloud gives. In memory a driver may give the same maps and bytes again.
func readGocloud(out *broker.Message, m *pubsub.Message) {
	out.Body = bytes.Clone(m.Body)
	if out.Body == nil {
		out.Body = []byte{}
	}
	text, ok := m.Metadata[broker.MetaAttribute]
	out.Attributes = maps.Clone(m.Metadata)
	delete(out.Attributes, broker.MetaAttribute)
	if len(out.Attributes) == 0 {
		out.Attributes = nil
	}
	if ok {
		sqswire.ReadMeta(out, text)
		takeID(out)
	}
}

// readSQS reads a message of SQS. gocloud undoes its own escapes, also where there are none: '%41'
// would become 'A'. So what was not written by gocloud's Topic is read past it.
func readSQS(m *pubsub.Message, s *types.Message) *broker.Message {
	out := &broker.Message{ID: deref(s.MessageId), Group: s.Attributes[string(types.MessageSystemAttributeNameMessageGroupId)]}
	sqswire.ReadSystem(out, s.Attributes)
	if !isPlain(s) {
		readGocloud(out, m)
		return out
	}
	out.Body = []byte(deref(s.Body))
	var text string
	ours := false
	for name, v := range s.MessageAttributes {
		value := sqswire.Value(deref(v.DataType), v.StringValue, v.BinaryValue)
		if name == broker.MetaAttribute {
			text, ours = value, true
			continue
		}
		if out.Attributes == nil {
			out.Attributes = make(map[string]string, len(s.MessageAttributes))
		}
		out.Attributes[name] = value
	}
	if ours {
		sqswire.ReadMeta(out, text)
	}
	return out
}

// isPlain reports whether the attributes are those of our SQS driver. gocloud escapes the brace.
func isPlain(s *types.Message) bool {
	for name, v := range s.MessageAttributes {
		if typ := deref(v.DataType); typ == sqswire.TypeEmpty || typ == sqswire.TypeBytes {
			return true
		}
		if name == broker.MetaAttribute && strings.HasPrefix(deref(v.StringValue), "{") {
			return true
		}
	}
	return false
}

// Some drivers report no id for a sent message. The Broker then makes one and stores it in our
// metadata under this name, behind the members that we do not know. idAlone is before the id of a
// message that has no other metadata.
const (
	idMember = `"gocloud":"`
	idAlone  = "-"
	idLength = 26 // of rand.Text
)

// putID adds the id to metadata.
func putID(meta *broker.Meta, id string) *broker.Meta {
	var with broker.Meta
	if meta == nil {
		id = idAlone + id
	} else {
		with = *meta
	}
	if _, rest, ok := cutID(with.Extra); ok {
		with.Extra = rest
	}
	if with.Extra != "" {
		with.Extra += ","
	}
	with.Extra += idMember + id + `"`
	return &with
}

// takeID takes the id out again.
func takeID(m *broker.Message) {
	if m.Meta == nil {
		return
	}
	id, rest, ok := cutID(m.Meta.Extra)
	if !ok {
		return
	}
	m.Meta.Extra = rest
	bare, alone := strings.CutPrefix(id, idAlone)
	if m.ID = bare; alone {
		m.Meta = nil
	}
}

func cutID(extra string) (id, rest string, ok bool) {
	i := strings.LastIndex(extra, idMember)
	if i < 0 || i > 0 && extra[i-1] != ',' {
		return "", extra, false
	}
	id, ok = strings.CutSuffix(extra[i+len(idMember):], `"`)
	if n := len(strings.TrimPrefix(id, idAlone)); !ok || n != idLength || strings.ContainsAny(id, `"\,`) {
		return "", extra, false
	}
	return id, strings.TrimSuffix(extra[:i], ","), true
}
