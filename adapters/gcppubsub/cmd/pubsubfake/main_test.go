package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"io"
	"net/http"
	"strings"
	"testing"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/onceq/onceq/internal/must"
)

// start runs the command and returns what it tells, by the first word of each line. The answer of
// run comes through ended.
func start(t *testing.T, ctx context.Context, args ...string) (told map[string][]string, ended chan error) {
	t.Helper()
	r, w := io.Pipe()
	ended = make(chan error, 1)
	go func() {
		ended <- run(ctx, append([]string{"-addr", "127.0.0.1:0"}, args...), w)
		_ = w.Close()
	}()
	told = map[string][]string{}
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		if len(words) == 0 {
			continue
		}
		told[words[0]] = append(told[words[0]], words[len(words)-1])
		if words[0] == "export" {
			go func() { _, _ = io.Copy(io.Discard, r) }()
			return told, ended
		}
	}
	t.Fatalf("it ended: %v", <-ended)
	return nil, nil
}

func TestServeAndClose(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	told, ended := start(t, ctx, "-control", "127.0.0.1:0", "-topic", "letters", "-subscription", "orders/worker", "-subscription", "orders/audit",
		"-ordered", "-exactly-once", "-ack-deadline", "30s", "-stale-ack-ids", "work", "-seed", "9")
	if len(told["pubsubfake"]) != 1 || len(told["faults"]) != 1 || len(told["subscription"]) != 2 || told["what"][0] != "9" {
		t.Fatalf("it told %v", told)
	}
	conn := must.Get(grpc.NewClient(told["pubsubfake"][0], grpc.WithTransportCredentials(insecure.NewCredentials())))
	defer conn.Close()
	p, s := pubsubpb.NewPublisherClient(conn), pubsubpb.NewSubscriberClient(conn)
	topics, err := p.ListTopics(t.Context(), &pubsubpb.ListTopicsRequest{Project: "projects/test"})
	if err != nil || len(topics.Topics) != 2 {
		t.Fatalf("topics %v, %v", topics, err)
	}
	const worker, audit = "projects/test/subscriptions/worker", "projects/test/subscriptions/audit"
	sub, err := s.GetSubscription(t.Context(), &pubsubpb.GetSubscriptionRequest{Subscription: worker})
	if err != nil || sub.AckDeadlineSeconds != 30 || !sub.EnableMessageOrdering || !sub.EnableExactlyOnceDelivery {
		t.Fatalf("subscription %v, %v", sub, err)
	}
	if _, err := p.Publish(t.Context(), &pubsubpb.PublishRequest{
		Topic: "projects/test/topics/orders", Messages: []*pubsubpb.PubsubMessage{{Data: []byte("a")}},
	}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{worker, audit} {
		got, err := s.Pull(t.Context(), &pubsubpb.PullRequest{Subscription: name, MaxMessages: 10})
		if err != nil || len(got.ReceivedMessages) != 1 {
			t.Fatalf("pulled %v, %v", got, err)
		}
	}
	req := must.Get(http.NewRequestWithContext(t.Context(), http.MethodGet, told["faults"][0]+"requests", nil))
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if want := `{"GetSubscription":1,"ListTopics":1,"Publish":1,"Pull":2}`; err != nil || strings.TrimSpace(string(text)) != want {
		t.Errorf("counts %s, %v, want %s", text, err, want)
	}

	// A pull that waits is answered, with nothing, when the server is told to end.
	answered := make(chan error, 1)
	began := make(chan struct{})
	go func() {
		close(began)
		got, err := s.Pull(context.WithoutCancel(t.Context()), &pubsubpb.PullRequest{Subscription: worker, MaxMessages: 1})
		if err == nil && len(got.ReceivedMessages) > 0 {
			err = errors.New("it brought a message")
		}
		answered <- err
	}()
	<-began
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	<-answered // with nothing, or refused: it may have come too late
}

func TestWrongArguments(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"orders"}, `unexpected argument "orders"`},
		{[]string{"-topic", "x"}, "-topic x: "},
		{[]string{"-subscription", "orders"}, "it has the form TOPIC/SUBSCRIPTION"},
		{[]string{"-subscription", "orders/x"}, "-subscription orders/x: "},
		{[]string{"-subscription", "orders/worker", "-ack-deadline", "9s"}, "ack_deadline_seconds"},
		{[]string{"-stale-ack-ids", "never"}, "none of random, work, ignored"},
		{[]string{"-addr", "nowhere:-1"}, "listen"},
		{[]string{"-control", "nowhere:-1"}, "listen"},
	} {
		err := run(t.Context(), append([]string{"-addr", "127.0.0.1:0"}, c.args...), io.Discard)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v, want %q", c.args, err, c.want)
		}
	}
	if err := run(t.Context(), []string{"-h"}, io.Discard); !errors.Is(err, flag.ErrHelp) {
		t.Errorf("-h: %v", err)
	}
}
