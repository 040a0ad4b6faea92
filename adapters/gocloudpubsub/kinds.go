package gocloudpubsub

import (
	"errors"

	raw "cloud.google.com/go/pubsub/apiv1"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"gocloud.dev/pubsub"
)

// kind is a driver that the Broker knows.
type kind int

const (
	anyDriver kind = iota
	onSQS
	onPubSub
)

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
