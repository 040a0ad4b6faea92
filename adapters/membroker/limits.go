package membroker

import (
	"fmt"

	"github.com/onceq/onceq/broker"
)

// check says why o cannot be sent; nil when it can.
func (b *Broker) check(o *broker.Outgoing) error {
	r := &b.rules
	l := &r.limits
	switch {
	case o.Delay < 0 || o.Delay > l.MaxDelay:
		return unsupported("a delay of %v; it is within 0 and %v", o.Delay, l.MaxDelay)
	case o.Group == "" && l.RequireGroup:
		return unsupported("no Group; preset %v needs one", b.preset)
	case r.maxGroup > 0 && len(o.Group) > r.maxGroup:
		return unsupported("a Group of %d bytes; it has at most %d", len(o.Group), r.maxGroup)
	case r.maxDedupID > 0 && len(o.DedupID) > r.maxDedupID:
		return unsupported("a DedupID of %d bytes; it has at most %d", len(o.DedupID), r.maxDedupID)
	}
	if err := b.checkAttributes(o); err != nil {
		return err
	}
	if size := b.sizeAbove(o, l.MaxBody); size > l.MaxBody {
		return fmt.Errorf("%w: %d bytes with attributes and metadata; at most %d", broker.ErrTooLarge, size, l.MaxBody)
	}
	return nil
}

func (b *Broker) checkAttributes(o *broker.Outgoing) error {
	n := len(o.Attributes)
	if o.Meta != nil {
		n++
	}
	if n == 0 {
		return nil
	}
	r := &b.rules
	if n > r.limits.MaxAttributes {
		return fmt.Errorf("%w: %d attributes, with our own; at most %d", broker.ErrTooLarge, n, r.limits.MaxAttributes)
	}
	if o.Meta != nil {
		if _, ok := o.Attributes[broker.MetaAttribute]; ok {
			return fmt.Errorf("%w: attribute %q is ours; the message has a Meta as well", broker.ErrBadMeta, broker.MetaAttribute)
		}
	}
	if r.maxName == 0 {
		return nil
	}
	for name, value := range o.Attributes {
		switch {
		case len(name) > r.maxName:
			return fmt.Errorf("%w: an attribute's name of %d bytes; it has at most %d", broker.ErrTooLarge, len(name), r.maxName)
		case len(value) > r.maxValue && name != broker.MetaAttribute:
			return fmt.Errorf("%w: attribute %q has %d bytes; at most %d", broker.ErrTooLarge, name, len(value), r.maxValue)
		}
	}
	return nil
}

// checkTotal checks the bytes of one Send, where the preset bounds them. An entry that is
// too large by itself is left to check, which answers it by position.
func (b *Broker) checkTotal(ms []broker.Outgoing) error {
	most := b.rules.maxBatch
	if most == 0 || len(ms) < 2 {
		return nil
	}
	bound := 0
	for i := range ms {
		bound += b.sizeBound(&ms[i])
	}
	if bound <= most {
		return nil
	}
	total := 0
	for i := range ms {
		if n := b.size(&ms[i]); n <= b.rules.limits.MaxBody {
			total += n
		}
	}
	if total > most {
		return fmt.Errorf("%w: %d bytes in all; one request has at most %d", broker.ErrTooLarge, total, most)
	}
	return nil
}

// sizeAbove is the size of o where it is above most; otherwise the answer is most or less. The
// metadata is encoded only when its size could matter.
func (b *Broker) sizeAbove(o *broker.Outgoing, most int) int {
	if n := b.sizeBound(o); n <= most {
		return n
	}
	return b.size(o)
}

// size is what the service counts of o.
func (b *Broker) size(o *broker.Outgoing) int {
	n := b.sizePlain(o)
	if o.Meta != nil {
		n += len(broker.EncodeMeta(o.Meta))
	}
	return n
}

// sizePlain is the size of o without the encoded metadata.
func (b *Broker) sizePlain(o *broker.Outgoing) int {
	n := len(o.Body)
	if o.Meta != nil {
		n += len(broker.MetaAttribute) + b.rules.perAttribute
	}
	for name, value := range o.Attributes {
		n += len(name) + len(value) + b.rules.perAttribute
	}
	return n
}

// sizeBound is at least the size of o.
func (b *Broker) sizeBound(o *broker.Outgoing) int {
	n := b.sizePlain(o)
	if m := o.Meta; m != nil {
		// Names, numbers and punctuation take less than fixed; a byte of text at most widest,
		// as an escape.
		const fixed, widest = 512, 6
		n += fixed + widest*(len(m.ID)+len(m.Type)+len(m.Key)+len(m.CorrelationID)+len(m.BodyEncoding)+len(m.Extra))
		if d := m.Dead; d != nil {
			n += widest * (len(d.Class) + len(d.FirstErr) + len(d.LastErr) + len(d.Source) + len(d.Extra))
		}
	}
	return n
}
