package pubsubclient_test

import (
	"context"
	"maps"
	"strconv"
	"sync"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/grpc/codes"

	"github.com/onceq/onceq/adapters/gcppubsub/pubsubfake"
	"github.com/onceq/onceq/internal/must"
)

const topic, sub = "projects/shop/topics/orders", "projects/shop/subscriptions/worker"

// withClient runs f with Google's own client of a server on the loopback interface, which it finds
// as a program does. The client leaves a goroutine behind, so that no bubble of virtual time can
// hold it.
func withClient(t *testing.T, set *pubsubpb.Subscription, f func(srv *pubsubfake.Server, c *pubsub.Client)) {
	t.Helper()
	srv, address := pubsubfake.Start(t, nil)
	t.Setenv("PUBSUB_EMULATOR_HOST", address)
	if _, err := srv.CreateTopic(t.Context(), &pubsubpb.Topic{Name: topic}); err != nil {
		t.Fatal(err)
	}
	set.Name, set.Topic = sub, topic
	if _, err := srv.CreateSubscription(t.Context(), set); err != nil {
		t.Fatal(err)
	}
	c := must.Get(pubsub.NewClient(t.Context(), "shop"))
	defer func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}()
	f(srv, c)
}

func publish(t *testing.T, srv *pubsubfake.Server, body string) {
	t.Helper()
	_, err := srv.Publish(t.Context(), &pubsubpb.PublishRequest{Topic: topic, Messages: []*pubsubpb.PubsubMessage{{Data: []byte(body)}}})
	if err != nil {
		t.Fatal(err)
	}
}

// received is what a callback of Google's client got.
type received struct {
	mu     sync.Mutex
	bodies []string
}

func (r *received) add(body string) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.bodies = append(r.bodies, body)
	return len(r.bodies)
}

func (r *received) counts() map[string]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := map[string]int{}
	for _, b := range r.bodies {
		n[b]++
	}
	return n
}

// Google's high-level client publishes, and receives through a streaming pull that it keeps.
func TestGoogleClient(t *testing.T) {
	withClient(t, &pubsubpb.Subscription{}, func(srv *pubsubfake.Server, c *pubsub.Client) {
		p := c.Publisher(topic)
		want := map[string]int{}
		var results []*pubsub.PublishResult
		for i := range 500 {
			body := strconv.Itoa(i)
			want[body] = 1
			results = append(results, p.Publish(t.Context(), &pubsub.Message{Data: []byte(body)}))
		}
		for _, res := range results {
			if _, err := res.Get(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		p.Stop()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var got received
		err := c.Subscriber(sub).Receive(ctx, func(_ context.Context, m *pubsub.Message) {
			m.Ack()
			if got.add(string(m.Data)) == 500 {
				cancel()
			}
		})
		if err != nil || !maps.Equal(got.counts(), want) {
			t.Fatalf("received %v, %v", got.counts(), err)
		}
		if left := srv.Stats(sub).Unacked(); left != 0 {
			t.Fatalf("%d are left", left)
		}
	})
}

// The client extends what it works on.
func TestGoogleClientExtends(t *testing.T) {
	withClient(t, &pubsubpb.Subscription{}, func(srv *pubsubfake.Server, c *pubsub.Client) {
		publish(t, srv, "a")
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		err := c.Subscriber(sub).Receive(ctx, func(_ context.Context, m *pubsub.Message) {
			for srv.Counts()["ModifyAckDeadline"] == 0 {
				<-time.After(time.Millisecond)
			}
			m.Ack()
			cancel()
		})
		if err != nil || srv.Stats(sub).Unacked() != 0 {
			t.Fatalf("received with %v, the subscription has %+v", err, srv.Stats(sub))
		}
	})
}

// With keys, the client gets and acks each key's messages in their order.
func TestGoogleClientOrders(t *testing.T) {
	withClient(t, &pubsubpb.Subscription{EnableMessageOrdering: true}, func(srv *pubsubfake.Server, c *pubsub.Client) {
		p := c.Publisher(topic)
		p.EnableMessageOrdering = true
		for i := range 60 {
			p.Publish(t.Context(), &pubsub.Message{Data: []byte(strconv.Itoa(i)), OrderingKey: "k" + strconv.Itoa(i%3)})
		}
		p.Stop()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var mu sync.Mutex
		last := map[string]int{"k0": -1, "k1": -1, "k2": -1}
		n := 0
		err := c.Subscriber(sub).Receive(ctx, func(_ context.Context, m *pubsub.Message) {
			mu.Lock()
			defer mu.Unlock()
			i, err := strconv.Atoi(string(m.Data))
			if err != nil || i <= last[m.OrderingKey] {
				t.Errorf("%s came after %d of %s", m.Data, last[m.OrderingKey], m.OrderingKey)
			}
			last[m.OrderingKey] = i
			m.Ack()
			if n++; n == 60 {
				cancel()
			}
		})
		if err != nil || n != 60 {
			t.Fatalf("received %d, %v", n, err)
		}
	})
}

// With exactly-once delivery the client reports what became of each ack, and repeats what may be
// repeated.
func TestGoogleClientExactlyOnce(t *testing.T) {
	for failure, want := range map[string]pubsub.AcknowledgeStatus{
		"":                                 pubsub.AcknowledgeStatusSuccess, // a transient one, repeated
		"PERMANENT_FAILURE_INVALID_ACK_ID": pubsub.AcknowledgeStatusInvalidAckID,
		"OTHER":                            pubsub.AcknowledgeStatusOther,
	} {
		t.Run(failure, func(t *testing.T) {
			withClient(t, &pubsubpb.Subscription{EnableExactlyOnceDelivery: true}, func(srv *pubsubfake.Server, c *pubsub.Client) {
				publish(t, srv, "a")
				srv.SetFaults(pubsubfake.Fault{Method: "Acknowledge", Count: 1, Entries: []int{0}, EntryFailure: failure, Applied: failure != ""})
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				err := c.Subscriber(sub).Receive(ctx, func(ctx context.Context, m *pubsub.Message) {
					if got, err := m.AckWithResult().Get(ctx); got != want {
						t.Errorf("acked with %v, %v, want %v", got, err, want)
					}
					cancel()
				})
				if err != nil || srv.Stats(sub).Unacked() != 0 {
					t.Fatalf("received with %v, the subscription has %+v", err, srv.Stats(sub))
				}
			})
		})
	}
}

// The client gets through a burst of Unavailable.
func TestGoogleClientUnavailable(t *testing.T) {
	withClient(t, &pubsubpb.Subscription{}, func(srv *pubsubfake.Server, c *pubsub.Client) {
		srv.SetFaults(pubsubfake.Fault{For: 500 * time.Millisecond, Code: codes.Unavailable})
		p := c.Publisher(topic)
		p.Publish(t.Context(), &pubsub.Message{Data: []byte("a")})
		p.Stop()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var got received
		err := c.Subscriber(sub).Receive(ctx, func(_ context.Context, m *pubsub.Message) {
			got.add(string(m.Data))
			m.Ack()
			cancel()
		})
		if err != nil || !maps.Equal(got.counts(), map[string]int{"a": 1}) {
			t.Fatalf("received %v, %v", got.counts(), err)
		}
	})
}
