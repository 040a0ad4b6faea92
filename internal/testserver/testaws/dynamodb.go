package testaws

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/onceq/onceq/internal/testserver"
)

// DynamoDBBackend is DynamoDB, for programs that start none.
var DynamoDBBackend = testserver.Backend{Name: "dynamodb", Version: dynamoDBVersion}

// DynamoDB is a server of DynamoDB's API that all tests of a run share: each has tables of its
// own there, under names from [DynamoDB.TableName].
type DynamoDB struct {
	// URL is the endpoint, for SDKs: http://127.0.0.1:port.
	URL string
	// Region is the one to sign for: us-east-1, or AWS_REGION where the environment names the
	// endpoint.
	Region string
	// Credentials are the keys to sign with: any will do, but DynamoDB Local keeps the tables
	// of different keys and regions apart. Where the environment names the endpoint, they are
	// its AWS_ACCESS_KEY_ID and so on.
	Credentials aws.Credentials
	// Version is the server's, such as "DynamoDB Local 3.1.0". It is "DynamoDB Local" where the
	// environment names one, which does not tell, and "DynamoDB" for another that does not.
	Version string
	// Kind is "dynamodb-local", "localstack" or "dynamodb": servers differ from AWS, each in
	// its own way.
	Kind string
}

// NewDynamoDB returns the server.
func NewDynamoDB(t testing.TB) *DynamoDB {
	t.Helper()
	return OnDynamoDB(t, &DynamoDBBackend)
}

// OnDynamoDB is NewDynamoDB on what the back end b finds.
func OnDynamoDB(t testing.TB, b *testserver.Backend) *DynamoDB {
	t.Helper()
	e := b.Get(t, "")
	region, keys := Settings(os.Getenv(testserver.Env(b.Name, "")) != "")
	kind := "dynamodb"
	switch {
	case strings.HasPrefix(e.Version, DynamoDBLocalName):
		kind = "dynamodb-local"
	case strings.HasPrefix(e.Version, LocalStackName):
		kind = "localstack"
	}
	return &DynamoDB{URL: e.URL, Region: region, Credentials: keys, Version: e.Version, Kind: kind}
}

// DynamoDBLocalName begins the version of a DynamoDB Local.
const DynamoDBLocalName = "DynamoDB Local"

// Client returns the SDK's client for the server, with the SDK's own retries. The functions may
// change its options.
func (s *DynamoDB) Client(t testing.TB, fns ...func(*dynamodb.Options)) *dynamodb.Client {
	t.Helper()
	return DynamoDBClient(s.URL, s.Region, s.Credentials, fns...)
}

// DynamoDBClient is a client for the server at url.
func DynamoDBClient(url, region string, keys aws.Credentials, fns ...func(*dynamodb.Options)) *dynamodb.Client {
	o := dynamodb.Options{BaseEndpoint: &url, Region: region, Credentials: signer(keys)}
	if strings.HasPrefix(url, "http://") {
		// The SDK's own asks a proxy, where one is set, for names of this machine as well.
		o.HTTPClient = httpClient
	}
	return dynamodb.New(o, fns...)
}

// longestTableName is DynamoDB's limit.
const longestTableName = 255

// TableName returns a name that no table has, which tells the test and ends in name.
func TableName(test, name string) (full string, ok bool) {
	return newName(test, name, "", 150, longestTableName, nameLetters+".")
}

// TableName returns a name that no table has; the table that is made under it is deleted when
// the test ends. It ends in name, at most 150 letters, digits, -, _ and dots.
func (s *DynamoDB) TableName(t testing.TB, name string) string {
	t.Helper()
	full, ok := TableName(t.Name(), name)
	if !ok {
		t.Fatalf("backend dynamodb: the name of a table, %q, is not 1 to 150 letters, digits, -, _ and dots", name)
	}
	t.Cleanup(func() {
		// the test's own context has ended
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		_, err := s.Client(t).DeleteTable(ctx, &dynamodb.DeleteTableInput{TableName: &full})
		if gone := (*types.ResourceNotFoundException)(nil); err != nil && !errors.As(err, &gone) {
			t.Errorf("backend dynamodb: deleting the test's table: %v", err)
		}
	})
	return full
}

// dynamoDBVersion asks the server at the address what it is, and whether it serves DynamoDB.
func dynamoDBVersion(ctx context.Context, url, _ string) (string, error) {
	if !strings.HasPrefix(url, "http://") && !strings.HasPrefix(url, "https://") {
		return "", errors.New("the address is not of the form http://host:port")
	}
	if version, err := localStackVersion(ctx, url, "dynamodb"); version != "" || err != nil {
		return version, err
	}
	region, keys := Settings(true)
	out, err := DynamoDBClient(url, region, keys).ListTables(ctx, &dynamodb.ListTablesInput{Limit: new(int32(1))})
	if err != nil {
		return "", err
	}
	// AWS's own says nothing of the kind
	if raw, ok := awsmiddleware.GetRawResponse(out.ResultMetadata).(*smithyhttp.Response); ok && strings.HasPrefix(raw.Header.Get("Server"), "Jetty") {
		return DynamoDBLocalName, nil
	}
	return "DynamoDB", nil
}
