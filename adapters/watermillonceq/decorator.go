package watermillonceq

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/internal/values"
	"github.com/onceq/onceq/internal/verdict"
)

// This file owns the subscriber decorator. Each message that the inner subscriber gives has a
// goroutine: it claims the key, hands a copy to the consumer, and waits for the copy's Ack or Nack.
// A decorated's mu guards closed; one subscription's senders are counted by its WaitGroup, so that
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
// A message that no consumer takes before the subscription or the message's context ends goes back.
// It has had no attempt, and dedupe.Park does not park it, unless the process dies meanwhile. So
// does one that waits for longer than Options.Timeout, which counts from the claim.
//
// Messages are claimed side by side. Where the inner subscriber gives the next message before the
// last one is acked, they may be handed on in another order.
//
// It does no I/O, and its errors name the option.
func NewDecorator(p *onceq.Processor, o *Options) (message.SubscriberDecorator, error) {
	g, err := newGuard(p, o)
	if err != nil {
		return nil, err
	}
	return func(inner message.Subscriber) (message.Subscriber, error) {
		if values.IsNil(inner) {
			return nil, errors.New("watermillonceq: the subscriber is nil")
		}
		return &decorated{guard: g, inner: inner, closing: make(chan struct{})}, nil
	}, nil
}

// decorated is a subscriber under claims.
type decorated struct {
	*guard
	inner   message.Subscriber
	closing chan struct{} // closed by Close

	mu     sync.Mutex
	closed bool
	subs   sync.WaitGroup // subscriptions whose channel is open
}

// Subscribe subscribes to the inner subscriber.
func (d *decorated) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	in, err := d.inner.Subscribe(ctx, topic)
	if err != nil {
		return nil, err
	}
	s := &claiming{guard: d.guard, out: make(chan *message.Message), over: make(chan struct{})}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, ErrClosed
	}
	d.subs.Go(func() {
		defer close(s.out)
		// What is not handed on yet goes back, also where the inner subscriber closes its channel
		// only after that.
		end := sync.OnceFunc(func() { close(s.over) })
		go func() {
			select {
			case <-d.closing:
			case <-ctx.Done():
			case <-s.over:
			}
			end()
		}()
		var senders sync.WaitGroup
		for msg := range in {
			senders.Add(1)
			go s.deliver(msg, senders.Done)
		}
		end()
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
	d.mu.Lock()
	if !d.closed {
		d.closed = true
		close(d.closing)
	}
	d.mu.Unlock()
	err := d.inner.Close()
	d.subs.Wait()
	return err
}

// claiming is one subscription.
type claiming struct {
	*guard
	out  chan *message.Message
	over chan struct{} // nothing more is handed on
}

var (
	errNacked  = errors.New("watermillonceq: the consumer has nacked the message")
	errClosing = errors.New("watermillonceq: the subscription ended before the message was handed on")
)

// deliver is one message. sent tells that it will not use the channel any more.
func (s *claiming) deliver(msg *message.Message, sent func()) {
	sent = sync.OnceFunc(sent)
	defer sent()
	defer func() { // of a function in Options; no Recoverer of a Router is around us
		if v := recover(); v != nil {
			s.o.Logger.Error("onceq: the message is nacked", fmt.Errorf("watermillonceq: panic: %v", v), watermill.LogFields{"message_uuid": msg.UUID})
			msg.Nack()
		}
	}()
	// What ends the wait for a claim must not count as the end of a run, so the message's context
	// ends the job's before the claim is won, and again when the message is handed on.
	ctx, end := context.WithCancelCause(context.WithoutCancel(msg.Context()))
	defer end(nil)
	won := make(chan struct{})
	go func() {
		select {
		case <-s.over:
			end(errClosing)
		case <-msg.Context().Done():
			end(context.Cause(msg.Context()))
		case <-won:
		case <-ctx.Done():
		}
	}()
	_, _, err := s.once(ctx, msg, func(ctx context.Context) (Produced, error) {
		close(won)
		out := msg.Copy()
		of := ctx
		if at, ok := msg.Context().Deadline(); ok {
			var stop context.CancelFunc
			of, stop = context.WithDeadline(ctx, at)
			defer stop()
		}
		out.SetContext(of)
		select {
		case s.out <- out:
			sent()
		case <-s.over:
			return nil, &verdict.NotBegunError{Err: errClosing}
		case <-msg.Context().Done():
			return nil, &verdict.NotBegunError{Err: context.Cause(msg.Context())}
		case <-ctx.Done():
			return nil, &verdict.NotBegunError{Err: context.Cause(ctx)}
		}
		defer context.AfterFunc(msg.Context(), func() { end(context.Cause(msg.Context())) })()
		select {
		case <-out.Acked():
			return nil, nil
		case <-out.Nacked():
			if cause := cmp.Or(context.Cause(msg.Context()), context.Cause(of)); cause != nil {
				end(cause) // which the consumer may have seen before the job
			}
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
