package main

import (
	"cmp"
	"context"
	"net"
	"time"

	pubsub "cloud.google.com/go/pubsub/v2/apiv1"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/onceq/onceq/adapters/gcppubsub"
	"github.com/onceq/onceq/adapters/gcppubsub/pubsubfake"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/examples/internal/shop"
)

const project = "projects/demo/"

// pubsubService is Google Pub/Sub.
type pubsubService struct {
	server  *pubsubfake.Server
	address string
}

// servePubSub runs a Pub/Sub server in this process, on a free port, until ctx ends. It goes on
// with a pull whose caller was killed, as Pub/Sub may do.
func servePubSub(ctx context.Context) (service, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := pubsubfake.New(&pubsubfake.Options{StrandCancelled: true})
	go func() { _ = s.Serve(l) }()
	context.AfterFunc(ctx, s.Close)
	return pubsubService{s, l.Addr().String()}, nil
}

func (s pubsubService) name() string { return "Pub/Sub at " + s.address }

// make makes a topic with its subscription, and the same for dead letters. Without the library the
// subscription itself moves what comes too often.
func (s pubsubService) make(ctx context.Context, o *shop.Settings) (place, error) {
	p := place{Service: "pubsub", Endpoint: s.address, Queue: queueName, Dead: queueName + "-dead"}
	for _, name := range []string{p.Dead, p.Queue} {
		topic, err := s.server.CreateTopic(ctx, &pubsubpb.Topic{Name: project + "topics/" + name})
		if err != nil {
			return place{}, err
		}
		sub := &pubsubpb.Subscription{
			Name: project + "subscriptions/" + name, Topic: topic.Name, AckDeadlineSeconds: int32(o.Visibility / time.Second),
			RetryPolicy: &pubsubpb.RetryPolicy{MinimumBackoff: durationpb.New(0), MaximumBackoff: durationpb.New(0)},
		}
		if o.Naive && name == p.Queue {
			sub.DeadLetterPolicy = &pubsubpb.DeadLetterPolicy{
				DeadLetterTopic: project + "topics/" + p.Dead, MaxDeliveryAttempts: shop.NaiveReceives,
			}
		}
		if _, err := s.server.CreateSubscription(ctx, sub); err != nil {
			return place{}, err
		}
	}
	return p, nil
}

func (s pubsubService) queues(ctx context.Context, p place, t till) (queue, dead counted, err error) {
	q, d, err := openPubSub(ctx, p, t)
	return countedPubSub{q, s, p.Queue}, countedPubSub{d, s, p.Dead}, err
}

// received is how many messages the server gave away from the queue.
func (s pubsubService) received() (n int) {
	for _, times := range s.server.Deliveries(project + "subscriptions/" + queueName) {
		n += times
	}
	return n
}

// countedPubSub is a queue whose server is asked for what Pub/Sub itself tells by Cloud Monitoring
// alone, some minutes late.
type countedPubSub struct {
	broker.Broker
	s    pubsubService
	name string
}

func (q countedPubSub) Depth(context.Context) (broker.Depth, error) {
	n := q.s.server.Stats(project + "subscriptions/" + q.name)
	return broker.Depth{Visible: int64(n.Ready + n.Blocked), InFlight: int64(n.Held), Delayed: int64(n.Delayed)}, nil
}

func (q countedPubSub) Unwrap() any { return q.Broker }

// local speaks to the server, which wants no credentials.
func local(endpoint string) []option.ClientOption {
	return []option.ClientOption{
		option.WithEndpoint(endpoint), option.WithoutAuthentication(),
		option.WithGRPCDialOption(grpc.WithTransportCredentials(insecure.NewCredentials())),
	}
}

// openPubSub opens both queues. Their polls are short, so that nobody waits long for a worker that
// drains.
func openPubSub(ctx context.Context, p place, _ till) (queue, dead broker.Broker, err error) {
	api, err := gcppubsub.Dial(ctx, local(p.Endpoint)...)
	if err != nil {
		return nil, nil, err
	}
	open := func(name string) (broker.Broker, error) {
		return gcppubsub.New(api, project+"topics/"+name, project+"subscriptions/"+name, &gcppubsub.Options{LongPoll: time.Second})
	}
	queue, errQueue := open(p.Queue)
	dead, errDead := open(p.Dead)
	return queue, dead, cmp.Or(errQueue, errDead)
}

// naivePubSub receives one message.
func naivePubSub(ctx context.Context, p place, _ time.Duration) (receive, error) {
	api, err := pubsub.NewSubscriptionAdminClient(ctx, local(p.Endpoint)...)
	if err != nil {
		return nil, err
	}
	name := project + "subscriptions/" + p.Queue
	return func(ctx context.Context, charge func(body []byte) error) (deleted int, err error) {
		one, cancel := context.WithTimeout(ctx, 2*time.Second)
		got, err := api.Pull(one, &pubsubpb.PullRequest{Subscription: name, MaxMessages: 1})
		cancel()
		for _, m := range got.GetReceivedMessages() {
			if charge(m.Message.Data) != nil {
				continue // it comes back when its ack deadline is over
			}
			_ = api.Acknowledge(ctx, &pubsubpb.AcknowledgeRequest{Subscription: name, AckIds: []string{m.AckId}})
			deleted++
		}
		return deleted, err
	}, nil
}
