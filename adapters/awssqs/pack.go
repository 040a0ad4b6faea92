package awssqs

import (
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/digest"
	"github.com/onceq/onceq/internal/sqswire"
)

// This file owns the way from an Outgoing to SQS's entry: the address, the body, our metadata, the
// attributes, and what SQS would refuse. Send calls pack for each message. Nothing is locked,
// because pack keeps no state. message.go reads the same form back.

// pack makes the entry of a message. size is how many bytes SQS counts for it.
func (b *Broker) pack(o *broker.Outgoing) (e types.SendMessageBatchRequestEntry, size int, err error) {
	if err := b.address(o, &e); err != nil {
		return e, 0, err
	}
	// The check comes before any copy, so that a body that is too large is not encoded first.
	if n := plainSize(o); n > maxBytes {
		return e, 0, tooLarge(n)
	}
	body, meta := packBody(o)
	e.MessageBody = &body
	n := len(o.Attributes)
	if meta != "" {
		n++
	}
	if n > maxAttributes {
		return e, 0, fmt.Errorf("%w: %d attributes, with our own; at most %d", broker.ErrTooLarge, n, maxAttributes)
	}
	size = len(body)
	if n > 0 {
		e.MessageAttributes = make(map[string]types.MessageAttributeValue, n)
	}
	for name, value := range o.Attributes {
		if meta != "" && name == broker.MetaAttribute {
			return e, 0, fmt.Errorf("%w: attribute %q is ours; the message has metadata as well", broker.ErrBadMeta, name)
		}
		if err := checkName(name); err != nil {
			return e, 0, err
		}
		v := packValue(value)
		e.MessageAttributes[name] = v
		size += len(name) + len(*v.DataType) + len(deref(v.StringValue)) + len(v.BinaryValue)
	}
	if meta != "" {
		e.MessageAttributes[broker.MetaAttribute] = types.MessageAttributeValue{DataType: new(sqswire.TypeString), StringValue: &meta}
		size += len(broker.MetaAttribute) + len(sqswire.TypeString) + len(meta)
	}
	if size > maxBytes {
		return e, 0, tooLarge(size)
	}
	return e, size, nil
}

func tooLarge(n int) error {
	return fmt.Errorf("%w: %d bytes with attributes and metadata; at most %d", broker.ErrTooLarge, n, maxBytes)
}

// plainSize is the size of o before encoding and without our metadata. The entry is never smaller.
func plainSize(o *broker.Outgoing) int {
	n := len(o.Body)
	for name, value := range o.Attributes {
		n += len(name) + len(value)
	}
	return n
}

// address checks and sets where and when the message goes.
func (b *Broker) address(o *broker.Outgoing, e *types.SendMessageBatchRequestEntry) error {
	if d := o.Delay; d < 0 || d > b.limits.MaxDelay {
		return unsupported("a Delay of %v; on this queue it is within 0 and %v", d, b.limits.MaxDelay)
	}
	e.DelaySeconds = seconds(o.Delay)
	switch {
	case o.Group != "":
		if err := checkToken("Group", o.Group); err != nil {
			return err
		}
		group := o.Group
		e.MessageGroupId = &group
	case b.fifo:
		return unsupported("no Group; a FIFO queue needs one")
	}
	if !b.fifo {
		return nil
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

// checkToken checks what SQS calls alphanumeric characters and punctuation.
func checkToken(field, s string) error {
	if len(s) > maxGroup {
		return unsupported("a %s of %d bytes; it has at most %d", field, len(s), maxGroup)
	}
	for i := range len(s) {
		if c := s[i]; c <= ' ' || c > '~' {
			return unsupported("the %s %q; SQS takes ASCII letters, digits and punctuation, no spaces", field, s)
		}
	}
	return nil
}

// dedupID names the send of a job. It is the same when the send is repeated. A dead letter and its
// replay come with an id of their own. A letter that comes without one gets a new id, because under
// the job's id the queue would swallow it.
func dedupID(o *broker.Outgoing) string {
	m := o.Meta
	if m == nil || m.ID == "" || m.Dead != nil {
		return rand.Text()
	}
	return digest.Of(m.ID, m.Type, m.Key, o.Group)
}

// packBody gives the body as it travels, and the metadata with its mark.
func packBody(o *broker.Outgoing) (body, meta string) {
	plain := len(o.Body) > 0 && carriable(o.Body)
	switch {
	case plain && o.Meta == nil:
		return string(o.Body), ""
	case plain && o.Meta.BodyEncoding == "":
		return string(o.Body), broker.EncodeMeta(o.Meta)
	}
	var m broker.Meta
	if o.Meta != nil {
		m = *o.Meta
	}
	// The mark is the driver's own. What the sender wrote there says nothing about this body.
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

func packValue(v string) types.MessageAttributeValue {
	switch {
	case v == "":
		return types.MessageAttributeValue{DataType: new(sqswire.TypeEmpty), StringValue: new(sqswire.EmptyValue)}
	case !carriable(v):
		return types.MessageAttributeValue{DataType: new(sqswire.TypeBytes), BinaryValue: []byte(v)}
	}
	return types.MessageAttributeValue{DataType: new(sqswire.TypeString), StringValue: &v}
}

// checkName refuses the names that SQS would refuse, because here the error can say which and why.
func checkName(name string) error {
	switch {
	case name == "" || len(name) > maxName:
		return unsupported("an attribute's name of %d bytes; SQS takes 1 to %d", len(name), maxName)
	case name[0] == '.' || name[len(name)-1] == '.' || strings.Contains(name, ".."):
		return unsupported("attribute %q; SQS takes no period at either end, and no two in a row", name)
	case hasPrefix(name, "aws.") || hasPrefix(name, "amazon."):
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

// hasPrefix ignores case, as SQS does.
func hasPrefix(s, lower string) bool {
	return len(s) >= len(lower) && strings.EqualFold(s[:len(lower)], lower)
}

// carriable reports whether SQS takes the text: it takes the characters of XML 1.0, in UTF-8.
func carriable[T string | []byte](text T) bool {
	for i := 0; i < len(text); {
		c := text[i]
		if c < utf8.RuneSelf {
			if c < ' ' && c != '\t' && c != '\n' && c != '\r' {
				return false
			}
			i++
			continue
		}
		r, n := utf8.DecodeRuneInString(string(text[i:min(len(text), i+utf8.UTFMax)]))
		if r == utf8.RuneError && n == 1 || r == 0xfffe || r == 0xffff {
			return false
		}
		i += n
	}
	return true
}
