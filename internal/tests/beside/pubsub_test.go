package beside

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/stretchr/testify/require"
	gocloud "gocloud.dev/pubsub"
	peer "gocloud.dev/pubsub/gcppubsub"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/gcppubsub"
	"github.com/onceq/onceq/adapters/gcppubsub/pubsubfake"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/memstore"
)

const (
	topic        = "projects/shop/topics/orders"
	subscription = "projects/shop/subscriptions/orders"
	// orderName is the attribute that names an order, whoever has sent it.
	orderName = "order"
	orderings = 300
)

// effects counts what has happened to each order, and by whom.
type effects struct {
	mu  sync.Mutex
	of  map[string]int
	who map[string]int
}

func (e *effects) happen(order, who string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.of[order]++
	e.who[who]++
}

// Three publishers send each order: onceq, Google's own client and gocloud. Three receivers take
// from one subscription: a Worker, and the loops of both others, whose handlers are one call of Do
// each. The server says yes to an ack and forgets it now and then, loses replies, and delivers some
// messages twice. Each order has one effect.
func TestBesideOthersOnPubSub(t *testing.T) {
	server, address := pubsubfake.Start(t, nil)
	_, err := server.CreateTopic(t.Context(), &pubsubpb.Topic{Name: topic})
	require.NoError(t, err)
	_, err = server.CreateSubscription(t.Context(), &pubsubpb.Subscription{Name: subscription, Topic: topic, AckDeadlineSeconds: 10})
	require.NoError(t, err)
	t.Setenv("PUBSUB_EMULATOR_HOST", address)
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })

	google, err := pubsub.NewClient(t.Context(), "shop")
	require.NoError(t, err)
	t.Cleanup(func() { google.Close() })
	api, err := gcppubsub.Dial(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { api.Close() })
	queue, err := gcppubsub.New(api, topic, subscription, &gcppubsub.Options{LongPoll: time.Second})
	require.NoError(t, err)
	outlet, err := peer.PublisherClient(t.Context(), conn)
	require.NoError(t, err)
	gocloudTopic, err := peer.OpenTopicByPath(outlet, topic, nil)
	require.NoError(t, err)
	inlet, err := peer.SubscriberClient(t.Context(), conn)
	require.NoError(t, err)
	gocloudSubscription, err := peer.OpenSubscriptionByPath(inlet, subscription, nil)
	require.NoError(t, err)

	send(t, queue, google, gocloudTopic)
	require.NoError(t, gocloudTopic.Shutdown(t.Context()))
	require.Equal(t, 3*orderings, server.Stats(subscription).Unacked())

	st, err := memstore.New(nil)
	require.NoError(t, err)
	happened := &effects{of: map[string]int{}, who: map[string]int{}}
	p, err := onceq.NewProcessor(onceq.ProcessorConfig{
		Handler: onceq.HandlerFunc(func(_ context.Context, j *onceq.Job) error {
			happened.happen(j.Key().Key, "onceq")
			return nil
		}),
		Store: st, Scope: "orders", Logger: slog.New(slog.DiscardHandler),
		Key: func(m *broker.Message) (dedupe.Key, error) {
			if order := m.Attributes[orderName]; order != "" {
				return dedupe.Key{Key: order}, nil
			}
			return dedupe.Key{}, errors.New("the message names no order")
		},
	})
	require.NoError(t, err)
	w, err := p.Worker(queue, onceq.WorkerConfig{DeadLetter: onceq.KeepInQueue, Concurrency: 20})
	require.NoError(t, err)
	do := func(order, who string) error {
		_, err := onceq.Do(t.Context(), p, dedupe.Key{Key: order}, &onceq.DoOptions{Wait: 5 * time.Second},
			func(context.Context, *onceq.Job) (struct{}, error) {
				happened.happen(order, who)
				return struct{}{}, nil
			})
		return err
	}

	server.SetFaults(
		pubsubfake.Fault{Method: "Acknowledge", Rate: 0.03, Code: codes.Unavailable, Applied: true},
		pubsubfake.Fault{Method: "ModifyAckDeadline", Rate: 0.1, Code: codes.Unavailable},
		pubsubfake.Fault{Method: "Pull", Rate: 0.2, Duplicate: true, Most: 20},
		pubsubfake.Fault{Method: "Pull", Most: 20},
	)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var all sync.WaitGroup
	all.Go(func() { requireNil(t, w.Run(ctx)) })
	all.Go(func() {
		s := google.Subscriber(subscription)
		s.ReceiveSettings.MaxOutstandingMessages = 20
		requireNil(t, s.Receive(ctx, func(_ context.Context, m *pubsub.Message) {
			if do(m.Attributes[orderName], "google") != nil {
				m.Nack()
				return
			}
			m.Ack()
		}))
	})
	for range 4 {
		all.Go(func() {
			for {
				m, err := gocloudSubscription.Receive(ctx)
				if err != nil {
					return // one failed ack ends a subscription of gocloud for good; the others go on
				}
				if do(m.Metadata[orderName], "gocloud") != nil {
					m.Nack()
					continue
				}
				m.Ack()
			}
		})
	}
	limit := time.After(time.Minute)
	for server.Stats(subscription).Unacked() > 0 {
		select {
		case <-time.After(20 * time.Millisecond):
		case <-limit:
			t.Fatalf("%+v are left after a minute; so far %v", server.Stats(subscription), happened.who)
		}
	}
	stop()
	all.Wait()
	_ = gocloudSubscription.Shutdown(context.WithoutCancel(ctx)) // it may have failed before

	happened.mu.Lock()
	defer happened.mu.Unlock()
	t.Logf("effects by %v", happened.who)
	require.Len(t, happened.of, orderings)
	for order, n := range happened.of {
		require.Equal(t, 1, n, "%s", order)
	}
	require.Len(t, happened.who, 3, "somebody took nothing")
}

// send has each publisher send each order.
func send(t *testing.T, queue broker.Sender, google *pubsub.Client, portable *gocloud.Topic) {
	t.Helper()
	publisher := google.Publisher(topic)
	var results []*pubsub.PublishResult
	var ms []broker.Outgoing
	var all sync.WaitGroup
	for n := range orderings {
		attributes := map[string]string{orderName: fmt.Sprint("order-", n)}
		ms = append(ms, broker.Outgoing{Body: []byte("ours"), Attributes: attributes})
		results = append(results, publisher.Publish(t.Context(), &pubsub.Message{Data: []byte("google's"), Attributes: attributes}))
		all.Go(func() {
			requireNil(t, portable.Send(t.Context(), &gocloud.Message{Body: []byte("gocloud's"), Metadata: attributes}))
		})
	}
	require.NoError(t, onceq.Send(t.Context(), queue, ms))
	for _, r := range results {
		_, err := r.Get(t.Context())
		require.NoError(t, err)
	}
	publisher.Stop()
	all.Wait()
}

// requireNil is for goroutines other than the test's.
func requireNil(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}
