package pubsubfake

import (
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/protobuf/proto"
)

// content is a message as it was published. All subscriptions share it, and nobody changes it.
type content struct {
	pb   *pubsubpb.PubsubMessage
	size int
	at   int64 // when it was published
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
