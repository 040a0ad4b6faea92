package testaws

import (
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

	"github.com/onceq/onceq/internal/testserver"
)

// This file owns the way from a test to SQS: the server, a client, and a queue of the test's own.
// Tests of drivers and localstack call it, many at once. Nothing is locked here:
// internal/testserver finds the server once for the process. dynamodb.go has the tables.

// SQSBackend is SQS, for programs that start none.
var SQSBackend = testserver.Backend{Name: "sqs", Version: sqsVersion, StandIn: FakeVersion}

// FakeVersion is what sqsfake is called in the line that ends a run.
const FakeVersion = "sqsfake"

// SQS is a server of SQS's API that all tests of a run share: each makes queues of its own
// there, with [SQS.Queue].
type SQS struct {
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

	// Credentials are the keys to sign with.
	Credentials aws.Credentials
}

// NewSQS returns the server.
func NewSQS(t testing.TB) *SQS {
	t.Helper()
	return OnSQS(t, &SQSBackend)
}

// OnSQS is NewSQS on what the back end b finds.
func OnSQS(t testing.TB, b *testserver.Backend) *SQS {
	t.Helper()
	e := b.Get(t, "")
	kind, _, _ := strings.Cut(strings.ToLower(e.Version), " ")
	region, keys := Settings(os.Getenv(testserver.Env(b.Name, "")) != "")
	return &SQS{URL: e.URL, Region: region, Version: e.Version, Kind: kind, Credentials: keys}
}

// Client returns the SDK's client for the server, with the SDK's own retries. The functions may
// change its options.
func (s *SQS) Client(t testing.TB, fns ...func(*sqs.Options)) *sqs.Client {
	t.Helper()
	return SQSClient(s.URL, s.Region, s.Credentials, fns...)
}

// SQSClient is a client for the server at url.
func SQSClient(url, region string, keys aws.Credentials, fns ...func(*sqs.Options)) *sqs.Client {
	o := sqs.Options{
		BaseEndpoint: &url, Region: region,
		Credentials: signer(keys),
	}
	if strings.HasPrefix(url, "http://") {
		// The SDK's own asks a proxy, where one is set, for names of this machine as well.
		o.HTTPClient = httpClient
	}
	return sqs.New(o, fns...)
}

// longestQueueName is SQS's limit.
const longestQueueName = 80

// Queue makes a queue that is new, and returns its URL; it is deleted when the test ends. Its
// name ends in name, at most 60 letters, digits, - and _, with .fifo at the end for a FIFO
// queue. The attributes are those of SQS's CreateQueue: nil means SQS's defaults, and FifoQueue
// is set by the name.
func (s *SQS) Queue(t testing.TB, name string, attributes map[string]string) (url string) {
	t.Helper()
	full, err := QueueName(t.Name(), name)
	if err != nil {
		t.Fatalf("backend sqs: %v", err)
	}
	as := maps.Clone(attributes)
	if strings.HasSuffix(full, FIFOSuffix) {
		if as == nil {
			as = map[string]string{}
		}
		as[string(types.QueueAttributeNameFifoQueue)] = "true"
	}
	c := s.Client(t)
	out, err := c.CreateQueue(t.Context(), &sqs.CreateQueueInput{QueueName: &full, Attributes: as})
	if err != nil {
		t.Fatalf("backend sqs: creating the queue %s: %v", full, err)
	}
	t.Cleanup(func() {
		// the test's own context has ended
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		_, err := c.DeleteQueue(ctx, &sqs.DeleteQueueInput{QueueUrl: out.QueueUrl})
		if gone := (*types.QueueDoesNotExist)(nil); err != nil && !errors.As(err, &gone) {
			t.Errorf("backend sqs: deleting the test's queue: %v", err)
		}
	})
	return *out.QueueUrl
}

// ARN returns a queue's ARN, as a redrive policy names it.
func (s *SQS) ARN(t testing.TB, queueURL string) string {
	t.Helper()
	const name = types.QueueAttributeNameQueueArn
	out, err := s.Client(t).GetQueueAttributes(t.Context(), &sqs.GetQueueAttributesInput{
		QueueUrl: &queueURL, AttributeNames: []types.QueueAttributeName{name},
	})
	if err != nil {
		t.Fatalf("backend sqs: asking for the ARN of %s: %v", queueURL, err)
	}
	return out.Attributes[string(name)]
}

// FIFOSuffix ends the name of a FIFO queue.
const FIFOSuffix = ".fifo"

// QueueName returns a new name. It tells which test the queue belongs to.
func QueueName(test, name string) (string, error) {
	base, fifo := strings.CutSuffix(name, FIFOSuffix)
	suffix := ""
	if fifo {
		suffix = FIFOSuffix
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
		return FakeVersion, nil
	}
	region, keys := Settings(true)
	if _, err := SQSClient(url, region, keys).ListQueues(ctx, &sqs.ListQueuesInput{}); err != nil {
		return "", err
	}
	return "SQS", nil
}
