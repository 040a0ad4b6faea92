package gocloudpubsub

import (
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/digest"
	"github.com/onceq/onceq/internal/sqswire"
)

// This file owns the form of a message on SQS, which is that of our own driver there: a body that
// SQS cannot carry is base64 with a mark in the metadata, and attributes are as they are. gocloud's
// escapes would hide our metadata from every other reader. Send calls packSQS for each message, and
// nothing is locked, because it keeps no state.

const (
	sqsName  = 256 // bytes of an attribute's name
	sqsGroup = 128
)

func (b *Broker) packSQS(o *broker.Outgoing) (e types.SendMessageBatchRequestEntry, err error) {
	if err := b.addressSQS(o, &e); err != nil {
		return e, err
	}
	body, meta := packBody(o)
	e.MessageBody = &body
	n, size := len(o.Attributes), len(body)
	if meta != "" {
		n++
	}
	if n > sqsAttributes {
		return e, fmt.Errorf("%w: %d attributes, with our own; at most %d", broker.ErrTooLarge, n, sqsAttributes)
	}
	if n > 0 {
		e.MessageAttributes = make(map[string]types.MessageAttributeValue, n)
	}
	for name, value := range o.Attributes {
		if meta != "" && name == broker.MetaAttribute {
			return e, fmt.Errorf("%w: attribute %q is ours; the message has metadata as well", broker.ErrBadMeta, name)
		}
		if err := checkName(name); err != nil {
			return e, err
		}
		v := packValue(value)
		e.MessageAttributes[name] = v
		size += len(name) + len(*v.DataType) + len(deref(v.StringValue)) + len(v.BinaryValue)
	}
	if meta != "" {
		e.MessageAttributes[broker.MetaAttribute] = types.MessageAttributeValue{DataType: new(sqswire.TypeString), StringValue: &meta}
		size += len(broker.MetaAttribute) + len(sqswire.TypeString) + len(meta)
	}
	if size > sqsBytes {
		return e, fmt.Errorf("%w: %d bytes with attributes and metadata; at most %d", broker.ErrTooLarge, size, sqsBytes)
	}
	return e, nil
}

// addressSQS checks and sets where and when the message goes.
func (b *Broker) addressSQS(o *broker.Outgoing, e *types.SendMessageBatchRequestEntry) error {
	if o.Delay > 0 {
		e.DelaySeconds = int32((o.Delay + time.Second - 1) / time.Second)
	}
	if o.Group != "" {
		if err := checkToken("Group", o.Group); err != nil {
			return err
		}
		e.MessageGroupId = new(o.Group)
	}
	if !b.o.Ordered {
		return nil
	}
	if o.Group == "" {
		return unsupported("no Group; a FIFO queue needs one")
	}
	id := o.DedupID
	if id == "" {
		id = dedupID(o)
	} else if err := checkToken("DedupID", id); err != nil {
		return err
	}
	e.MessageDeduplicationId = &id
	return nil
}

// dedupID names the send of a job: the same when it is repeated, and new for a letter.
func dedupID(o *broker.Outgoing) string {
	m := o.Meta
	if m == nil || m.ID == "" || m.Dead != nil {
		return rand.Text()
	}
	return digest.Of(m.ID, m.Type, m.Key, o.Group)
}

func checkToken(field, s string) error {
	if len(s) > sqsGroup {
		return unsupported("a %s of %d bytes; it has at most %d", field, len(s), sqsGroup)
	}
	for i := range len(s) {
		if s[i] <= ' ' || s[i] > '~' {
			return unsupported("the %s %q; SQS takes ASCII letters, digits and punctuation, no spaces", field, s)
		}
	}
	return nil
}

// checkName refuses what SQS would refuse: there one bad name fails the whole request for gocloud.
func checkName(name string) error {
	low := strings.ToLower(name)
	switch {
	case name == "" || len(name) > sqsName:
		return unsupported("an attribute's name of %d bytes; SQS takes 1 to %d", len(name), sqsName)
	case name[0] == '.' || name[len(name)-1] == '.' || strings.Contains(name, ".."):
		return unsupported("attribute %q; SQS takes no period at either end, and no two in a row", name)
	case strings.HasPrefix(low, "aws.") || strings.HasPrefix(low, "amazon."):
		return unsupported("attribute %q; SQS reserves that prefix", name)
	}
	for i := range len(name) {
		switch c := name[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '_', c == '-', c == '.':
		default:
			return unsupported("attribute %q; SQS takes ASCII letters, digits, '_', '-' and '.' in names", name)
		}
	}
	return nil
}

// packBody gives the body as it travels, and the metadata. A message without metadata gets a mark
// where its body needs one, and where gocloud's reader would undo escapes that nobody has made.
func packBody(o *broker.Outgoing) (body, meta string) {
	plain := len(o.Body) > 0 && carriable(string(o.Body))
	var m broker.Meta
	switch {
	case o.Meta != nil:
		m = *o.Meta
	case plain && !looksEscaped(o.Attributes) && !looksLikeSNS(o):
		return string(o.Body), ""
	default:
		plain = false
	}
	m.BodyEncoding = ""
	if plain {
		return string(o.Body), broker.EncodeMeta(&m)
	}
	m.BodyEncoding = sqswire.Encoding
	if len(o.Body) == 0 {
		return sqswire.EmptyBody, broker.EncodeMeta(&m)
	}
	return base64.StdEncoding.EncodeToString(o.Body), broker.EncodeMeta(&m)
}

// looksEscaped reports whether gocloud would read other attributes than these.
func looksEscaped(as map[string]string) bool {
	for name, value := range as {
		if strings.Contains(name, "__0x") || strings.Contains(value, "%") || name == "base64encoded" {
			return true
		}
	}
	return false
}

// looksLikeSNS reports whether gocloud could take the body for a notification and open it. It does
// so with messages that have no attributes.
func looksLikeSNS(o *broker.Outgoing) bool {
	return len(o.Attributes) == 0 && strings.Contains(string(o.Body), "Notification")
}

func packValue(v string) types.MessageAttributeValue {
	switch {
	case v == "":
		return types.MessageAttributeValue{DataType: new(sqswire.TypeEmpty), StringValue: new(sqswire.EmptyValue)}
	case !carriable(v):
		return types.MessageAttributeValue{DataType: new(sqswire.TypeBytes), BinaryValue: []byte(v)}
	}
	return types.MessageAttributeValue{DataType: new(sqswire.TypeString), StringValue: &v}
}

// carriable reports whether SQS takes the text: UTF-8, of the characters of XML 1.0 without the
// carriage return, which XML's readers change.
func carriable(s string) bool {
	if !utf8.ValidString(s) {
		return false
	}
	for _, r := range s {
		switch {
		case r == '\t', r == '\n', ' ' <= r && r <= 0xD7FF, 0xE000 <= r && r <= 0xFFFD, 0x10000 <= r:
		default:
			return false
		}
	}
	return true
}
