package gocloudpubsub

import (
	"context"
	"errors"
	"time"

	raw "cloud.google.com/go/pubsub/apiv1"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"gocloud.dev/pubsub"

	"github.com/onceq/onceq/broker"
)

// service settles and extends past gocloud. Its calls answer by position.
type service struct {
	// hold hides each delivery for its time. Where nacks is set, 0 shows it at once.
	hold  func(ctx context.Context, ds []*delivery, times []time.Duration) error
	nacks bool
	// ack ends the deliveries; nil = gocloud does it.
	ack func(ctx context.Context, ds []*delivery) error
	// visibility is the queue's own timeout; nil = the Options have it.
	visibility func(ctx context.Context) (time.Duration, error)
}

// newService is nil where gocloud alone settles.
func newService(s *pubsub.Subscription, o *Options) (*service, error) {
	switch {
	case s == nil:
		return nil, nil
	case o.Extender != nil:
		return &service{hold: o.Extender.extendEach}, nil
	case o.Queue == "":
		return nil, nil
	}
	var q *sqs.Client
	if s.As(&q) {
		return newSQS(q, o.Queue)
	}
	var p *raw.SubscriberClient
	if s.As(&p) {
		return newPubSub(p, o.Queue)
	}
	return nil, errors.New("gocloudpubsub: Options.Queue: the subscription is not of awssnssqs or of gcppubsub")
}

func kindOfTopic(t *pubsub.Topic) kind {
	var q *sqs.Client
	var p *raw.PublisherClient
	switch {
	case t == nil:
		return anyDriver
	case t.As(&q):
		return onSQS
	case t.As(&p):
		return onPubSub
	}
	return anyDriver
}

func kindOfSubscription(s *pubsub.Subscription) kind {
	var q *sqs.Client
	var p *raw.SubscriberClient
	switch {
	case s == nil:
		return anyDriver
	case s.As(&q):
		return onSQS
	case s.As(&p):
		return onPubSub
	}
	return anyDriver
}

// extendEach makes a call for each different time.
func (x *Extender) extendEach(ctx context.Context, ds []*delivery, times []time.Duration) error {
	return byTime(times, func(d time.Duration, at []int) error {
		ms := make([]*pubsub.Message, len(at))
		for n, i := range at {
			ms[n] = ds[i].m
		}
		return x.Extend(ctx, ms, d)
	})
}

// byTime calls do for the entries of each time.
func byTime(times []time.Duration, do func(d time.Duration, at []int) error) error {
	var order []time.Duration
	at := make(map[time.Duration][]int)
	for i, d := range times {
		if at[d] == nil {
			order = append(order, d)
		}
		at[d] = append(at[d], i)
	}
	errs := make([]error, len(times))
	for _, d := range order {
		err := do(d, at[d])
		for n, i := range at[d] {
			errs[i] = broker.ErrAt(err, n)
		}
	}
	return broker.Batch(errs)
}

func receivedOf(m *pubsub.Message) *pubsubpb.ReceivedMessage {
	var r *pubsubpb.ReceivedMessage
	if !m.As(&r) {
		return nil
	}
	return r
}

// seconds rounds up: what a service is asked for is never shorter than what was promised.
func seconds(d time.Duration) int32 { return int32((d + time.Second - 1) / time.Second) }
