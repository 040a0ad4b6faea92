package watermillonceq

import (
	"context"
	"errors"
	"sync"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/internal/values"
)

// This file owns the subscriber decorator. Each message that the inner subscriber gives has a
// goroutine: it claims the key, hands a copy to the consumer, and waits for the copy's Ack or Nack.
// A Decorated's mu guards closed; one subscription's senders are counted by its WaitGroup, so that
// its channel is closed after the last of them.

// NewDecorator makes a decorator for subscribers, for Router.AddSubscriberDecorators or for use by
// hand. A message whose key is free is handed on under a claim, with the context of its job, as a
// copy with an Ack of its own. Ack records the key as done, and then acks the message. Nack gives
// the key back, and nacks. A message whose key is done is acked and not handed on. While another
// run holds its key, it waits for Options.Wait, and is nacked.
//
// The claim is kept until the consumer acks or nacks, also when the message's context has ended. A
// consumer that does neither keeps the key for as long as the process lives. Close closes the inner
// subscriber, and waits for what has been handed on no longer than that one does.
//
// Messages are claimed side by side. Where the inner subscriber gives the next message before the
// last one is acked, they may be handed on in another order.
//
// It does no I/O, and its errors name the option.
func NewDecorator(p *onceq.Processor, o Options) (message.SubscriberDecorator, error) {
	g, err := newGuard(p, o)
	if err != nil {
		return nil, err
	}
	return func(inner message.Subscriber) (message.Subscriber, error) {
		if values.IsNil(inner) {
			return nil, errors.New("watermillonceq: the subscriber is nil")
		}
		return &decorated{guard: g, inner: inner}, nil
	}, nil
}

// decorated is a subscriber under claims.
type decorated struct {
	*guard
	inner message.Subscriber
	subs  sync.WaitGroup // subscriptions whose channel is open
}

// Subscribe subscribes to the inner subscriber.
func (d *decorated) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	in, err := d.inner.Subscribe(ctx, topic)
	if err != nil {
		return nil, err
	}
	s := &claiming{guard: d.guard, out: make(chan *message.Message), over: make(chan struct{})}
	d.subs.Go(func() {
		defer close(s.out)
		var senders sync.WaitGroup
		for msg := range in {
			senders.Add(1)
			go s.deliver(msg, senders.Done)
		}
		close(s.over) // what is not handed on yet goes back
		senders.Wait()
	})
	return s.out, nil
}

// SubscribeInitialize asks the inner subscriber, where that has it.
func (d *decorated) SubscribeInitialize(topic string) error {
	if i, ok := d.inner.(message.SubscribeInitializer); ok {
		return i.SubscribeInitialize(topic)
	}
	return nil
}

// Close closes the inner subscriber.
func (d *decorated) Close() error {
	err := d.inner.Close()
	d.subs.Wait()
	return err
}

// claiming is one subscription.
type claiming struct {
	*guard
	out  chan *message.Message
	over chan struct{} // the inner subscriber gives nothing more
}

var (
	errNacked  = errors.New("watermillonceq: the consumer has nacked the message")
	errClosing = errors.New("watermillonceq: the subscription ended before the message was handed on")
)

// deliver is one message. sent tells that it will not use the channel any more.
func (s *claiming) deliver(msg *message.Message, sent func()) {
	sent = sync.OnceFunc(sent)
	defer sent()
	// A claim that is waited for must not keep the subscription from ending.
	ctx, end := context.WithCancelCause(msg.Context())
	defer end(nil)
	handed := make(chan struct{})
	go func() {
		select {
		case <-s.over:
			select {
			case <-handed:
			default:
				end(errClosing)
			}
		case <-handed:
		case <-ctx.Done():
		}
	}()
	_, _, err := s.once(ctx, msg, func(ctx context.Context) (Produced, error) {
		out := msg.Copy()
		out.SetContext(ctx)
		select {
		case s.out <- out:
			close(handed)
			sent()
		case <-s.over:
			return nil, errClosing
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		select {
		case <-out.Acked():
			return nil, nil
		case <-out.Nacked():
			return nil, errNacked
		}
	})
	if err == nil {
		msg.Ack()
		return
	}
	if !errors.Is(err, errNacked) && !errors.Is(err, errClosing) && !errors.Is(err, context.Canceled) {
		s.o.Logger.Error("onceq: the message is nacked", err, watermill.LogFields{"message_uuid": msg.UUID})
	}
	msg.Nack()
}
