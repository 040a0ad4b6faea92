package awssqs_test

import (
	"context"
	"crypto/rand"
	"maps"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/onceq/onceq/adapters/awssqs"
	"github.com/onceq/onceq/internal/must"
	"github.com/onceq/onceq/sqsfake"
)

const region = "us-east-1"

// newClient is a client of an endpoint that does not check signatures.
func newClient(endpoint string, fns ...func(*sqs.Options)) *sqs.Client {
	return sqs.New(sqs.Options{
		Region: region, BaseEndpoint: &endpoint,
		Credentials: aws.CredentialsProviderFunc(credentials),
	}, fns...)
}

// fake is a server that is as strict as AWS, and goes on with a poll whose caller has gone.
func fake(t testing.TB, o *sqsfake.Options) *sqsfake.Server {
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

// fakeClient is a client that needs no socket.
func fakeClient(s *sqsfake.Server, fns ...func(*sqs.Options)) *sqs.Client {
	return newClient(s.URL, append([]func(*sqs.Options){func(o *sqs.Options) { o.HTTPClient = s.Client() }}, fns...)...)
}

// makeQueue is a queue of a test's own.
func makeQueue(t testing.TB, c *sqs.Client, fifo bool, attributes map[string]string) (url string) {
	t.Helper()
	name := "q-" + strings.ToLower(rand.Text())
	if fifo {
		name += ".fifo"
	}
	as := map[string]string{}
	maps.Copy(as, attributes)
	if fifo {
		as[string(types.QueueAttributeNameFifoQueue)] = "true"
	}
	out, err := c.CreateQueue(t.Context(), &sqs.CreateQueueInput{QueueName: &name, Attributes: as})
	if err != nil {
		t.Fatal(err)
	}
	return *out.QueueUrl
}

func makeBroker(t testing.TB, c *sqs.Client, url string, o *awssqs.Options) *awssqs.Broker {
	return must.Get(awssqs.New(c, url, o))
}

func inSeconds(d time.Duration) string { return strconv.Itoa(int(d / time.Second)) }

func credentials(context.Context) (aws.Credentials, error) {
	return aws.Credentials{AccessKeyID: "test", SecretAccessKey: "test"}, nil
}
