package localstack

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

// sqsEnv names the endpoint to use.
const sqsEnv = "ONCEQ_SQS_URL"

var sqsBackend = backend{
	name: "sqs",
	env:  sqsEnv,
	ways: []way{
		{how: "Docker", start: runLocalStack},
		{how: "host process", start: startLocalStack},
		{how: "embedded", start: serveFake, inside: true},
	},
	version: sqsVersion,
	standIn: fakeVersion,
}

// fakeVersion is what sqsfake is called in the line that ends a run.
const fakeVersion = "sqsfake"

// An SQSServer is a server of SQS's API that all tests of a run share: each makes queues of its own there, with
// [SQSServer.Queue].
type SQSServer struct {
	// URL is the endpoint, for SDKs: http://127.0.0.1:port.
	URL string
	// Region is the one to sign for: us-east-1, or AWS_REGION where the environment names the endpoint.
	Region string
	// Version is the server's, such as "LocalStack 4.14.0" or "sqsfake". It is "SQS" where the server does not tell.
	Version string
	// Kind is "localstack", "sqsfake", "elasticmq" or, where the server does not tell, "sqs": servers differ from AWS, each
	// in its own way.
	Kind string

	credentials aws.Credentials
}

// SQS returns a server of SQS's API. See the package comment for where it comes from, and for what happens where there is
// none but sqsfake.
func SQS(t testing.TB) *SQSServer {
	t.Helper()
	e := sqsBackend.get(t, "")
	kind, _, _ := strings.Cut(strings.ToLower(e.Version), " ")
	region, keys := awsSettings(os.Getenv(sqsEnv) != "")
	return &SQSServer{URL: e.URL, Region: region, Version: e.Version, Kind: kind, credentials: keys}
}

// Client returns the SDK's client for the server, with the SDK's own retries. The functions may change its options.
func (s *SQSServer) Client(t testing.TB, fns ...func(*sqs.Options)) *sqs.Client {
	t.Helper()
	return sqsClient(s.URL, s.Region, s.credentials, fns...)
}

func sqsClient(url, region string, keys aws.Credentials, fns ...func(*sqs.Options)) *sqs.Client {
	o := sqs.Options{
		BaseEndpoint: &url, Region: region,
		Credentials: signer(keys),
	}
	if strings.HasPrefix(url, "http://") {
		// The SDK's own asks a proxy, where one is set, for names of this machine as well.
		o.HTTPClient = awsHTTP
	}
	return sqs.New(o, fns...)
}

// longestQueueName is SQS's limit.
const longestQueueName = 80

// Queue makes a queue that is new, and returns its URL; it is deleted when the test ends. Its name ends in name, at most
// 60 letters, digits, - and _, with .fifo at the end for a FIFO queue. The attributes are those of SQS's CreateQueue: nil
// means SQS's defaults, and FifoQueue is set by the name.
func (s *SQSServer) Queue(t testing.TB, name string, attributes map[string]string) (url string) {
	t.Helper()
	full, err := queueName(t.Name(), name)
	if err != nil {
		t.Fatalf("localstack: sqs: %v", err)
	}
	as := maps.Clone(attributes)
	if strings.HasSuffix(full, fifoSuffix) {
		if as == nil {
			as = map[string]string{}
		}
		as[string(types.QueueAttributeNameFifoQueue)] = "true"
	}
	c := s.Client(t)
	out, err := c.CreateQueue(t.Context(), &sqs.CreateQueueInput{QueueName: &full, Attributes: as})
	if err != nil {
		t.Fatalf("localstack: sqs: creating the queue %s: %v", full, err)
	}
	t.Cleanup(func() {
		// the test's own context has ended
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		_, err := c.DeleteQueue(ctx, &sqs.DeleteQueueInput{QueueUrl: out.QueueUrl})
		if gone := (*types.QueueDoesNotExist)(nil); err != nil && !errors.As(err, &gone) {
			t.Errorf("localstack: sqs: deleting the test's queue: %v", err)
		}
	})
	return *out.QueueUrl
}

// ARN returns a queue's ARN, as a redrive policy names it.
func (s *SQSServer) ARN(t testing.TB, queueURL string) string {
	t.Helper()
	const name = types.QueueAttributeNameQueueArn
	out, err := s.Client(t).GetQueueAttributes(t.Context(), &sqs.GetQueueAttributesInput{
		QueueUrl: &queueURL, AttributeNames: []types.QueueAttributeName{name},
	})
	if err != nil {
		t.Fatalf("localstack: sqs: asking for the ARN of %s: %v", queueURL, err)
	}
	return out.Attributes[string(name)]
}

const fifoSuffix = ".fifo"

// queueName returns a new name that tells whose the queue is.
func queueName(test, name string) (string, error) {
	base, fifo := strings.CutSuffix(name, fifoSuffix)
	suffix := ""
	if fifo {
		suffix = fifoSuffix
	}
	full, ok := newName(test, base, suffix, 60, longestQueueName, nameLetters)
	if !ok {
		return "", fmt.Errorf("the name of a queue, %q, is not 1 to 60 letters, digits, - and _, with .fifo at the end or without", name)
	}
	return full, nil
}

// sqsVersion asks the server at the address what it is, and whether it serves SQS.
func sqsVersion(ctx context.Context, url, _ string) (string, error) {
	if !strings.HasPrefix(url, "http://") && !strings.HasPrefix(url, "https://") {
		return "", errors.New("the address is not of the form http://host:port")
	}
	if version, err := localStackVersion(ctx, url, "sqs"); version != "" || err != nil {
		return version, err
	}
	text, err := ask(ctx, url+"/_sqsfake/health")
	if err != nil {
		return "", err
	}
	if text != nil {
		return fakeVersion, nil
	}
	region, keys := awsSettings(true)
	if _, err := sqsClient(url, region, keys).ListQueues(ctx, &sqs.ListQueuesInput{}); err != nil {
		return "", err
	}
	return "SQS", nil
}

// serving waits for the first of the addresses where a server of SQS's API answers whose version begins
// with name. LocalStack's first calls take seconds: they are made here, and not by a test that measures.
func serving(ctx context.Context, urls []string, name string, limit time.Duration) (string, error) {
	url, err := identified(ctx, urls, name, limit)
	if err != nil {
		return "", err
	}
	return url, warm(ctx, url)
}

// identified asks for the name, because on a busy machine LocalStack answers SQS's calls before it can
// say what it is.
func identified(ctx context.Context, urls []string, name string, limit time.Duration) (string, error) {
	return firstOf(ctx, urls, limit, func(ctx context.Context, url string) error {
		version, err := sqsVersion(ctx, url, "")
		if err == nil && !strings.HasPrefix(version, name) {
			err = fmt.Errorf("the server says that it is %s, not yet %s", version, name)
		}
		return err
	})
}

// warm makes each of the calls that tests make, once.
func warm(ctx context.Context, url string) error {
	region, keys := awsSettings(false)
	c := sqsClient(url, region, keys)
	for _, suffix := range []string{"", fifoSuffix} {
		name, err := queueName("start", "warm"+suffix)
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
