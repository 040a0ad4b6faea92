package gcppubsub_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"cloud.google.com/go/iam/apiv1/iampb"
	pubsub "cloud.google.com/go/pubsub/v2/apiv1"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/onceq/onceq/adapters/gcppubsub"
	"github.com/onceq/onceq/adapters/gcppubsub/pubsubfake"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/must"
	"github.com/onceq/onceq/internal/testserver/testgcp"
)

// counted counts the connections that a listener takes.
type counted struct {
	net.Listener
	mu sync.Mutex
	n  int
}

func (l *counted) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil {
		l.n++
	}
	return c, err
}

func (l *counted) taken() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.n
}

// serve is the strict server behind gRPC.
func serve(t *testing.T) (*pubsubfake.Server, *counted) {
	t.Helper()
	var lc net.ListenConfig
	inner, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &counted{Listener: inner}
	s := fake(t, pubsubfake.Options{})
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := s.Serve(l); err != nil {
			t.Log(err)
		}
	})
	t.Cleanup(func() { s.Close(); wg.Wait() })
	return s, l
}

func dialAt(t testing.TB, addr string) *gcppubsub.Clients {
	t.Helper()
	c, err := gcppubsub.Dial(context.Background(), option.WithEndpoint(addr), option.WithoutAuthentication(),
		option.WithGRPCDialOption(grpc.WithTransportCredentials(insecure.NewCredentials())))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

func TestClientsHaveTheirOwnConnections(t *testing.T) {
	s, l := serve(t)
	c := dialAt(t, l.Addr().String())
	topic := makeTopic(t, s, project)
	sub := makeSubscription(t, s, project, topic, nil)
	b := makeBroker(t, c, topic, sub, nil)
	round := func() {
		t.Helper()
		if _, err := b.Send(t.Context(), outs("1")); err != nil {
			t.Fatal(err)
		}
		ms, err := b.Receive(t.Context(), asked)
		if err != nil || len(ms) != 1 {
			t.Fatalf("%d messages, %v", len(ms), err)
		}
		if err := b.Ack(t.Context(), []broker.Receipt{ms[0].Receipt}); err != nil {
			t.Fatal(err)
		}
	}
	for range 3 {
		round()
	}
	if got := l.taken(); got != 4 {
		t.Errorf("%d connections", got)
	}
	// With clients of the user's own there are as many as he gave.
	b = makeBroker(t, &gcppubsub.Clients{Topics: c.Topics, Pulls: c.Leases}, topic, sub, nil)
	round()
	if got := l.taken(); got != 4 {
		t.Errorf("%d connections", got)
	}
	if _, err := b.Redrive(t.Context()); err != nil {
		t.Error(err)
	}
	if _, _, err := b.Check(t.Context(), gcppubsub.CheckOptions{}); err != nil {
		t.Error(err)
	}
}

// TestClientsRepeatNothing lets each call fail with what Google's clients repeat by themselves.
func TestClientsRepeatNothing(t *testing.T) {
	s, l := serve(t)
	topic := makeTopic(t, s, project)
	sub := makeSubscription(t, s, project, topic, nil)
	b := makeBroker(t, dialAt(t, l.Addr().String()), topic, sub, nil)
	s.SetFaults(pubsubfake.Fault{Code: codes.Unavailable})
	for method, do := range map[string]func() error{
		"Publish":           func() error { _, err := b.Send(t.Context(), outs("1")); return err },
		"Pull":              func() error { _, err := b.Receive(t.Context(), asked); return err },
		"Acknowledge":       func() error { return b.Ack(t.Context(), receipts(1, 1)) },
		"ModifyAckDeadline": func() error { return b.Nack(t.Context(), holdsOf(receipts(1, 1), 0)) },
		"GetSubscription":   func() error { _, err := b.Redrive(t.Context()); return err },
	} {
		before := s.Counts()[method]
		if err := do(); err == nil {
			t.Errorf("%s succeeded", method)
		}
		if got := s.Counts()[method] - before; got != 1 {
			t.Errorf("%s was called %d times", method, got)
		}
	}
}

// TestPullsAroundTheirDeadlineServer publishes around the end of a pull on Google's emulator: no
// message is stranded.
func TestPullsAroundTheirDeadlineServer(t *testing.T) {
	server := testgcp.NewPubSub(t)
	a, project := dial(t, server)
	for i := range 40 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			topic := makeTopic(t, a, project)
			sub := makeSubscription(t, a, project, topic, nil)
			b := makeBroker(t, a, topic, sub, nil)
			var wg sync.WaitGroup
			wg.Go(func() {
				<-time.After(600*time.Millisecond + time.Duration(i)*40*time.Millisecond)
				if _, err := b.Send(t.Context(), outs("1")); err != nil {
					t.Error(err)
				}
			})
			o := broker.ReceiveOptions{Max: 1, Wait: time.Second, Visibility: 10 * time.Second}
			started := time.Now()
			ms, err := b.Receive(t.Context(), o)
			took := time.Since(started)
			wg.Wait()
			o.Wait = 5 * time.Second
			if err == nil && len(ms) == 0 {
				ms, err = b.Receive(t.Context(), o)
			}
			if err != nil || len(ms) != 1 {
				t.Fatalf("%d messages, %v: it is stranded; the first pull took %v, %+v", len(ms), err, took, b.Stats())
			}
			if b.Stats().Unanswered > 0 {
				t.Errorf("the pull ended by its deadline, after %v", took)
			}
		})
	}
}

