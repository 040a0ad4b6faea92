package localstack

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/onceq/onceq/internal/testserver/testaws"
)

var sqsBackend = backend{
	Backend: testaws.SQSBackend,
	ways: []way{
		{how: "Docker", start: runLocalStack},
		{how: "host process", start: startLocalStack},
		{how: "embedded", start: serveFake, inside: true},
	},
}

// An SQSServer is a server of SQS's API that all tests of a run share: each makes queues of its
// own there, with [SQSServer.Queue].
type SQSServer struct {
	// URL is the endpoint, for SDKs: http://127.0.0.1:port.
	URL string
	// Region is the one to sign for: us-east-1, or AWS_REGION where the environment names the
	// endpoint.
	Region string
	// Version is the server's, such as "LocalStack 4.14.0" or "sqsfake". It is "SQS" where the
	// server does not tell.
	Version string
	// Kind is "localstack", "sqsfake", "elasticmq" or, where the server does not tell, "sqs":
	// servers differ from AWS, each in its own way.
	Kind string

	credentials aws.Credentials
}

// SQS returns a server of SQS's API. See the package comment for where it comes from, and for
// what happens where there is none but sqsfake.
func SQS(t testing.TB) *SQSServer {
	t.Helper()
	s := testaws.OnSQS(t, sqsBackend.asked())
	return &SQSServer{URL: s.URL, Region: s.Region, Version: s.Version, Kind: s.Kind, credentials: s.Credentials}
}

// queues is what has the methods: the tests of this repository use it without this package.
func (s *SQSServer) queues() *testaws.SQS {
	return &testaws.SQS{URL: s.URL, Region: s.Region, Version: s.Version, Kind: s.Kind, Credentials: s.credentials}
}

// Client returns the SDK's client for the server, with the SDK's own retries. The functions may
// change its options.
func (s *SQSServer) Client(t testing.TB, fns ...func(*sqs.Options)) *sqs.Client {
	t.Helper()
	return s.queues().Client(t, fns...)
}

// Queue makes a queue that is new, and returns its URL; it is deleted when the test ends. Its
// name ends in name, at most 60 letters, digits, - and _, with .fifo at the end for a FIFO
// queue. The attributes are those of SQS's CreateQueue: nil means SQS's defaults, and FifoQueue
// is set by the name.
func (s *SQSServer) Queue(t testing.TB, name string, attributes map[string]string) (url string) {
	t.Helper()
	return s.queues().Queue(t, name, attributes)
}

// ARN returns a queue's ARN, as a redrive policy names it.
func (s *SQSServer) ARN(t testing.TB, queueURL string) string {
	t.Helper()
	return s.queues().ARN(t, queueURL)
}

// serving waits for the first of the addresses where a server of SQS's API answers whose
// version begins with name. LocalStack's first calls take seconds: they are made here, and not
// by a test that measures.
func serving(ctx context.Context, urls []string, name string, limit time.Duration) (string, error) {
	url, err := identified(ctx, urls, name, limit)
	if err != nil {
		return "", err
	}
	return url, warm(ctx, url)
}

// identified asks for the name, because on a busy machine LocalStack answers SQS's calls before
// it can say what it is.
func identified(ctx context.Context, urls []string, name string, limit time.Duration) (string, error) {
	return firstOf(ctx, urls, limit, func(ctx context.Context, url string) error {
		version, err := testaws.SQSBackend.Version(ctx, url, "")
		if err == nil && !strings.HasPrefix(version, name) {
			err = fmt.Errorf("the server says that it is %s, not yet %s", version, name)
		}
		return err
	})
}

// warm makes each of the calls that tests make, once.
func warm(ctx context.Context, url string) error {
	region, keys := testaws.Settings(false)
	c := testaws.SQSClient(url, region, keys)
	for _, suffix := range []string{"", testaws.FIFOSuffix} {
		name, err := testaws.QueueName("start", "warm"+suffix)
		if err != nil {
			return err
		}
		in := sqs.CreateQueueInput{QueueName: &name}
		send := sqs.SendMessageInput{MessageBody: new("warm")}
		if suffix != "" {
			in.Attributes = map[string]string{"FifoQueue": "true"}
			send.MessageGroupId, send.MessageDeduplicationId = new("warm"), new("warm")
		}
		q, err := c.CreateQueue(ctx, &in)
		if err != nil {
			return fmt.Errorf("the first CreateQueue: %w", err)
		}
		send.QueueUrl = q.QueueUrl
		if _, err := c.SendMessage(ctx, &send); err != nil {
			return fmt.Errorf("the first SendMessage: %w", err)
		}
		got, err := c.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{QueueUrl: q.QueueUrl, WaitTimeSeconds: 5})
		if err != nil || len(got.Messages) != 1 {
			return fmt.Errorf("the first ReceiveMessage, of one message: %w", cmp.Or(err, errors.New("none came")))
		}
		_, err = c.DeleteMessage(ctx, &sqs.DeleteMessageInput{QueueUrl: q.QueueUrl, ReceiptHandle: got.Messages[0].ReceiptHandle})
		if err != nil {
			return fmt.Errorf("the first DeleteMessage: %w", err)
		}
		if _, err := c.DeleteQueue(ctx, &sqs.DeleteQueueInput{QueueUrl: q.QueueUrl}); err != nil {
			return fmt.Errorf("the first DeleteQueue: %w", err)
		}
	}
	return nil
}
