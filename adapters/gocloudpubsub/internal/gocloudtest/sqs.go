package gocloudtest

import (
	"crypto/rand"
	"maps"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/onceq/onceq/internal/testserver/testaws"
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

// Client is a client that needs no socket.
func Client(s *sqsfake.Server) *sqs.Client {
	keys := aws.Credentials{AccessKeyID: "test", SecretAccessKey: "test"}
	return testaws.SQSClient(s.URL, "us-east-1", keys, func(o *sqs.Options) { o.HTTPClient = s.Client() })
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
	out, err := c.CreateQueue(t.Context(), &sqs.CreateQueueInput{QueueName: &name, Attributes: as})
	if err != nil {
		t.Fatal(err)
	}
	return *out.QueueUrl
}
