package main

import (
	"context"
	"net"
	"net/http"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/onceq/onceq/adapters/awssqs"
	"github.com/onceq/onceq/sqsfake"
)

// serve runs an SQS server in this process, on a free port, until ctx ends. It goes on with a poll
// whose caller was killed, as SQS does: what that brings is hidden from all others until its
// visibility timeout is over.
func serve(ctx context.Context) (*sqsfake.Server, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := sqsfake.New(&sqsfake.Options{StrandCancelled: true, LogSize: 1 << 20})
	s.URL = "http://" + l.Addr().String()
	h := &http.Server{Handler: s, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = h.Serve(l) }()
	context.AfterFunc(ctx, func() {
		s.Close()
		_ = h.Close()
	})
	return s, nil
}

// received is how many messages the server gave away from the queue.
func received(s *sqsfake.Server, queue string) (n int) {
	for _, r := range s.Requests() {
		if r.Queue == queue {
			n += r.Messages
		}
	}
	return n
}

// client speaks to the server, which does not check signatures.
func client(endpoint string) *sqs.Client {
	return sqs.New(sqs.Options{
		BaseEndpoint: &endpoint, Region: "us-east-1",
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: "test", SecretAccessKey: "test"}, nil
		}),
	})
}

// open is the queue with the URL. Its polls are short, so that nobody waits long for a worker that
// drains.
func open(c *sqs.Client, url string) (*awssqs.Broker, error) {
	return awssqs.New(c, url, &awssqs.Options{LongPoll: time.Second})
}
