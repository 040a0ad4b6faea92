package watermillonceq

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/values"
)

// Open gives the broker of a topic. A [Publisher] and a [Subscriber] call it once for each topic,
// and again where it has failed. They do not close the brokers, which are the caller's. It is
// called by one goroutine at a time for each of them, so it should not take long.
type Open func(topic string) (broker.Broker, error)

// PublisherOptions say how messages become jobs. The zero value, and nil, mean the defaults.
type PublisherOptions struct {
	// Prepare is called with each message before it is sent, and may change what is sent: its
	// group, its delay, Meta.Type, Meta.NotBefore. It must set Group where the broker requires one
	// (SQS FIFO). out.Meta is never nil. An error ends the Publish, with nothing sent. Publish
	// calls it, in the caller's goroutine. Default: nothing.
	Prepare func(topic string, msg *message.Message, out *broker.Outgoing) error
}

// Publisher brings onceq's brokers to Watermill, as a message.Publisher. Its methods may be called
// from many goroutines.
type Publisher struct {
	o      PublisherOptions
	topics topics
}

// NewPublisher makes a Publisher. It does no I/O.
func NewPublisher(open Open, o *PublisherOptions) (*Publisher, error) {
	if open == nil {
		return nil, errors.New("watermillonceq: NewPublisher: open is nil")
	}
	if o == nil {
		o = &PublisherOptions{}
	}
	return &Publisher{o: *o, topics: topics{open: open}}, nil
}

// ErrClosed answers what is asked of a Publisher or Subscriber after its Close.
var ErrClosed = errors.New("watermillonceq: closed")

// Publish sends the messages, in batches, and returns when the broker has them.
//
// The job's key is the message's [KeyMetadata]. Where there is none, Publish makes one and sets it
// in the message, so that a caller that publishes the same message again after an error publishes
// the same job. UUID and metadata travel in attributes, see [MetadataAttribute]. The metadata of a
// job that was received (broker.MetaAttribute) does not travel on.
//
// The context is that of the first message; Publish sends nothing where that of any message has
// ended. The error names the first message that was not sent, by its position, and wraps a
// *broker.BatchError where only some were not.
func (p *Publisher) Publish(topic string, messages ...*message.Message) error {
	b, err := p.topics.get(topic)
	if err != nil {
		return err
	}
	if len(messages) == 0 {
		return nil
	}
	out := make([]broker.Outgoing, len(messages))
	for i, m := range messages {
		if m == nil {
			return fmt.Errorf("watermillonceq: message %d is nil", i)
		}
		if err := context.Cause(m.Context()); err != nil {
			return fmt.Errorf("watermillonceq: message %d: nothing was sent: %w", i, err)
		}
		attributes, err := attributes(m, b.Limits().MaxAttributes)
		if err != nil {
			return fmt.Errorf("watermillonceq: message %d: %w", i, err)
		}
		out[i] = broker.Outgoing{Body: m.Payload, Attributes: attributes, Meta: &broker.Meta{Key: m.Metadata.Get(KeyMetadata)}}
		if p.o.Prepare != nil {
			if err := p.o.Prepare(topic, m, &out[i]); err != nil {
				return fmt.Errorf("watermillonceq: message %d: PublisherOptions.Prepare: %w", i, err)
			}
		}
	}
	if err := onceq.Fill(out); err != nil {
		return fmt.Errorf("watermillonceq: nothing was sent: %w", err)
	}
	for i, m := range messages {
		if m.Metadata == nil {
			m.Metadata = make(message.Metadata)
		}
		if m.Metadata.Get(KeyMetadata) != out[i].Meta.Key {
			m.Metadata.Set(KeyMetadata, out[i].Meta.Key)
		}
	}
	err = onceq.Send(messages[0].Context(), b, out)
	for i := range messages {
		if one := broker.ErrAt(err, i); one != nil {
			return fmt.Errorf("watermillonceq: message %d of %d to %q: %w", i, len(messages), topic, err)
		}
	}
	return err
}

// Close ends the Publisher: what is published after it is answered ErrClosed. It does not wait,
// because Publish returns when all is sent, and never fails.
func (p *Publisher) Close() error {
	p.topics.close()
	return nil
}

// topics opens the broker of each topic once. mu guards it, and is held while a topic is opened.
type topics struct {
	open   Open
	mu     sync.Mutex
	of     map[string]broker.Broker
	closed bool
}

func (t *topics) get(topic string) (broker.Broker, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil, ErrClosed
	}
	if b := t.of[topic]; b != nil {
		return b, nil
	}
	b, err := t.open(topic)
	if err == nil && values.IsNil(b) {
		err = errors.New("the broker is nil")
	}
	if err != nil {
		return nil, fmt.Errorf("watermillonceq: topic %q: %w", topic, err)
	}
	if t.of == nil {
		t.of = make(map[string]broker.Broker)
	}
	t.of[topic] = b
	return b, nil
}

func (t *topics) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
}
