package urls

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"gocloud.dev/pubsub"

	"github.com/onceq/onceq/adapters/gcppubsub"
	"github.com/onceq/onceq/adapters/gocloudpubsub/onceqpubsub"
)

// PubSub opens topics and pull subscriptions of Google Cloud Pub/Sub. It must not change once it is
// registered.
type PubSub struct {
	// API makes the calls, mostly a [gcppubsub.Clients]. Required. Shutdown does not close it.
	API gcppubsub.API
	// Options are the driver's.
	Options gcppubsub.Options
	// TopicOptions and SubscriptionOptions hold where a URL says nothing else.
	TopicOptions        onceqpubsub.TopicOptions
	SubscriptionOptions onceqpubsub.SubscriptionOptions
}

var _ opener = (*PubSub)(nil)

// RegisterWith registers PubSubScheme. It panics where the mux has that already, as gocloud's does.
func (o *PubSub) RegisterWith(mux *pubsub.URLMux) {
	mux.RegisterTopic(PubSubScheme, o)
	mux.RegisterSubscription(PubSubScheme, o)
}

// OpenTopicURL opens a topic. It does no I/O.
func (o *PubSub) OpenTopicURL(_ context.Context, u *url.URL) (*pubsub.Topic, error) {
	q, t := read("open topic", u), o.TopicOptions
	b, err := o.named(q, "topics")
	if err != nil {
		return nil, err
	}
	t.Close = then(b.Close, t.Close)
	topic, err := onceqpubsub.OpenTopic(b, &t)
	return topic, q.wrap(err)
}

// OpenSubscriptionURL opens a pull subscription. It does no I/O.
func (o *PubSub) OpenSubscriptionURL(_ context.Context, u *url.URL) (*pubsub.Subscription, error) {
	q, s := read("open subscription", u), o.SubscriptionOptions
	q.subscription(&s)
	b, err := o.named(q, "subscriptions")
	if err != nil {
		return nil, err
	}
	s.Close = then(b.Close, s.Close)
	sub, err := onceqpubsub.OpenSubscription(b, &s)
	return sub, q.wrap(err)
}

func (o *PubSub) named(q *query, kind string) (*gcppubsub.Broker, error) {
	if err := q.end(); err != nil {
		return nil, err
	}
	name := q.url.Host + q.url.Path
	parts := strings.Split(name, "/")
	switch {
	case o.API == nil:
		return nil, q.wrap(errors.New("PubSub.API is nil"))
	case len(parts) != 4 || parts[0] != "projects" || parts[2] != kind:
		return nil, q.wrap(fmt.Errorf("want onceq+gcppubsub://projects/PROJECT/%s/NAME", kind))
	}
	topic, subscription := name, ""
	if kind == "subscriptions" {
		topic, subscription = "", name
	}
	b, err := gcppubsub.New(o.API, topic, subscription, &o.Options)
	return b, q.wrap(err)
}
