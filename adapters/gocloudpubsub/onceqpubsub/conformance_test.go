package onceqpubsub_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/googleapis/gax-go/v2"
	"gocloud.dev/pubsub"
	"gocloud.dev/pubsub/driver"
	"gocloud.dev/pubsub/drivertest"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/onceq/onceq/adapters/awssqs"
	"github.com/onceq/onceq/adapters/gcppubsub"
	"github.com/onceq/onceq/adapters/gcppubsub/pubsubfake"
	"github.com/onceq/onceq/adapters/gocloudpubsub/onceqpubsub"
	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/must"
	"github.com/onceq/onceq/internal/testserver/testaws"
	"github.com/onceq/onceq/internal/testserver/testgcp"
	"github.com/onceq/onceq/sqsfake"
)

// This file runs gocloud's own conformance suite on OpenTopic and OpenSubscription. A driverWorld
// is a service with its ways to make a queue. The tests beside it take clients from here, too. Each
// test has worlds of its own, so nothing is locked.

// driverWorld is a service.
type driverWorld struct {
	// queue makes a queue; missing gives one that is not there.
	queue, missing func(ctx context.Context) (broker.Broker, error)
	// again makes another subscription of a queue's messages; nil = there is one alone.
	again func(ctx context.Context, b broker.Broker) (broker.Receiver, error)
	peer  bool
}

func TestConformance(t *testing.T) {
	for name, open := range map[string]func(testing.TB) *driverWorld{
		"memory": driverOnMemory, "memory with sqs's limits": driverOnMemoryAsSQS,
		"sqs": driverOnSQS, "sqs as gocloud's awssnssqs": driverOnSQSAsGoCloud, "pubsub": driverOnPubSub,
	} {
		t.Run(name, func(t *testing.T) { runDriverTests(t, open) })
	}
}

// TestDriverConformanceServer is the same on LocalStack and on Google's emulator, in real time.
func TestConformanceServer(t *testing.T) {
	t.Parallel()
	t.Run("sqs", func(t *testing.T) {
		t.Parallel()
		server := testaws.NewSQS(t)
		if server.Kind == "sqsfake" {
			t.Skip("the other tests are run on sqsfake")
		}
		runDriverTests(t, func(t testing.TB) *driverWorld { return driverWithSQS(t, server.Client(t)) })
	})
	t.Run("pubsub", func(t *testing.T) {
		t.Parallel()
		server := testgcp.NewPubSub(t)
		conn := must.Get(grpc.NewClient(server.Addr, grpc.WithTransportCredentials(insecure.NewCredentials())))
		t.Cleanup(func() { conn.Close() })
		api := must.Get(gcppubsub.Dial(t.Context(), option.WithGRPCConn(conn)))
		runDriverTests(t, func(t testing.TB) *driverWorld {
			return driverWithPubSub("projects/"+server.Project(t), api, api.Topics.CreateTopic, api.Pulls.CreateSubscription)
		})
	})
}

func runDriverTests(t *testing.T, open func(testing.TB) *driverWorld) {
	t.Helper()
	drivertest.RunConformanceTests(t, func(_ context.Context, t *testing.T) (drivertest.Harness, error) {
		return &driverHarness{driverWorld: open(t), brokers: map[driver.Topic]broker.Broker{}}, nil
	}, []drivertest.AsTest{asBroker{}})
}

// driverHarness is a world as gocloud's suite wants it.
type driverHarness struct {
	*driverWorld
	brokers map[driver.Topic]broker.Broker
}

func (h *driverHarness) CreateTopic(ctx context.Context, _ string) (driver.Topic, func(), error) {
	b, err := h.queue(ctx)
	if err != nil {
		return nil, nil, err
	}
	t, err := onceqpubsub.TopicDriver(b, &onceqpubsub.TopicOptions{GoCloudSQS: h.peer})
	h.brokers[t] = b
	return t, func() {}, err
}

