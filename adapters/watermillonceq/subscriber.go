package watermillonceq

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/internal/durations"
	"github.com/onceq/onceq/internal/retry"
	"github.com/onceq/onceq/internal/values"
)

// This file owns the Subscriber: its options, and the beginning and end of its subscriptions. What
// a subscription does is in subscription.go, and how it settles in settle.go. Users call its
// methods, from any goroutine. mu guards closed and the making of subscriptions.

// The defaults of [SubscriberOptions].
const (
	DefaultConcurrency  = onceq.DefaultConcurrency
	DefaultVisibility   = onceq.DefaultVisibility
	DefaultCloseTimeout = 30 * time.Second
	DefaultCallTimeout  = onceq.DefaultCallTimeout
)

// SubscriberOptions say how messages are received. The zero value is usable.
type SubscriberOptions struct {
	// Concurrency is how many messages of one subscription may be on their way at once: handed on
	// and neither acked nor nacked, or about to be handed on. With 1 they come one by one. 0 =
	// DefaultConcurrency (10); at most 100,000. Messages of one group come one by one, where the
	// broker orders groups.
	Concurrency int
	// Visibility is how long a message stays hidden when its subscriber dies. Meanwhile heartbeats
	// extend it. 0 = DefaultVisibility (30 s); else within the broker's Limits.MinHold and MaxHold,
	// which Subscribe checks, and at least 10 ms.
	Visibility time.Duration
	// Grace is how long the contexts of messages outlive their subscription, so that handlers can
	// end their work. 0 = not at all, as with Watermill's other subscribers; else at least 1 ms and
	// less than CloseTimeout.
	Grace time.Duration
	// CloseTimeout is how long Close, and the end of a subscription, wait for the Ack or Nack of
	// messages that were handed on. After that a message comes again when its Visibility is over,
	// and its Ack does nothing. 0 = DefaultCloseTimeout (30 s); else at least 1 ms.
	CloseTimeout time.Duration
	// CallTimeout bounds one call of the broker. 0 = DefaultCallTimeout (5 s); else at least 1 ms.
	CallTimeout time.Duration
	// Backoff is how long a nacked message is hidden, by the broker's count of its deliveries, 1
	// where it does not count. The broker's longest delay is the limit. The subscription's
	// goroutines call it. Default: 1 s, doubled up to 1 min, half of it at random.
	Backoff func(deliveries int) time.Duration
	// Logger is told what fails. Default: none.
	Logger watermill.LoggerAdapter
}

func (o SubscriberOptions) withDefaults() SubscriberOptions {
	o.Concurrency = cmp.Or(o.Concurrency, DefaultConcurrency)
	o.Visibility = cmp.Or(o.Visibility, DefaultVisibility)
	o.CloseTimeout = cmp.Or(o.CloseTimeout, DefaultCloseTimeout)
	o.CallTimeout = cmp.Or(o.CallTimeout, DefaultCallTimeout)
	if o.Backoff == nil {
		o.Backoff = func(n int) time.Duration { return retry.Within(time.Second, time.Minute, n) }
	}
	if values.IsNil(o.Logger) {
		o.Logger = watermill.NopLogger{}
	}
	return o
}

// mostConcurrency is the limit of SubscriberOptions.Concurrency.
const mostConcurrency = 100_000

func (o *SubscriberOptions) check() error {
	bad := func(field, format string, args ...any) error {
		return fmt.Errorf("watermillonceq: SubscriberOptions.%s: %s", field, fmt.Sprintf(format, args...))
	}
	switch {
	case o.Concurrency < 0 || o.Concurrency > mostConcurrency:
		return bad("Concurrency", "%d is not within 1 and %d", o.Concurrency, mostConcurrency)
	case o.Visibility < 10*time.Millisecond:
		return bad("Visibility", "%v is below 10ms", o.Visibility)
	case o.Grace < 0:
		return bad("Grace", "%v is negative", o.Grace)
	case durations.IsBare(o.Grace):
		return bad("Grace", "%s", durations.AskUnit(o.Grace))
	case o.CloseTimeout < durations.Least:
		return bad("CloseTimeout", "%s", durations.AskUnit(o.CloseTimeout))
	case o.Grace >= o.CloseTimeout:
		return bad("Grace", "%v is not less than CloseTimeout, %v", o.Grace, o.CloseTimeout)
	case o.CallTimeout < durations.Least:
		return bad("CallTimeout", "%s", durations.AskUnit(o.CallTimeout))
	}
	return nil
}

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
func NewSubscriber(open Open, o SubscriberOptions) (*Subscriber, error) {
	if open == nil {
		return nil, errors.New("watermillonceq: NewSubscriber: open is nil")
	}
	o = o.withDefaults()
	if err := o.check(); err != nil {
		return nil, err
	}
	s := &Subscriber{o: o, topics: topics{open: open}}
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
// When the subscription ends, it gives back what it has received and not handed on, and closes the
// channel. Messages that were handed on are kept until their Ack or Nack, for CloseTimeout.
//
// A broker that fails is asked again, with pauses of up to 5 s; the Logger is told.
func (s *Subscriber) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	b, err := s.topics.get(topic)
	if err != nil {
		return nil, err
	}
	sub, err := newSubscription(ctx, s, topic, b)
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
// been acked or nacked, or CloseTimeout is over, and acks on their way have had their answers, which
// takes up to CallTimeout more. It never fails; the Logger is told of messages that it has left.
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
