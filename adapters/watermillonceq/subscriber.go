package watermillonceq

import (
	"context"
	"errors"
	"sync"

	"github.com/ThreeDotsLabs/watermill/message"
)

// Subscriber brings onceq's brokers to Watermill, as a message.Subscriber. All subscriptions of a
// topic share its messages, in this process and in others, as the consumers of a queue do.
//
// A message's metadata has [broker.MetaAttribute] where onceq or a [Publisher] has sent it, which
// [KeyFromMetadata] reads. It keeps a job's NotBefore, and looks at nothing else of it: attempts,
// timeouts and expiry are the Worker's. Where metadata cannot be read, the message comes with its
// attributes as they are.
//
// Its methods may be called from many goroutines.
type Subscriber struct {
	o      SubscriberOptions
	topics topics

	mu     sync.Mutex
	closed bool
	end    context.CancelFunc // of all subscriptions
	ended  context.Context
	subs   sync.WaitGroup
}

// NewSubscriber makes a Subscriber. It does no I/O, and its errors name the option and its limit.
func NewSubscriber(open Open, o *SubscriberOptions) (*Subscriber, error) {
	if open == nil {
		return nil, errors.New("watermillonceq: NewSubscriber: open is nil")
	}
	if o == nil {
		o = &SubscriberOptions{}
	}
	full := o.withDefaults()
	if err := full.check(); err != nil {
		return nil, err
	}
	s := &Subscriber{o: full, topics: topics{open: open}}
	s.ended, s.end = context.WithCancel(context.Background())
	return s, nil
}

// SubscribeInitialize opens the topic's broker, so that a mistake shows before the first Subscribe.
// It makes no queue, unless the function that opens brokers does.
func (s *Subscriber) SubscribeInitialize(topic string) error {
	_, err := s.topics.get(topic)
	return err
}

// Subscribe begins to receive the topic's messages, and hands them on through the channel, until
// ctx ends or Close is called. Each message has a context of its own, with ctx's values. It ends
// with the message's Ack or Nack, and with the subscription, see SubscriberOptions.Grace.
//
// When the subscription ends, it gives back what it has received and not handed on. Messages that
// were handed on are kept until their Ack or Nack, for CloseTimeout. The channel is closed after
// that, because a Router closes its publishers then. So a consumer acks each message before it
// waits for the end of the channel.
//
// A message whose delivery is over before the consumer takes it is not handed on. It comes again.
//
// A broker that fails is asked again, with pauses of up to 5 s; the Logger is told.
func (s *Subscriber) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	b, err := s.topics.get(topic)
	if err != nil {
		return nil, err
	}
	sub, err := newSubscription(ctx, &s.o, topic, b)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		sub.cancel()
		return nil, ErrClosed
	}
	stop := context.AfterFunc(s.ended, sub.cancel)
	s.subs.Go(func() {
		defer stop()
		sub.run()
	})
	return sub.out, nil
}

// Close ends all subscriptions, and waits until each has ended: messages that were handed on have
// been acked or nacked, or CloseTimeout is over, and acks on their way are answered. These
// take up to CallTimeout more. It never fails; the Logger is told of messages that it has left.
// The brokers stay open.
func (s *Subscriber) Close() error {
	s.topics.close()
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.end()
	s.subs.Wait()
	return nil
}
