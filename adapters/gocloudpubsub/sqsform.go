package gocloudpubsub

import (
	"fmt"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/sqswire"
)

// This file owns the form of a message on SQS, which is that of our own driver there: a body that
// SQS cannot carry is base64 with a mark in the metadata, and attributes are as they are. gocloud's
// escapes would hide our metadata from every other reader. Send calls packSQS for each message, and
// nothing is locked, because it keeps no state.

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
		if err := sqswire.CheckName(name); err != nil {
			return e, err
		}
		typ, text, raw := sqswire.Attribute(value, carriable(value))
		e.MessageAttributes[name] = types.MessageAttributeValue{DataType: &typ, StringValue: text, BinaryValue: raw}
		size += len(name) + len(typ) + len(deref(text)) + len(raw)
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
		if err := sqswire.CheckToken("Group", o.Group); err != nil {
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
		id = sqswire.DedupID(o)
	} else if err := sqswire.CheckToken("DedupID", id); err != nil {
		return err
	}
	e.MessageDeduplicationId = &id
	return nil
}

// packBody gives the body as it travels, and the metadata. A message without metadata gets a mark
// where its body needs one, and where gocloud's reader would undo escapes that nobody has made.
func packBody(o *broker.Outgoing) (body, meta string) {
	misread := o.Meta == nil && (looksEscaped(o.Attributes) || looksLikeSNS(o))
	return sqswire.Body(o, !misread && carriable(string(o.Body)))
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

// carriable reports whether the text comes as it went, also through XML, whose readers change a
// carriage return.
func carriable(s string) bool { return sqswire.Carriable(s) && !strings.Contains(s, "\r") }
