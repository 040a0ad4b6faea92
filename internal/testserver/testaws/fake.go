package testaws

import (
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/onceq/onceq/internal/must"
	"github.com/onceq/onceq/sqsfake"
)

// FakeSQS is a server that is as strict as AWS, and goes on with a poll whose caller has gone.
func FakeSQS(t testing.TB, o *sqsfake.Options) *sqsfake.Server {
	if o == nil {
		o = &sqsfake.Options{}
	}
	o.StrandCancelled = true
	s := sqsfake.New(o)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("sqsfake: what was random plays again with Options.Seed %d", s.Seed())
		}
		s.Close()
	})
	return s
}

// FakeClient is a client of the server that needs no socket.
func FakeClient(s *sqsfake.Server, fns ...func(*sqs.Options)) *sqs.Client {
	return ClientOf(s.URL, append([]func(*sqs.Options){func(o *sqs.Options) { o.HTTPClient = s.Client() }}, fns...)...)
}

// ClientOf is a client of an endpoint that does not check signatures.
func ClientOf(url string, fns ...func(*sqs.Options)) *sqs.Client {
	return SQSClient(url, "us-east-1", aws.Credentials{AccessKeyID: "test", SecretAccessKey: "test"}, fns...)
}

// MakeQueue is a queue of a test's own.
func MakeQueue(t testing.TB, c *sqs.Client, fifo bool, attributes map[string]string) (url string) {
	t.Helper()
	name := "q-" + strings.ToLower(rand.Text())
	as := map[string]string{}
	maps.Copy(as, attributes)
	if fifo {
		name += ".fifo"
		as[string(types.QueueAttributeNameFifoQueue)] = "true"
	}
	return *must.Get(c.CreateQueue(t.Context(), &sqs.CreateQueueInput{QueueName: &name, Attributes: as})).QueueUrl
}

// Redrives is the attribute RedrivePolicy of a queue whose letters go to the queue at url.
func Redrives(t testing.TB, c *sqs.Client, url string, maxReceives int) string {
	t.Helper()
	out := must.Get(c.GetQueueAttributes(t.Context(), &sqs.GetQueueAttributesInput{
		QueueUrl: &url, AttributeNames: []types.QueueAttributeName{types.QueueAttributeNameQueueArn},
	}))
	return fmt.Sprintf(`{"deadLetterTargetArn":%q,"maxReceiveCount":"%d"}`, out.Attributes["QueueArn"], maxReceives)
}

// RawSends sends as producers do that do not use onceq.
func RawSends(c *sqs.Client, url string) func(ctx context.Context, body []byte, attributes map[string]string) error {
	n := 0
	return func(ctx context.Context, body []byte, attributes map[string]string) error {
		in := &sqs.SendMessageInput{QueueUrl: &url, MessageBody: new(string(body)), MessageAttributes: map[string]types.MessageAttributeValue{}}
		for name, v := range attributes {
			in.MessageAttributes[name] = types.MessageAttributeValue{DataType: new("String"), StringValue: &v}
		}
		if strings.HasSuffix(url, ".fifo") {
			n++
			in.MessageGroupId, in.MessageDeduplicationId = new("raw"), new(fmt.Sprint("raw-", n))
		}
		_, err := c.SendMessage(ctx, in)
		return err
	}
}
