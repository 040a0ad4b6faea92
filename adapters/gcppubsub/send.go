package gcppubsub

import (
	"context"
	"errors"
	"fmt"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/letter"
	"github.com/onceq/onceq/internal/pubsubwire"
)

// This file owns Send: which messages share a publish, and what each of them is answered.
// Producers, a worker that puts letters, and dlq's replay call it, from many goroutines. A sending
// belongs to one call, so nothing is locked. internal/pubsubwire makes the messages.

// Send publishes the messages. A publish takes messages of one group, which is the ordering key, up
// to 10 MB, so there is a call for each group and one for those without, one after the other. No
// call is repeated: repeating is the caller's choice, and puts a message twice where the first one
// had arrived. Its job is done once.
//
// When a message of a group was not sent, the later ones of that group are not sent either, so that
// none overtakes it. They have its error. If it says that Pub/Sub never takes some message, they
// have its text alone, because it says nothing of them.
//
// An entry is answered ErrTooLarge above Limits.MaxBody with its attributes, above 100 of these or
// above 1,024 bytes in one, and ErrUnsupported with an attribute's name or a Group that Pub/Sub
// does not take, or with a Delay. DedupID is ignored.
func (b *Broker) Send(ctx context.Context, ms []broker.Outgoing) ([]string, error) {
	if len(ms) == 0 {
		return nil, nil
	}
	if err := b.check(callSend, len(ms)); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, b.wrap(callSend, err)
	}
	s := sending{b: b, ids: make([]string, len(ms)), size: len(ms)}
	// Mostly there is one group, and no map is needed.
	one := true
	for i := range ms {
		one = one && ms[i].Group == ms[0].Group
	}
	if one {
		s.group(ctx, ms, nil)
	} else {
		var groups []string
		at := make(map[string][]int)
		for i := range ms {
			g := ms[i].Group
			if at[g] == nil {
				groups = append(groups, g)
			}
			at[g] = append(at[g], i)
		}
		for _, g := range groups {
			s.group(ctx, ms, at[g])
		}
	}
	if s.whole != nil {
		return nil, s.whole
	}
	if s.errs == nil {
		return s.ids, nil
	}
	return s.ids, broker.JoinEntries(s.errs)
}

// sending is one Send.
type sending struct {
	b     *Broker
	ids   []string
	errs  []error
	size  int
	whole error // the answer to the only call, where that failed as one
}

func (s *sending) set(i int, err error) {
	if s.errs == nil {
		s.errs = make([]error, s.size)
	}
	s.errs[i] = err
}

// group sends the messages at these positions, which have the same group; nil = all.
func (s *sending) group(ctx context.Context, ms []broker.Outgoing, at []int) {
	n := len(at)
	if at == nil {
		n = len(ms)
	}
	p := part{sending: s, messages: make([]*pubsubpb.PubsubMessage, 0, n), at: make([]int, 0, n)}
	for k := range n {
		i := k
		if at != nil {
			i = at[k]
		}
		p.take(ctx, i, &ms[i])
	}
	p.flush(ctx)
}

// part is the messages of one group, which are gathered until a publish is full.
type part struct {
	*sending
	messages []*pubsubpb.PubsubMessage
	at       []int // their positions
	bytes    int
	stopped  error // why nothing more of the group is sent
}

func (p *part) take(ctx context.Context, i int, o *broker.Outgoing) {
	if p.stopped != nil {
		p.set(i, p.stopped)
		return
	}
	m, size, err := pack(o)
	if err != nil {
		err = p.b.wrap(callSend, err)
		if o.Group != "" {
			// What came before it goes first: its failure would be told of this one, too.
			if p.flush(ctx); p.stopped == nil {
				p.stopped = behind(err)
			}
		}
		p.set(i, err)
		return
	}
	if p.bytes+size > maxPublish {
		p.flush(ctx) // if that stops the group, the next flush tells this message
	}
	p.messages, p.at, p.bytes = append(p.messages, m), append(p.at, i), p.bytes+size
}

// pack makes the message, and tells how many bytes it adds to a publish.
func pack(o *broker.Outgoing) (*pubsubpb.PubsubMessage, int, error) {
	if o.Delay != 0 {
		return nil, 0, unsupported("a Delay of %v; Pub/Sub has none", o.Delay)
	}
	data, attributes, size, err := pubsubwire.Encode(o)
	if err != nil {
		return nil, 0, err
	}
	size += perMessage + perAttribute*len(attributes)
	return &pubsubpb.PubsubMessage{Data: data, Attributes: attributes, OrderingKey: o.Group}, size, nil
}

// flush sends what was gathered, in several calls where Pub/Sub refuses them together: one message
// may be what it never takes, and says nothing of the others.
func (p *part) flush(ctx context.Context) {
	ms, at := p.messages, p.at
	p.messages, p.at, p.bytes = p.messages[len(ms):], p.at[len(at):], 0
	if len(ms) > 0 {
		letter.InParts(len(ms), func(from, to int) bool { return p.publish(ctx, ms[from:to], at[from:to]) })
	}
}

// publish makes one call, and reports whether it is to be made again for each half.
func (p *part) publish(ctx context.Context, ms []*pubsubpb.PubsubMessage, at []int) (divide bool) {
	err := p.stopped
	if err == nil {
		var ids []string
		ids, err = p.call(ctx, ms)
		switch {
		case err == nil:
			p.b.counts.sent.Add(int64(len(ms)))
			for n, i := range at {
				p.ids[i] = ids[n]
			}
			return false
		case len(ms) > 1 && letter.IsUnfit(err):
			return true
		case len(ms) == p.size && p.size > 1:
			p.whole = err
		}
		if ms[0].GetOrderingKey() != "" {
			p.stopped = behind(err)
		}
	}
	for _, i := range at {
		p.set(i, err)
	}
	return false
}

func (p *part) call(ctx context.Context, ms []*pubsubpb.PubsubMessage) ([]string, error) {
	b := p.b
	bounded, cancel, err := b.begin(ctx, callSend)
	if err != nil {
		return nil, err
	}
	defer cancel()
	b.counts.publishes.Add(1)
	out, err := b.api.Publish(bounded, &pubsubpb.PublishRequest{Topic: b.topic, Messages: ms})
	if err != nil {
		return nil, b.failed(ctx, bounded, callSend, err)
	}
	if n := len(out.GetMessageIds()); n != len(ms) {
		return nil, b.wrap(callSend, fmt.Errorf("the answer has %d ids for %d messages", n, len(ms)))
	}
	return out.GetMessageIds(), nil
}

// behind is the answer to entries that were not sent because of err. Where err says that Pub/Sub
// never takes some other message, they do not carry it, because it says nothing of them.
func behind(err error) error {
	const text = "not sent, because an earlier message of its group was not: "
	if letter.IsUnfit(err) {
		return errors.New(text + err.Error())
	}
	return fmt.Errorf(text+"%w", err)
}
