package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/onceq/onceq/internal/must"
)

type credentials struct{}

func (credentials) Retrieve(context.Context) (aws.Credentials, error) {
	return aws.Credentials{AccessKeyID: "test", SecretAccessKey: "test"}, nil
}

func client(endpoint string) *sqs.Client {
	return sqs.New(sqs.Options{BaseEndpoint: &endpoint, Region: "us-east-1", Credentials: credentials{}})
}

// start runs the command and returns its endpoint and the URLs of its queues. The answer
// of run comes through ended.
func start(t *testing.T, ctx context.Context, args ...string) (endpoint string, queues []string, ended chan error) {
	t.Helper()
	r, w := io.Pipe()
	ended = make(chan error, 1)
	go func() {
		ended <- run(ctx, append([]string{"-addr", "127.0.0.1:0"}, args...), w)
		_ = w.Close()
	}()
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		switch words := strings.Fields(lines.Text()); {
		case strings.HasPrefix(lines.Text(), "sqsfake serves"):
			endpoint = words[len(words)-1]
		case len(words) == 2 && words[0] == "queue":
			queues = append(queues, words[1])
		case strings.HasPrefix(lines.Text(), "In Go:"):
			go func() { _, _ = io.Copy(io.Discard, r) }()
			return endpoint, queues, ended
		}
	}
	t.Fatalf("it ended: %v", <-ended)
	return "", nil, nil
}

func TestServeAndDrain(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	endpoint, queues, ended := start(t, ctx, "-queue", "orders", "-queue", "payments.fifo")
	if len(queues) != 2 {
		t.Fatalf("queues %q", queues)
	}
	api := client(endpoint)
	if _, err := api.SendMessage(t.Context(), &sqs.SendMessageInput{QueueUrl: &queues[0], MessageBody: new("a")}); err != nil {
		t.Fatal(err)
	}
	got, err := api.ReceiveMessage(t.Context(), &sqs.ReceiveMessageInput{QueueUrl: &queues[0], WaitTimeSeconds: 20})
	if err != nil || len(got.Messages) != 1 {
		t.Fatalf("received %v, %v", got, err)
	}

	// A receive that waits is answered, with nothing, when the server is told to end.
	type answer struct {
		out *sqs.ReceiveMessageOutput
		err error
	}
	answered := make(chan answer, 1)
	go func() {
		out, err := api.ReceiveMessage(context.WithoutCancel(t.Context()), &sqs.ReceiveMessageInput{QueueUrl: &queues[1], WaitTimeSeconds: 20})
		answered <- answer{out, err}
	}()
	for receives(t, endpoint) < 2 {
		<-time.After(time.Millisecond)
	}
	began := time.Now()
	cancel()
	if a := <-answered; a.err != nil || len(a.out.Messages) != 0 {
		t.Errorf("the receive that waited: %v, %v", a.out, a.err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("draining took %v", took)
	}
}

// A connection that asked nothing yet is no call under way.
func TestSilentConnection(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	endpoint, _, ended := start(t, ctx, "-drain", "1ms")
	c, err := net.Dial("tcp", strings.TrimPrefix(endpoint, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()       //nolint:errcheck // nothing was asked
	receives(t, endpoint) // so that the silent connection is accepted, too
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// receives asks the server how many receives came.
func receives(t *testing.T, endpoint string) int {
	t.Helper()
	req := must.Get(http.NewRequestWithContext(t.Context(), http.MethodGet, endpoint+"/_sqsfake/requests", nil))
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var counts map[string]int
	if err := json.NewDecoder(resp.Body).Decode(&counts); err != nil {
		t.Fatal(err)
	}
	return counts["ReceiveMessage"]
}

// What AWS leaves to chance is chosen, and played again.
func TestChoices(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	endpoint, queues, ended := start(t, ctx, "-queue", "orders", "-short-polls", "whole", "-stale-handles", "work", "-seed", "9")
	api, q := client(endpoint), &queues[0]
	receive := func() types.Message {
		t.Helper()
		got, err := api.ReceiveMessage(t.Context(), &sqs.ReceiveMessageInput{QueueUrl: q})
		if err != nil || len(got.Messages) != 1 {
			t.Fatalf("received %v, %v", got, err)
		}
		return got.Messages[0]
	}
	show := func(m types.Message) {
		t.Helper()
		if _, err := api.ChangeMessageVisibility(t.Context(), &sqs.ChangeMessageVisibilityInput{QueueUrl: q, ReceiptHandle: m.ReceiptHandle}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := api.SendMessage(t.Context(), &sqs.SendMessageInput{QueueUrl: q, MessageBody: new("a")}); err != nil {
		t.Fatal(err)
	}
	old := receive()
	for range 20 { // at random, one of them would bring nothing, or the old handle do nothing
		show(old)
		receive()
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestWrongArguments(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"orders"}, `unexpected argument "orders"`},
		{[]string{"-addr", "127.0.0.1:0", "-queue", "a b"}, "-queue a b: InvalidParameterValue"},
		{[]string{"-addr", "nowhere"}, "missing port"},
		{[]string{"-account", "me"}, "-account me: an account has 12 digits"},
		{[]string{"-colour"}, "not defined"},
		{[]string{"-stale-handles", "old"}, `"old" is none of random, work, ignored`},
		{[]string{"-short-polls", "all"}, `"all" is none of sampled, whole`},
	} {
		if err := run(t.Context(), c.args, io.Discard); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v, want %q", c.args, err, c.want)
		}
	}
	if err := run(t.Context(), []string{"-h"}, io.Discard); !errors.Is(err, flag.ErrHelp) {
		t.Errorf("-h: %v", err)
	}
}

// Whoever copies the lines has all that an SDK asks for: Python's finds no region in AWS_REGION.
func TestDirections(t *testing.T) {
	got := directions("http://127.0.0.1:9324", "eu-west-1", 7, []string{"http://127.0.0.1:9324/000000000000/orders"})
	for _, want := range []string{
		"queue http://127.0.0.1:9324/000000000000/orders\n", "AWS_ENDPOINT_URL_SQS=http://127.0.0.1:9324 ",
		"-seed 7\n", "version 2 of the AWS command line", "aws --endpoint-url http://127.0.0.1:9324 sqs ",
		"AWS_REGION=eu-west-1 ", "AWS_DEFAULT_REGION=eu-west-1\n", "AWS_ACCESS_KEY_ID=test ", "AWS_SECRET_ACCESS_KEY=test\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%q does not stand in\n%s", want, got)
		}
	}
}

// A server in a container listens on all addresses, none of which is one to call.
func TestListensEverywhere(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	endpoint, queues, ended := start(t, ctx, "-addr", ":0", "-queue", "orders")
	if !strings.HasPrefix(endpoint, "http://localhost:") || !strings.HasPrefix(queues[0], endpoint+"/") {
		t.Fatalf("endpoint %s, queues %q", endpoint, queues)
	}
	if _, err := client(endpoint).SendMessage(t.Context(), &sqs.SendMessageInput{QueueUrl: &queues[0], MessageBody: new("a")}); err != nil {
		t.Error(err)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
