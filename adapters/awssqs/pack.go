package awssqs

import (
	"fmt"

	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/onceq/onceq/broker"
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
	body, meta := sqswire.Body(o, sqswire.Carriable(o.Body))
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
		if err := sqswire.CheckName(name); err != nil {
			return e, 0, err
		}
		typ, text, raw := sqswire.Attribute(value, sqswire.Carriable(value))
		e.MessageAttributes[name] = types.MessageAttributeValue{DataType: &typ, StringValue: text, BinaryValue: raw}
		size += len(name) + len(typ) + len(deref(text)) + len(raw)
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
		if err := sqswire.CheckToken("Group", o.Group); err != nil {
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
		id = sqswire.DedupID(o)
	} else if err := sqswire.CheckToken("DedupID", id); err != nil {
		return err
	}
	e.MessageDeduplicationId = &id
	return nil
}
