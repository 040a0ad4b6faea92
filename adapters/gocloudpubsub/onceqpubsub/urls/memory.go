package urls

import (
	"context"
	"errors"
	"net/url"
	"sync"

	"gocloud.dev/pubsub"

	"github.com/onceq/onceq/adapters/gocloudpubsub/onceqpubsub"
	"github.com/onceq/onceq/adapters/membroker"
)

// Memory opens queues in memory, for tests: a topic and a subscription with one name share a queue,
// which is made when it is first named, and lives as long as the Memory does. The fields must not
// change once it is registered.
type Memory struct {
	// Options are those of each queue. Their Name is the URL's.
	Options membroker.Options
	// TopicOptions and SubscriptionOptions hold where a URL says nothing else.
	TopicOptions        onceqpubsub.TopicOptions
	SubscriptionOptions onceqpubsub.SubscriptionOptions

	mu     sync.Mutex // guards queues
	queues map[string]*membroker.Broker
}

var _ opener = (*Memory)(nil)

// RegisterWith registers MemoryScheme. It panics where the mux has that already, as gocloud's does.
func (o *Memory) RegisterWith(mux *pubsub.URLMux) {
	mux.RegisterTopic(MemoryScheme, o)
	mux.RegisterSubscription(MemoryScheme, o)
}

// Queue is the queue of that name, for a Worker or a test.
func (o *Memory) Queue(name string) (*membroker.Broker, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if b := o.queues[name]; b != nil {
		return b, nil
	}
	options := o.Options
	options.Name = name
	b, err := membroker.New(&options)
	if err != nil {
		return nil, err
	}
	if o.queues == nil {
		o.queues = make(map[string]*membroker.Broker)
	}
	o.queues[name] = b
	return b, nil
}

// OpenTopicURL opens a queue to send to.
func (o *Memory) OpenTopicURL(_ context.Context, u *url.URL) (*pubsub.Topic, error) {
	q, t := read("open topic", u), o.TopicOptions
	b, err := o.open(q)
	if err != nil {
		return nil, err
	}
	topic, err := onceqpubsub.OpenTopic(b, &t)
	return topic, q.wrap(err)
}

// OpenSubscriptionURL opens a queue to receive from.
func (o *Memory) OpenSubscriptionURL(_ context.Context, u *url.URL) (*pubsub.Subscription, error) {
	q, s := read("open subscription", u), o.SubscriptionOptions
	q.subscription(&s)
	b, err := o.open(q)
	if err != nil {
		return nil, err
	}
	sub, err := onceqpubsub.OpenSubscription(b, &s)
	return sub, q.wrap(err)
}

func (o *Memory) open(q *query) (*membroker.Broker, error) {
	if err := q.end(); err != nil {
		return nil, err
	}
	name := q.url.Host + q.url.Path
	if name == "" {
		return nil, q.wrap(errors.New("want onceq+mem://NAME"))
	}
	b, err := o.Queue(name)
	return b, q.wrap(err)
}
