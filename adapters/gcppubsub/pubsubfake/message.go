package pubsubfake

import (
	"google.golang.org/protobuf/proto"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
)

// state is what may happen to a message next.
type state uint8

const (
	gone     state = iota // it has left the subscription
	ready                 // it may be delivered, when its ordering key lets it
	held                  // it was delivered, and its ack deadline has not passed
	delayed               // a retry policy keeps it back
	settled               // it is acked, and an earlier one of its ordering key is not yet
	retained              // it is acked, and kept for a Seek
)

// content is a message as it was published. All subscriptions share it, and nobody changes it.
type content struct {
	pb   *pubsubpb.PubsubMessage
	size int
	at   int64 // when it was published
}

// message is one message of one subscription.
type message struct {
	*content
	q   *subscription
	num uint64 // its place in the order of the subscription's messages
	// serial counts the deliveries; it is in each ack id.
	serial uint32
	state  state
	// attempts are the deliveries that a dead-letter policy counts, failures the ends of holds
	// without an ack.
	attempts, failures int32
	place              int32 // in the server's heap
	lane               *lane
	stream             *stream  // that has it, while it is held
	prev, next         *message // in the list of ready ones, or in its lane
	earlier, later     *message // in the list of all
}

// list is a list of messages by prev and next.
type list struct{ first, last *message }

func (l *list) append(m *message) {
	m.prev, m.next = l.last, nil
	if l.last == nil {
		l.first = m
	} else {
		l.last.next = m
	}
	l.last = m
}

func (l *list) remove(m *message) {
	if m.prev == nil {
		l.first = m.next
	} else {
		m.prev.next = m.next
	}
	if m.next == nil {
		l.last = m.prev
	} else {
		m.next.prev = m.prev
	}
	m.prev, m.next = nil, nil
}

// ages is the list of all messages of a subscription, the oldest first.
type ages struct{ first, last *message }

func (l *ages) append(m *message) {
	m.earlier, m.later = l.last, nil
	if l.last == nil {
		l.first = m
	} else {
		l.last.later = m
	}
	l.last = m
}

func (l *ages) remove(m *message) {
	if m.earlier == nil {
		l.first = m.later
	} else {
		m.earlier.later = m.later
	}
	if m.later == nil {
		l.last = m.earlier
	} else {
		m.later.earlier = m.earlier
	}
	m.earlier, m.later = nil, nil
}

// delivery is one delivery of a message, before it is given to somebody.
type delivery struct {
	*content
	ackID   string
	attempt int32
}

// pulled is what a pull brings.
type pulled struct{ messages []delivery }

// shared makes the answer of messages that belong to the server: what goes over a wire needs no
// copy.
func (p *pulled) shared() []*pubsubpb.ReceivedMessage {
	out := make([]*pubsubpb.ReceivedMessage, len(p.messages))
	backing := make([]pubsubpb.ReceivedMessage, len(p.messages))
	for i := range p.messages {
		d := &p.messages[i]
		out[i] = &backing[i]
		out[i].AckId, out[i].Message, out[i].DeliveryAttempt = d.ackID, d.pb, d.attempt
	}
	return out
}

// copied makes the answer of messages that their receiver may change.
func (p *pulled) copied() []*pubsubpb.ReceivedMessage {
	out := p.shared()
	for _, m := range out {
		m.Message = proto.CloneOf(m.Message)
	}
	return out
}
