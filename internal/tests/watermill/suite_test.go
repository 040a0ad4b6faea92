package watermill

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/tests"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/onceq/onceq/adapters/awssqs"
	"github.com/onceq/onceq/adapters/gcppubsub"
	"github.com/onceq/onceq/adapters/gcppubsub/pubsubfake"
	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/adapters/watermillonceq"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/must"
	"github.com/onceq/onceq/internal/proof"
	"github.com/onceq/onceq/internal/testserver"
	"github.com/onceq/onceq/internal/testserver/testaws"
	"github.com/onceq/onceq/sqsfake"
)

// Watermill's own suite, on each of onceq's brokers. What is claimed of order holds for one
// subscriber that takes one message at a time, and for a group of a FIFO queue.

// queues are brokers that stay while publishers and subscribers come and go, as servers do.
type queues struct {
	mu   sync.Mutex
	of   map[string]broker.Broker
	make func(topic string) (broker.Broker, error)
}

func (q *queues) open(topic string) (broker.Broker, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if b := q.of[topic]; b != nil {
		return b, nil
	}
	b, err := q.make(topic)
	if err != nil {
		return nil, err
	}
	if q.of == nil {
		q.of = make(map[string]broker.Broker)
	}
	q.of[topic] = b
	return b, nil
}

// run is the suite. Its last message of TestMessageCtx is never acked, so closing is not patient.
func run(t *testing.T, f tests.Features, o watermillonceq.SubscriberOptions, p watermillonceq.PublisherOptions, open watermillonceq.Open) {
	o.CloseTimeout = 2 * time.Second
	o.Backoff = func(int) time.Duration { return 0 }
	f.Persistent = true
	tests.TestPubSub(t, f, func(t *testing.T) (message.Publisher, message.Subscriber) {
		pub := must.Get(watermillonceq.NewPublisher(open, &p))
		sub := must.Get(watermillonceq.NewSubscriber(open, &o))
		return pub, sub
	}, nil)
}

// short reports whether the suite plays hundreds of messages instead of thousands. In memory it
// never does.
func short(t *testing.T) bool {
	t.Helper()
	if proof.Asked() {
		return false
	}
	proof.Leave(t, "watermillonceq: the long form of Watermill's suite on sqsfake")
	return true
}

// TestMain lets more tests wait at a time than there are processors: the suites wait for timeouts.
func TestMain(m *testing.M) {
	if err := testserver.Together(8); err != nil {
		panic(err)
	}
	m.Run()
}

func TestSuiteMemory(t *testing.T) {
	t.Parallel()
	q := queues{make: func(topic string) (broker.Broker, error) { return membroker.New(&membroker.Options{Name: topic}) }}
	run(t, tests.Features{}, watermillonceq.SubscriberOptions{}, watermillonceq.PublisherOptions{}, q.open)
}

func TestSuiteMemoryOneByOne(t *testing.T) {
	t.Parallel()
	q := queues{make: func(topic string) (broker.Broker, error) { return membroker.New(&membroker.Options{Name: topic}) }}
	f := tests.Features{GuaranteedOrder: true, GuaranteedOrderWithSingleSubscriber: true}
	run(t, f, watermillonceq.SubscriberOptions{Concurrency: 1}, watermillonceq.PublisherOptions{}, q.open)
}

func TestSuiteSQS(t *testing.T) {
	t.Parallel()
	s := sqsfake.Start(t, nil)
	client := sqsClient(s)
	q := queues{make: func(topic string) (broker.Broker, error) {
		url, err := s.CreateQueue(topic, nil)
		if err != nil {
			return nil, err
		}
		return awssqs.New(client, url, &awssqs.Options{ReceiveGrace: -1})
	}}
	run(t, tests.Features{ForceShort: short(t)}, watermillonceq.SubscriberOptions{}, watermillonceq.PublisherOptions{}, q.open)
}

// A FIFO queue has an order for each group, whoever receives, and however many at once.
func TestSuiteFIFO(t *testing.T) {
	t.Parallel()
	s := sqsfake.Start(t, nil)
	client := sqsClient(s)
	q := queues{make: func(topic string) (broker.Broker, error) {
		url, err := s.CreateQueue(topic+".fifo", map[string]string{"FifoQueue": "true"})
		if err != nil {
			return nil, err
		}
		return awssqs.New(client, url, &awssqs.Options{ReceiveGrace: -1})
	}}
	one := watermillonceq.PublisherOptions{Prepare: func(_ string, _ *message.Message, out *broker.Outgoing) error {
		out.Group = "g"
		return nil
	}}
	f := tests.Features{
		ForceShort:        short(t),
		GuaranteedOrder:   true,
		GenerateTopicFunc: func(c tests.TestContext) string { return "topic-" + strings.ReplaceAll(string(c.TestID), "-", "") },
	}
	run(t, f, watermillonceq.SubscriberOptions{}, one, q.open)
}

func sqsClient(s *sqsfake.Server) *sqs.Client {
	return testaws.FakeClient(s)
}

func TestSuitePubSub(t *testing.T) {
	t.Parallel()
	s := pubsubfake.New(nil)
	t.Cleanup(s.Close)
	q := queues{make: func(topic string) (broker.Broker, error) { return pubSubTopic(context.Background(), s, "acme", topic) }}
	// A Close waits for the pull in flight, a second here, and the long form has 50 in a row.
	run(t, tests.Features{ForceShort: true}, watermillonceq.SubscriberOptions{}, watermillonceq.PublisherOptions{}, q.open)
}

// pubSubAPI is the part of a client that makes a topic with a subscription.
type pubSubAPI interface {
	gcppubsub.API
	CreateTopic(context.Context, *pubsubpb.Topic) (*pubsubpb.Topic, error)
	CreateSubscription(context.Context, *pubsubpb.Subscription) (*pubsubpb.Subscription, error)
}

func pubSubTopic(ctx context.Context, api pubSubAPI, project, name string) (broker.Broker, error) {
	topic, sub := "projects/"+project+"/topics/"+name, "projects/"+project+"/subscriptions/"+name
	if _, err := api.CreateTopic(ctx, &pubsubpb.Topic{Name: topic}); err != nil {
		return nil, err
	}
	_, err := api.CreateSubscription(ctx, &pubsubpb.Subscription{
		Name: sub, Topic: topic, AckDeadlineSeconds: 60, ExpirationPolicy: &pubsubpb.ExpirationPolicy{}, // never
	})
	if err != nil {
		return nil, err
	}
	return gcppubsub.New(api, topic, sub, &gcppubsub.Options{LongPoll: time.Second})
}
