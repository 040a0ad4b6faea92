package gcppubsub_test

import (
	"context"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/onceq/onceq/adapters/gcppubsub"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/testserver/testpubsub"
	"github.com/onceq/onceq/pubsubfake"
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
	if _, _, _, err := b.RedrivePolicy(t.Context()); err != nil {
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
		"GetSubscription":   func() error { _, _, _, err := b.RedrivePolicy(t.Context()); return err },
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
	server := testpubsub.New(t)
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
