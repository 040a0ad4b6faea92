package main

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/onceq/onceq/adapters/awssqs"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/examples/internal/shop"
	"github.com/onceq/onceq/sqsfake"
)

// sqsService is SQS.
type sqsService struct{ server *sqsfake.Server }

// serveSQS runs an SQS server in this process, on a free port, until ctx ends. It goes on with a
// poll whose caller was killed, as SQS does: what that brings is hidden from all others until its
// visibility timeout is over.
func serveSQS(ctx context.Context) (service, error) {
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
	return sqsService{s}, nil
}

func (s sqsService) name() string { return "SQS at " + s.server.URL }

// make makes the queues. Without the library the queue itself moves what comes too often.
func (s sqsService) make(_ context.Context, o *shop.Settings) (place, error) {
	dead, err := s.server.CreateQueue(queueName+"-dead", nil)
	if err != nil {
		return place{}, err
	}
	attributes := map[string]string{"VisibilityTimeout": strconv.Itoa(int(o.Visibility / time.Second))}
	if o.Naive {
		policy, err := json.Marshal(map[string]any{
			"deadLetterTargetArn": "arn:aws:sqs:us-east-1:000000000000:" + queueName + "-dead", "maxReceiveCount": shop.NaiveReceives,
		})
		if err != nil {
			return place{}, err
		}
		attributes["RedrivePolicy"] = string(policy)
	}
	queue, err := s.server.CreateQueue(queueName, attributes)
	return place{Service: "sqs", Endpoint: s.server.URL, Queue: queue, Dead: dead}, err
}

func (s sqsService) queues(ctx context.Context, p place, t till) (queue, dead counted, err error) {
	q, d, err := openSQS(ctx, p, t)
	if err != nil {
		return nil, nil, err
	}
	return q.(*awssqs.Broker), d.(*awssqs.Broker), nil
}

// received is how many messages the server gave away from the queue.
func (s sqsService) received() (n int) {
	for _, r := range s.server.Requests() {
		if r.Queue == queueName {
			n += r.Messages
		}
	}
	return n
}

// openSQS opens both queues. Their polls are short, so that nobody waits long for a worker that
// drains.
func openSQS(_ context.Context, p place, _ till) (queue, dead broker.Broker, err error) {
	c := client(p.Endpoint)
	o := &awssqs.Options{LongPoll: time.Second}
	if queue, err = awssqs.New(c, p.Queue, o); err != nil {
		return nil, nil, err
	}
	dead, err = awssqs.New(c, p.Dead, o)
	return queue, dead, err
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

// naiveSQS receives one message.
func naiveSQS(_ context.Context, p place, visibility time.Duration) (receive, error) {
	api := client(p.Endpoint)
	return func(ctx context.Context, charge func(body []byte) error) (deleted int, err error) {
		got, err := api.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{
			QueueUrl: &p.Queue, VisibilityTimeout: int32(visibility / time.Second), WaitTimeSeconds: 1,
		})
		if err != nil {
			return 0, err
		}
		for _, m := range got.Messages {
			if charge([]byte(*m.Body)) != nil {
				continue // it comes back when its visibility timeout is over
			}
			_, _ = api.DeleteMessage(ctx, &sqs.DeleteMessageInput{QueueUrl: &p.Queue, ReceiptHandle: m.ReceiptHandle})
			deleted++
		}
		return deleted, nil
	}, nil
}
