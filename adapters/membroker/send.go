package membroker

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/onceq/onceq/broker"
)

// This file owns what enters the queue: Send, SendRaw, and what a redrive moves here. Users call
// Send and SendRaw from many goroutines; the source of a redrive calls adopt with its own lock
// held. Messages are checked and copied before Broker.mu is taken.

// Send puts the messages; their order in ms is their order in the queue. On SQSFIFO an entry puts
// nothing when its DedupID was sent within the last five minutes. It is answered with the first
// one's id, also when that message was acked since.
//
// An entry that carries both a Meta and an attribute named [broker.MetaAttribute] is answered
// ErrBadMeta. Without a Meta the attribute travels as it is, see SendRaw. If the entries have more
// bytes than one request of the preset holds, the whole call is answered ErrTooLarge, and nothing
// is applied.
func (b *Broker) Send(ctx context.Context, ms []broker.Outgoing) ([]string, error) {
	if len(ms) == 0 {
		return nil, nil
	}
	if err := b.checkBatch("send", len(ms), b.rules.limits.SendBatch); err != nil {
		return nil, err
	}
	if err := b.checkTotal(ms); err != nil {
		return nil, b.wrap("send", err)
	}
	if err := ctx.Err(); err != nil {
		return nil, b.wrap("send", err)
	}
	return b.send(ms)
}

// SendRaw puts a message as a foreign producer would. The attributes travel as they are. If
// [broker.MetaAttribute] is among them, it is decoded when the message is received. When that
// fails, Message.MetaErr is set and the attribute stays where it is. Where every message needs a
// group, the message gets one of its own.
func (b *Broker) SendRaw(ctx context.Context, body []byte, attributes map[string]string) error {
	if err := ctx.Err(); err != nil {
		return b.wrap("send", err)
	}
	m := broker.Outgoing{Body: body, Attributes: attributes}
	if b.rules.limits.RequireGroup {
		m.Group = "raw-" + strconv.FormatUint(b.numbers.Add(1), 10)
	}
	_, err := b.send([]broker.Outgoing{m})
	return broker.ErrAt(err, 0)
}

// parcel is an entry of a Send, checked and copied before the lock is taken.
type parcel struct {
	id         string
	body       []byte
	attributes map[string]string
	meta       *broker.Meta
	err        error
}

// send gives no ids at all when the broker is closed.
func (b *Broker) send(ms []broker.Outgoing) ([]string, error) {
	// Batches of the services' usual size need no allocation for this.
	var room [10]parcel
	ps := b.pack(room[:0], ms)
	ids := make([]string, len(ms))
	var errs []error

	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, b.wrap("send", broker.ErrClosed)
	}
	now := b.begin()
	b.dedup.expire(now)
	for i := range ps {
		p := &ps[i]
		err := p.err
		if err == nil {
			ids[i] = b.put(&ms[i], p, now)
			continue
		}
		errs = b.failEntry(errs, len(ms), i, "send", err)
	}
	b.end(now)
	return ids, broker.JoinEntries(errs)
}

// pack checks the messages and copies what the queue keeps of them, with few allocations
// for the batch.
func (b *Broker) pack(ps []parcel, ms []broker.Outgoing) []parcel {
	const idLen = len("01234567-") + 10
	bytes, metas := 0, 0
	for i := range ms {
		bytes += shared(ms[i].Body)
		if ms[i].Meta != nil {
			metas++
		}
	}
	a := arena{bytes: make([]byte, 0, bytes), metas: make([]broker.Meta, 0, metas)}
	number := b.numbers.Add(uint64(len(ms))) - uint64(len(ms))
	var ids strings.Builder
	ids.Grow(idLen * len(ms))
	for i := range ms {
		o := &ms[i]
		number++
		if err := b.check(o); err != nil {
			ps = append(ps, parcel{err: err})
			continue
		}
		from := ids.Len()
		var buf [2 * idLen]byte
		ids.Write(b.appendID(buf[:0], number))
		p := parcel{id: ids.String()[from:], body: a.body(o.Body)}
		if len(o.Attributes) > 0 {
			p.attributes = maps.Clone(o.Attributes)
		}
		if o.Meta != nil {
			p.meta = a.meta(o.Meta)
			// The mark is a driver's own. It says nothing about the body that the user gave.
			p.meta.BodyEncoding = ""
		}
		ps = append(ps, p)
	}
	return ps
}

func (b *Broker) appendID(dst []byte, number uint64) []byte {
	var nonce [4]byte
	binary.BigEndian.PutUint32(nonce[:], b.nonce)
	dst = append(hex.AppendEncode(dst, nonce[:]), '-')
	return strconv.AppendUint(dst, number, 10)
}

// put stores one message and returns its id.
func (b *Broker) put(o *broker.Outgoing, p *parcel, now int64) string {
	if b.rules.dedup && o.DedupID != "" {
		if first, ok := b.dedup.ids[o.DedupID]; ok {
			return first
		}
		b.dedup.add(o.DedupID, p.id, now)
	}
	e := b.queue.add(o.Group, b.rules.groups)
	e.id, e.body, e.attributes, e.meta, e.published = p.id, p.body, p.attributes, p.meta, now
	if o.Delay > 0 {
		b.queue.hide(e, delayed, now+int64(o.Delay))
	} else {
		b.queue.show(e)
	}
	return p.id
}

// adopt takes over e from the broker whose redrive target b is. It is false when b is closed.
func (b *Broker) adopt(from *Broker, e *entry, at int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return false
	}
	now := b.begin()
	n := b.queue.add(e.groupName, b.rules.groups)
	n.id, n.body, n.attributes, n.meta = e.id, e.body, e.attributes, e.meta
	n.published = now
	if !b.rules.retimes {
		n.published -= at - e.published
	}
	if b.rules.republishes {
		n.id = string(b.appendID(nil, b.numbers.Add(1)))
		n.attributes = maps.Clone(e.attributes)
		if n.attributes == nil {
			n.attributes = make(map[string]string, 4)
		}
		const source = "CloudPubSubDeadLetterSource"
		n.attributes[source+"DeliveryCount"] = strconv.Itoa(e.receives)
		n.attributes[source+"Subscription"] = from.name
		n.attributes[source+"SubscriptionProject"] = "membroker"
		n.attributes[source+"TopicPublishTime"] = from.time(e.published).UTC().Format(time.RFC3339Nano)
	}
	b.queue.show(n)
	b.end(now)
	return true
}
