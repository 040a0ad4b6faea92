package gcppubsub

import (
	"context"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/onceq/onceq/broker"
)

// This file owns what is asked of a subscription's settings. Workers ask for its policy when they
// start, receives for its ack deadline from time to time. b.mu guards what is known of that
// deadline, and is held during no call.

// What a call is named in an error.
const (
	callPolicy = "redrive policy"
	callCheck  = "check"
)

// What holds where a subscription's settings say nothing.
const (
	defaultRetention = 7 * 24 * time.Hour
	defaultReceives  = 5
)

// Redrive tells after how many deliveries Pub/Sub moves a message to which dead-letter topic
// (its full name), and how long the subscription keeps messages. Where the topic keeps them longer,
// it is that time. It needs pubsub.subscriptions.get, which roles/pubsub.viewer has and
// roles/pubsub.subscriber has not.
func (b *Broker) Redrive(ctx context.Context) (broker.RedrivePolicy, error) {
	s, err := b.ask(ctx, callPolicy)
	if err != nil {
		return broker.RedrivePolicy{}, err
	}
	maxReceives, target := policyOf(s)
	return broker.RedrivePolicy{MaxReceives: maxReceives, Target: target, Retention: retentionOf(s)}, nil
}

func policyOf(s *pubsubpb.Subscription) (maxReceives int, target string) {
	p := s.GetDeadLetterPolicy()
	if p.GetDeadLetterTopic() == "" {
		return 0, ""
	}
	if maxReceives = int(p.GetMaxDeliveryAttempts()); maxReceives == 0 {
		maxReceives = defaultReceives
	}
	return maxReceives, p.GetDeadLetterTopic()
}

func retentionOf(s *pubsubpb.Subscription) time.Duration {
	own := orElse(s.GetMessageRetentionDuration(), defaultRetention)
	return max(own, orElse(s.GetTopicMessageRetentionDuration(), 0))
}

func orElse(d *durationpb.Duration, none time.Duration) time.Duration {
	if d == nil || d.AsDuration() <= 0 {
		return none
	}
	return d.AsDuration()
}

func ackDeadlineOf(s *pubsubpb.Subscription) time.Duration {
	return max(minDeadline, time.Duration(s.GetAckDeadlineSeconds())*second)
}

// ask reads the subscription's settings.
func (b *Broker) ask(ctx context.Context, call string) (*pubsubpb.Subscription, error) {
	if err := b.check(call, 0); err != nil {
		return nil, err
	}
	bounded, cancel, err := b.begin(ctx, call)
	if err != nil {
		return nil, err
	}
	defer cancel()
	b.counts.others.Add(1)
	s, err := b.api.GetSubscription(bounded, &pubsubpb.GetSubscriptionRequest{Subscription: b.subscription})
	b.learn(s, err)
	if err != nil {
		return nil, b.failed(ctx, bounded, call, err)
	}
	return s, nil
}

// ackDeadline is what a Broker knows of its subscription's.
type ackDeadline struct {
	own    time.Duration // 0 = not known
	denied bool          // Pub/Sub does not tell it to us
	again  time.Time     // when a receive asks for it again
}

const (
	// asksEvery is how long a subscription's ack deadline is believed. It may be changed.
	asksEvery = 10 * time.Minute
	// asksAfter is when it is asked for again where there was no answer.
	asksAfter = time.Minute
)

// learn keeps the answer to a question for the subscription.
func (b *Broker) learn(s *pubsubpb.Subscription, err error) {
	known := ackDeadline{denied: isDenied(err), again: time.Now().Add(asksEvery)}
	switch {
	case err == nil:
		known.own = ackDeadlineOf(s)
	case !known.denied:
		known.again = time.Now().Add(asksAfter)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.known = known
}

// refresh asks for the ack deadline when it is time to. One of many pollers does, before its pull,
// so that no message waits for the answer. Without one, messages are extended after each pull.
func (b *Broker) refresh(ctx context.Context) {
	b.mu.Lock()
	now := time.Now()
	due := !now.Before(b.known.again)
	if due {
		b.known.again = now.Add(asksAfter)
	}
	b.mu.Unlock()
	if !due {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, firstTimeout)
	defer cancel()
	_, _ = b.ask(ctx, callReceive) // learn has the answer
}

// visibility is for how long messages are hidden when their receive does not say.
func (b *Broker) visibility(ctx context.Context) (time.Duration, error) {
	if b.o.Visibility > 0 {
		return b.o.Visibility, nil
	}
	b.mu.Lock()
	known := b.known
	b.mu.Unlock()
	switch {
	case known.own > 0:
		return known.own, nil
	case known.denied:
		return minDeadline, nil
	}
	s, err := b.ask(ctx, callReceive)
	switch {
	case err == nil:
		return ackDeadlineOf(s), nil
	case isDenied(err):
		return minDeadline, nil
	}
	return 0, err
}

// ownDeadline is the subscription's ack deadline; 0 where it is not known.
func (b *Broker) ownDeadline() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.known.own
}