// TestClientsThatAreMissing gives some clients only: what needs another one says so.
func TestClientsThatAreMissing(t *testing.T) {
	s, l := serve(t)
	c := dialAt(t, l.Addr().String())
	topic := makeTopic(t, s, project)
	sub := makeSubscription(t, s, project, topic, nil)
	for _, k := range []struct {
		name    string
		clients *gcppubsub.Clients
		topics  bool // calls to the topic have a client
		subs    bool // calls to the subscription have
	}{
		{"none", &gcppubsub.Clients{}, false, false},
		{"only topics", &gcppubsub.Clients{Topics: c.Topics}, true, false},
		{"only pulls", &gcppubsub.Clients{Pulls: c.Pulls}, false, true},
	} {
		b := makeBroker(t, k.clients, topic, sub, nil)
		_, err := b.Send(t.Context(), outs("1"))
		if lacks(err) == k.topics || k.topics && err != nil {
			t.Errorf("%s: send: %v", k.name, err)
		}
		_, err = b.Receive(t.Context(), asked) // what was sent before, or nothing
		if lacks(err) == k.subs || k.subs && err != nil {
			t.Errorf("%s: receive: %v", k.name, err)
		}
		for call, err := range map[string]error{
			"ack":    b.Ack(t.Context(), receipts(1, 1)),
			"extend": b.Extend(t.Context(), holdsOf(receipts(1, 1), time.Minute)),
		} {
			if lacks(err) == k.subs {
				t.Errorf("%s: %s: %v", k.name, call, err)
			}
		}
		_, err = k.clients.GetTopic(t.Context(), &pubsubpb.GetTopicRequest{Topic: topic})
		if lacks(err) == k.topics || k.topics && err != nil {
			t.Errorf("%s: topic: %v", k.name, err)
		}
		_, err = k.clients.GetIamPolicy(t.Context(), &iampb.GetIamPolicyRequest{Resource: topic})
		if any := k.topics || k.subs; lacks(err) == any || any && err != nil {
			t.Errorf("%s: policy: %v", k.name, err)
		}
		_, err = k.clients.TestIamPermissions(t.Context(), &iampb.TestIamPermissionsRequest{Resource: topic, Permissions: []string{"pubsub.topics.publish"}})
		if lacks(err) == k.topics || k.topics && err != nil {
			t.Errorf("%s: permissions: %v", k.name, err)
		}
	}
}

func lacks(err error) bool {
	return err != nil && strings.Contains(err.Error(), "the Clients have no client for it")
}

// TestClientsAreClosedOnce shares one client, which may be closed once only, and calls closed ones.
func TestClientsAreClosedOnce(t *testing.T) {
	s, l := serve(t)
	topic := makeTopic(t, s, project)
	sub := makeSubscription(t, s, project, topic, nil)
	addr := []option.ClientOption{
		option.WithEndpoint(l.Addr().String()), option.WithoutAuthentication(),
		option.WithGRPCDialOption(grpc.WithTransportCredentials(insecure.NewCredentials())),
	}
	c := must.Get(gcppubsub.Dial(t.Context(), addr...))
	pulls, acks, leases := c.Pulls, c.Acks, c.Leases
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	for _, one := range []*pubsub.SubscriptionAdminClient{pulls, acks, leases} {
		if err := one.Close(); err == nil {
			t.Error("Close has left a connection open")
		}
	}
	b := makeBroker(t, c, topic, sub, nil)
	if _, err := b.Send(t.Context(), outs("1")); err == nil {
		t.Error("Close has left the topics' connection open")
	}
	c = must.Get(gcppubsub.Dial(t.Context(), addr...))
	shared := &gcppubsub.Clients{Pulls: c.Pulls, Acks: c.Pulls}
	if err := shared.Close(); err != nil {
		t.Errorf("a shared client: %v", err)
	}
	if err := (&gcppubsub.Clients{Topics: c.Topics, Acks: c.Acks, Leases: c.Leases}).Close(); err != nil {
		t.Errorf("clients without one: %v", err)
	}
	var none *gcppubsub.Clients
	if err := none.Close(); err != nil {
		t.Errorf("no clients: %v", err)
	}
}

func TestPerMessage(t *testing.T) {
	if got := (gcppubsub.Stats{Pulls: 1, Publishes: 9}).PerMessage(); got != 0 {
		t.Errorf("%v calls for no message", got)
	}
	if got := (gcppubsub.Stats{Pulls: 1, Acks: 2, Holds: 3, Publishes: 9, Others: 9, Acked: 4}).PerMessage(); got != 1.5 {
		t.Errorf("%v calls a message", got)
	}
}
