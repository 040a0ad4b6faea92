package watermill

import (
	"context"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/ThreeDotsLabs/watermill/pubsub/tests"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/onceq/onceq/adapters/awssqs"
	"github.com/onceq/onceq/adapters/gcppubsub"
	"github.com/onceq/onceq/adapters/watermillonceq"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/testserver/testaws"
	"github.com/onceq/onceq/internal/testserver/testgcp"
)

// Watermill's suite on LocalStack.
func TestSuiteSQSServer(t *testing.T) {
	t.Parallel()
	s := testaws.NewSQS(t)
	if s.Kind == "sqsfake" {
		t.Skip("the other tests are run on sqsfake")
	}
	client := s.Client(t)
	q := queues{make: func(topic string) (broker.Broker, error) {
		return awssqs.New(client, s.Queue(t, topic, nil), &awssqs.Options{ReceiveGrace: -1})
	}}
	t.Run("suite", func(t *testing.T) { // its tests are parallel, and the queues are theirs until all have ended
		// LocalStack goes on with a poll whose caller has gone; what that brings is hidden so long.
		o := watermillonceq.SubscriberOptions{Visibility: 10 * time.Second}
		run(t, tests.Features{ForceShort: true}, o, watermillonceq.PublisherOptions{}, q.open)
	})
}

// Watermill's suite on Google's emulator.
func TestSuitePubSubServer(t *testing.T) {
	t.Parallel()
	s := testgcp.NewPubSub(t)
	project := s.Project(t)
	c, err := gcppubsub.Dial(context.Background(), option.WithEndpoint(s.Addr), option.WithoutAuthentication(),
		option.WithGRPCDialOption(grpc.WithTransportCredentials(insecure.NewCredentials())))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	q := queues{make: func(topic string) (broker.Broker, error) {
		return pubSubTopic(context.Background(), dialled{c}, project, topic)
	}}
	t.Run("suite", func(t *testing.T) {
		run(t, tests.Features{ForceShort: true}, watermillonceq.SubscriberOptions{}, watermillonceq.PublisherOptions{}, q.open)
	})
}

// dialled makes topics and subscriptions with Google's clients.
type dialled struct{ *gcppubsub.Clients }

func (d dialled) CreateTopic(ctx context.Context, t *pubsubpb.Topic) (*pubsubpb.Topic, error) {
	return d.Topics.CreateTopic(ctx, t)
}

func (d dialled) CreateSubscription(ctx context.Context, s *pubsubpb.Subscription) (*pubsubpb.Subscription, error) {
	return d.Pulls.CreateSubscription(ctx, s)
}
