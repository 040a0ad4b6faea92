package urls

import (
	"context"
	"errors"
	"net/url"

	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"gocloud.dev/pubsub"

	"github.com/onceq/onceq/adapters/awssqs"
	"github.com/onceq/onceq/adapters/gocloudpubsub/onceqpubsub"
)

// SQS opens queues of Amazon SQS. It must not change once it is registered.
type SQS struct {
	// Client makes the calls. Required.
	Client *sqs.Client
	// Options are the driver's.
	Options awssqs.Options
	// TopicOptions and SubscriptionOptions hold where a URL says nothing else.
	TopicOptions        onceqpubsub.TopicOptions
	SubscriptionOptions onceqpubsub.SubscriptionOptions
}

var _ opener = (*SQS)(nil)

// RegisterWith registers SQSScheme. It panics where the mux has that already, as gocloud's does.
func (o *SQS) RegisterWith(mux *pubsub.URLMux) {
	mux.RegisterTopic(SQSScheme, o)
	mux.RegisterSubscription(SQSScheme, o)
}

// OpenTopicURL opens a queue to send to. It does no I/O.
func (o *SQS) OpenTopicURL(_ context.Context, u *url.URL) (*pubsub.Topic, error) {
	q, t := read("open topic", u), o.TopicOptions
	q.flag("gocloudsqs", &t.GoCloudSQS)
	b, err := o.queue(q)
	if err != nil {
		return nil, err
	}
	t.Close = then(b.Close, t.Close)
	topic, err := onceqpubsub.OpenTopic(b, &t)
	return topic, q.wrap(err)
}

// OpenSubscriptionURL opens a queue to receive from. It does no I/O.
func (o *SQS) OpenSubscriptionURL(_ context.Context, u *url.URL) (*pubsub.Subscription, error) {
	q, s := read("open subscription", u), o.SubscriptionOptions
	q.subscription(&s)
	q.flag("gocloudsqs", &s.GoCloudSQS)
	b, err := o.queue(q)
	if err != nil {
		return nil, err
	}
	s.Close = then(b.Close, s.Close)
	sub, err := onceqpubsub.OpenSubscription(b, &s)
	return sub, q.wrap(err)
}

func (o *SQS) queue(q *query) (*awssqs.Broker, error) {
	at := url.URL{Scheme: "https", Host: q.url.Host, Path: q.url.Path, RawPath: q.url.RawPath}
	insecure := false
	if q.flag("insecure", &insecure); insecure {
		at.Scheme = "http"
	}
	if err := q.end(); err != nil {
		return nil, err
	}
	switch {
	case o.Client == nil:
		return nil, q.wrap(errors.New("SQS.Client is nil"))
	case at.Host == "" || len(at.Path) < 2:
		return nil, q.wrap(errors.New("want onceq+sqs://HOST/ACCOUNT/NAME, the queue's own URL with another scheme"))
	}
	b, err := awssqs.New(o.Client, at.String(), &o.Options)
	return b, q.wrap(err)
}