func (h *driverHarness) MakeNonexistentTopic(ctx context.Context) (driver.Topic, error) {
	b, err := h.missing(ctx)
	if err != nil {
		return nil, err
	}
	return onceqpubsub.TopicDriver(b, nil)
}

func (h *driverHarness) CreateSubscription(ctx context.Context, t driver.Topic, _ string) (driver.Subscription, func(), error) {
	var r broker.Receiver = h.brokers[t]
	if h.again != nil {
		var err error
		if r, err = h.again(ctx, h.brokers[t]); err != nil {
			return nil, nil, err
		}
	}
	s, err := onceqpubsub.SubscriptionDriver(r, h.subscription())
	return s, func() {}, err
}

func (h *driverHarness) MakeNonexistentSubscription(ctx context.Context) (driver.Subscription, func(), error) {
	b, err := h.missing(ctx)
	if err != nil {
		return nil, nil, err
	}
	s, err := onceqpubsub.SubscriptionDriver(b, h.subscription())
	return s, func() {}, err
}

func (h *driverHarness) subscription() *onceqpubsub.SubscriptionOptions {
	return &onceqpubsub.SubscriptionOptions{GoCloudSQS: h.peer, Logger: slog.New(slog.NewTextHandler(io.Discard, nil))}
}

func (h *driverHarness) Close()                              {}
func (h *driverHarness) MaxBatchSizes() (int, int)           { return 10, 10 }
func (h *driverHarness) SupportsMultipleSubscriptions() bool { return h.again != nil }

// asBroker checks what As gives.
type asBroker struct{}

func (asBroker) Name() string { return "our own types" }

func (asBroker) TopicCheck(t *pubsub.Topic) error {
	var s broker.Sender
	var other *membroker.Options
	if !t.As(&s) || s == nil {
		return errors.New("no Sender")
	}
	if t.As(&other) {
		return errors.New("As gave a type that it does not have")
	}
	return nil
}

func (asBroker) SubscriptionCheck(s *pubsub.Subscription) error {
	var r broker.Receiver
	if !s.As(&r) || r == nil {
		return errors.New("no Receiver")
	}
	return nil
}

func (asBroker) TopicErrorCheck(t *pubsub.Topic, err error) error {
	var batch *broker.BatchError
	if !t.ErrorAs(err, &batch) || !errors.Is(batch, broker.ErrNotFound) {
		return fmt.Errorf("no BatchError in %w", err)
	}
	return nil
}

func (asBroker) SubscriptionErrorCheck(s *pubsub.Subscription, err error) error {
	var text string
	if !errors.Is(err, broker.ErrNotFound) || s.ErrorAs(err, &text) {
		return fmt.Errorf("got %w", err)
	}
	return nil
}

func (asBroker) MessageCheck(m *pubsub.Message) error {
	var ours *broker.Message
	if !m.As(&ours) || ours.Meta == nil || ours.Meta.Key != "from BeforeSend" || ours.Meta.ID == "" {
		return fmt.Errorf("got %+v", ours)
	}
	return nil
}

func (asBroker) BeforeSend(as func(any) bool) error {
	var o *broker.Outgoing
	if !as(&o) {
		return errors.New("no Outgoing")
	}
	o.Meta.Key = "from BeforeSend"
	return nil
}

func (asBroker) AfterSend(as func(any) bool) error {
	var o *broker.Outgoing
	if !as(&o) || o.Meta.ID == "" {
		return errors.New("no Outgoing with an id")
	}
	return nil
}

func driverOnMemory(testing.TB) *driverWorld { return driverWithMemory(membroker.Memory) }

func driverOnMemoryAsSQS(testing.TB) *driverWorld { return driverWithMemory(membroker.SQSStandard) }

func driverWithMemory(p membroker.Preset) *driverWorld {
	return &driverWorld{
		queue:   func(context.Context) (broker.Broker, error) { return membroker.New(&membroker.Options{Preset: p}) },
		missing: func(context.Context) (broker.Broker, error) { return missingBroker{}, nil },
	}
}

// missingBroker is a queue that is not there.
type missingBroker struct{ broker.Broker }

