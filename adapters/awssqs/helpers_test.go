package awssqs_test

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/onceq/onceq/adapters/awssqs"
	"github.com/onceq/onceq/internal/must"
	"github.com/onceq/onceq/internal/testserver/testaws"
)

const region = "us-east-1"

// newClient is a client of an endpoint that does not check signatures.
func newClient(endpoint string, fns ...func(*sqs.Options)) *sqs.Client {
	return sqs.New(sqs.Options{
		Region: region, BaseEndpoint: &endpoint,
		Credentials: aws.CredentialsProviderFunc(credentials),
	}, fns...)
}

// What the tests of all who drive SQS say.
var (
	fake       = testaws.FakeSQS
	fakeClient = testaws.FakeClient
	makeQueue  = testaws.MakeQueue
)

func makeBroker(t testing.TB, c *sqs.Client, url string, o *awssqs.Options) *awssqs.Broker {
	return must.Get(awssqs.New(c, url, o))
}

func inSeconds(d time.Duration) string { return strconv.Itoa(int(d / time.Second)) }

func credentials(context.Context) (aws.Credentials, error) {
	return aws.Credentials{AccessKeyID: "test", SecretAccessKey: "test"}, nil
}
