package gocloudpubsub_test

import (
	"context"
	"crypto/rand"
	"errors"
	"net"
	"testing"
	"time"

	raw "cloud.google.com/go/pubsub/apiv1"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"gocloud.dev/pubsub"
	"gocloud.dev/pubsub/gcppubsub"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	"github.com/onceq/onceq/adapters/gcppubsub/pubsubfake"
	"github.com/onceq/onceq/adapters/gocloudpubsub"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/broker/brokertest"
	"github.com/onceq/onceq/internal/must"
	"github.com/onceq/onceq/internal/proof"
	"github.com/onceq/onceq/internal/testserver/testgcp"
)

// google are gocloud's clients of a server, in a project of the test's own.
type google struct {
	publisher  *raw.PublisherClient
	subscriber *raw.SubscriberClient
	project    string
}

func dial(t testing.TB, address, project string, more ...grpc.DialOption) *google {
	t.Helper()
	conn, err := grpc.NewClient(address, append(more, grpc.WithTransportCredentials(insecure.NewCredentials()),
		// gRPC's own limit, 4 MB, is below that of Pub/Sub, and gocloud's Dial leaves it.
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(32<<20)))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	g := &google{project: "projects/" + project}
	if g.publisher, err = gcppubsub.PublisherClient(t.Context(), conn); err != nil {
		t.Fatal(err)
	}
	if g.subscriber, err = gcppubsub.SubscriberClient(t.Context(), conn); err != nil {
		t.Fatal(err)
	}
	return g
}

// TestConformancePubSub checks the Broker on gocloud's driver of Pub/Sub and our own server, in
// virtual time: each case has a server and clients of its own, with gRPC between them in memory.
func TestConformancePubSub(t *testing.T) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			h := onPubSub(k, inMemory)
			h.StaleReceiptsVoid, h.Slack = k.exact, 2*time.Second // gocloud asks again after a pause
			virtual(&h)
			brokertest.Run(t, h)
		})
	}
}

// inMemory is a server of the test's own, whose connections are no sockets: a bubble of virtual
// time sees who waits on them.
func inMemory(t testing.TB) *google {
	t.Helper()
	l, server := bufconn.Listen(64<<10), pubsubfake.New(nil)
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	t.Cleanup(func() {
		server.Close()
		if err := <-served; err != nil {
			t.Errorf("pubsubfake: %v", err)
		}
	})
	return dial(t, "passthrough:memory", "shop", grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
		return l.DialContext(ctx)
	}))
}

// TestConformancePubSubServer checks the Broker on Google's emulator.
func TestConformancePubSubServer(t *testing.T) {
	proof.Only(t, "gocloudpubsub: the contract's suite on Google's emulator")
	server := testgcp.NewPubSub(t)
	if server.Kind != "emulator" {
		t.Skip("the other tests are run on pubsubfake")
	}
	g := dial(t, server.Addr, server.Project(t))
	h := onPubSub(kinds[0], func(testing.TB) *google { return g })
	brokertest.Run(t, h)
}

// The suite asks a queue that is not there without a wait. Over gRPC, beside all of its other
// cases, gocloud has no answer so soon.
func TestMissingOnPubSub(t *testing.T) {
	_, address := pubsubfake.Start(t, nil)
	g := dial(t, address, "shop")
	b := brokerOnPubSub(t, g, g.project+"/topics/none", g.project+"/subscriptions/none", gocloudpubsub.Options{Visibility: 10 * time.Second})
	if _, err := b.Receive(t.Context(), broker.ReceiveOptions{Max: 1, Wait: -1}); !errors.Is(err, broker.ErrNotFound) {
		t.Errorf("Receive was answered: %v", err)
	}
	if _, err := b.Send(t.Context(), []broker.Outgoing{{Body: []byte("a")}}); !errors.Is(broker.ErrAt(err, 0), broker.ErrNotFound) {
		t.Errorf("Send was answered: %v", err)
	}
}

// kind is how a subscription was made.
type kind struct {
	name           string
	ordered, exact bool
}