func (missingBroker) Limits() broker.Limits {
	return broker.Limits{ReceiveBatch: 1, SettleBatch: 1, SendBatch: 1, Extends: true}
}

func (missingBroker) Receive(context.Context, broker.ReceiveOptions) ([]*broker.Message, error) {
	return nil, broker.ErrNotFound
}

func (missingBroker) Send(context.Context, []broker.Outgoing) ([]string, error) {
	return nil, broker.ErrNotFound
}

func driverOnSQS(t testing.TB) *driverWorld {
	s := sqsfake.New(&sqsfake.Options{StrandCancelled: true})
	t.Cleanup(s.Close)
	return driverWithSQS(t, testaws.FakeClient(s))
}

func driverOnSQSAsGoCloud(t testing.TB) *driverWorld {
	w := driverOnSQS(t)
	w.peer = true
	return w
}

func driverWithSQS(t testing.TB, c *sqs.Client) *driverWorld {
	open := func(ctx context.Context) (*awssqs.Broker, error) {
		name := "q-" + strings.ToLower(rand.Text())
		out, err := c.CreateQueue(ctx, &sqs.CreateQueueInput{QueueName: &name})
		if err != nil {
			return nil, err
		}
		t.Cleanup(func() { c.DeleteQueue(context.Background(), &sqs.DeleteQueueInput{QueueUrl: out.QueueUrl}) })
		return awssqs.New(c, *out.QueueUrl, nil)
	}
	return &driverWorld{
		queue: func(ctx context.Context) (broker.Broker, error) { return open(ctx) },
		missing: func(ctx context.Context) (broker.Broker, error) {
			b, err := open(ctx)
			if err != nil {
				return nil, err
			}
			_, err = c.DeleteQueue(ctx, &sqs.DeleteQueueInput{QueueUrl: new(b.URL())})
			return b, err
		},
	}
}

func driverOnPubSub(t testing.TB) *driverWorld {
	s := pubsubfake.New(&pubsubfake.Options{StrandCancelled: true})
	t.Cleanup(s.Close)
	return driverWithPubSub("projects/onceq-test", s, func(ctx context.Context, in *pubsubpb.Topic, _ ...gax.CallOption) (*pubsubpb.Topic, error) {
		return s.CreateTopic(ctx, in)
	}, func(ctx context.Context, in *pubsubpb.Subscription, _ ...gax.CallOption) (*pubsubpb.Subscription, error) {
		return s.CreateSubscription(ctx, in)
	})
}

func driverWithPubSub(project string, api gcppubsub.API, makeTopic func(context.Context, *pubsubpb.Topic, ...gax.CallOption) (*pubsubpb.Topic, error),
	makeSubscription func(context.Context, *pubsubpb.Subscription, ...gax.CallOption) (*pubsubpb.Subscription, error),
) *driverWorld {
	subscribe := func(ctx context.Context, topic string) (*gcppubsub.Broker, error) {
		out, err := makeSubscription(ctx, &pubsubpb.Subscription{
			Name: project + "/subscriptions/s-" + strings.ToLower(rand.Text()), Topic: topic, AckDeadlineSeconds: 10,
		})
		if err != nil {
			return nil, err
		}
		return gcppubsub.New(api, topic, out.GetName(), &gcppubsub.Options{LongPoll: time.Second})
	}
	return &driverWorld{
		queue: func(ctx context.Context) (broker.Broker, error) {
			out, err := makeTopic(ctx, &pubsubpb.Topic{Name: project + "/topics/t-" + strings.ToLower(rand.Text())})
			if err != nil {
				return nil, err
			}
			return gcppubsub.New(api, out.GetName(), "", nil)
		},
		missing: func(context.Context) (broker.Broker, error) {
			return gcppubsub.New(api, project+"/topics/gone", project+"/subscriptions/gone", nil)
		},
		again: func(ctx context.Context, b broker.Broker) (broker.Receiver, error) {
			return subscribe(ctx, b.(*gcppubsub.Broker).Topic())
		},
	}
}
