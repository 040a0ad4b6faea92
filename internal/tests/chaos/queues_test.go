//go:build unix

package chaos

import (
	"context"
	"os"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/onceq/onceq/adapters/awssqs"
	"github.com/onceq/onceq/adapters/gcppubsub"
	"github.com/onceq/onceq/adapters/gcppubsub/pubsubfake"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/must"
	"github.com/onceq/onceq/sqsfake"
)

// place tells a worker process where the queues are.
type place struct {
	Service     service
	Address     string // the server
	Queue, Dead string
}

// service is what the queues are on. Both servers go on with a poll whose caller was killed, and
// draw what the services leave to chance.
type service string

const (
	onSQS    service = "sqs"
	onPubSub service = "pubsub"
)

// visibility is how long a delivery holds without a beat: the shortest that the service knows.
func (s service) visibility() time.Duration {
	if s == onPubSub {
		return 10 * time.Second
	}
	return hold
}

const (
	topics        = "projects/chaos/topics/"
	subscriptions = "projects/chaos/subscriptions/"
)

// serve starts a server with both queues, and answers what tells how many messages they have.
func (s service) serve(t *testing.T, seed uint64) (p place, depth, letterDepth func(context.Context) (broker.Depth, error)) {
	t.Helper()
	p = place{Service: s, Queue: "orders", Dead: "orders-dead"}
	if s == onSQS {
		server := sqsfake.Start(t, &sqsfake.Options{StrandCancelled: true, Seed: seed})
		p.Address = server.URL
		for _, name := range []*string{&p.Queue, &p.Dead} {
			url, err := server.CreateQueue(*name, nil)
			if err != nil {
				t.Fatal(err)
			}
			*name = url
		}
		queue := must.Get(openSQS(server.URL, p.Queue))
		dead := must.Get(openSQS(server.URL, p.Dead))
		return p, queue.Depth, dead.Depth
	}
	server, address := pubsubfake.Start(t, &pubsubfake.Options{StrandCancelled: true, Seed: seed})
	p.Address = address
	for _, name := range []string{p.Queue, p.Dead} {
		if _, err := server.CreateTopic(t.Context(), &pubsubpb.Topic{Name: topics + name}); err != nil {
			t.Fatal(err)
		}
		if _, err := server.CreateSubscription(t.Context(), &pubsubpb.Subscription{
			Name: subscriptions + name, Topic: topics + name, AckDeadlineSeconds: int32(s.visibility() / time.Second),
		}); err != nil {
			t.Fatal(err)
		}
	}
	of := func(name string) func(context.Context) (broker.Depth, error) {
		return func(context.Context) (broker.Depth, error) {
			n := server.Stats(subscriptions + name)
			return broker.Depth{Visible: int64(n.Ready), InFlight: int64(n.Held), Delayed: int64(n.Delayed)}, nil
		}
	}
	return p, of(p.Queue), of(p.Dead)
}

// open gives a process its ends of both queues.
func (p place) open(ctx context.Context) (queue, dead broker.Broker, err error) {
	if p.Service == onSQS {
		if queue, err = openSQS(p.Address, p.Queue); err != nil {
			return nil, nil, err
		}
		dead, err = openSQS(p.Address, p.Dead)
		return queue, dead, err
	}
	api, err := gcppubsub.Dial(ctx, option.WithEndpoint(p.Address), option.WithoutAuthentication(),
		option.WithGRPCDialOption(grpc.WithTransportCredentials(insecure.NewCredentials())))
	if err != nil {
		return nil, nil, err
	}
	open := func(name string) (broker.Broker, error) {
		return gcppubsub.New(api, topics+name, subscriptions+name, &gcppubsub.Options{LongPoll: time.Second})
	}
	if queue, err = open(p.Queue); err != nil {
		return nil, nil, err
	}
	dead, err = open(p.Dead)
	return queue, dead, err
}

func openSQS(endpoint, url string) (*awssqs.Broker, error) {
	o := &awssqs.Options{LongPoll: time.Second}
	if os.Getpid()%2 == 0 { // each transport serves about half of the processes
		o.Transport = awssqs.TransportLean
	}
	return awssqs.New(sqsClient(endpoint), url, o)
}