var kinds = []kind{{name: "plain"}, {name: "exactly-once", exact: true}, {name: "ordered", ordered: true}}

func onPubSub(k kind, dial func(testing.TB) *google) brokertest.Harness {
	h := brokertest.Harness{
		Visibility: 10 * time.Second, Known: map[string]string{},
		Open: func(t testing.TB, o brokertest.QueueOptions) brokertest.Queue { return openPubSub(t, dial(t), k, o) },
	}
	return h
}

func openPubSub(t testing.TB, g *google, k kind, o brokertest.QueueOptions) brokertest.Queue {
	var q brokertest.Queue
	topic, deadTopic := g.makeTopic(t), ""
	if o.MaxReceives > 0 {
		deadTopic = g.makeTopic(t)
		dead := g.makeSubscription(t, deadTopic, nil)
		q.DeadLetters = brokerOnPubSub(t, g, deadTopic, dead, gocloudpubsub.Options{})
	}
	sub := g.makeSubscription(t, topic, func(s *pubsubpb.Subscription) {
		s.EnableMessageOrdering, s.EnableExactlyOnceDelivery = k.ordered, k.exact
		s.AckDeadlineSeconds = int32(o.Visibility / time.Second)
		if deadTopic != "" {
			s.DeadLetterPolicy = &pubsubpb.DeadLetterPolicy{DeadLetterTopic: deadTopic, MaxDeliveryAttempts: int32(o.MaxReceives)}
		}
	})
	b := brokerOnPubSub(t, g, topic, sub, gocloudpubsub.Options{Ordered: k.ordered, Attempts: o.MaxReceives > 0})
	q.Broker, q.Close = b, b.Close
	q.SendRaw = func(ctx context.Context, body []byte, as map[string]string) error {
		_, err := g.publisher.Publish(ctx, &pubsubpb.PublishRequest{Topic: topic, Messages: []*pubsubpb.PubsubMessage{{Data: body, Attributes: as}}})
		return err
	}
	return q
}

func brokerOnPubSub(t testing.TB, g *google, topic, sub string, o gocloudpubsub.Options) *gocloudpubsub.Broker {
	t.Helper()
	o.Queue = sub
	o.CallTimeout = time.Minute // 100 ordered messages go one by one, on a busy machine as well
	open := func(context.Context) (*pubsub.Subscription, error) {
		return gcppubsub.OpenSubscriptionByPath(g.subscriber, sub, &gcppubsub.SubscriptionOptions{ReceiveBatcherOptions: gocloudpubsub.NoPrefetch()})
	}
	o.Reopen = open
	s := must.Get(open(t.Context()))
	b := makeBroker(t, theirsTopic(t, g, topic), s, o)
	t.Cleanup(func() { empty(s) })
	return b
}

// empty takes what gocloud has received and nobody asked for: the goroutine that brought it waits
// until somebody does, for ever after a Shutdown.
func empty(s *pubsub.Subscription) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	for {
		if _, err := s.Receive(ctx); err != nil {
			return
		}
	}
}

func theirsTopic(t testing.TB, g *google, topic string) *pubsub.Topic {
	return must.Get(gcppubsub.OpenTopicByPath(g.publisher, topic, nil))
}

func (g *google) makeTopic(t testing.TB) string {
	t.Helper()
	topic, err := g.publisher.CreateTopic(t.Context(), &pubsubpb.Topic{Name: g.project + "/topics/t-" + rand.Text()})
	if err != nil {
		t.Fatal(err)
	}
	return topic.GetName()
}

func (g *google) makeSubscription(t testing.TB, topic string, set func(*pubsubpb.Subscription)) string {
	t.Helper()
	s := &pubsubpb.Subscription{Name: g.project + "/subscriptions/s-" + rand.Text(), Topic: topic, AckDeadlineSeconds: 10}
	if set != nil {
		set(s)
	}
	s, err := g.subscriber.CreateSubscription(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	return s.GetName()
}
