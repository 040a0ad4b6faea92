package localstack

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	smithyhttp "github.com/aws/smithy-go/transport/http"
)

// dynamoDBEnv names the endpoint to use.
const dynamoDBEnv = "ONCEQ_DYNAMODB_URL"

var dynamoDBBackend = backend{
	name:    "dynamodb",
	env:     dynamoDBEnv,
	ways:    []way{{how: "Docker", start: runDynamoDB}, {how: "host process", start: startDynamoDB}},
	version: dynamoDBVersion,
}

// A DynamoDBServer is a server of DynamoDB's API that all tests of a run share: each has tables of its own there, under names
// from [DynamoDBServer.TableName].
type DynamoDBServer struct {
	// URL is the endpoint, for SDKs: http://127.0.0.1:port.
	URL string
	// Region is the one to sign for: us-east-1, or AWS_REGION where the environment names the endpoint.
	Region string
	// Credentials are the keys to sign with: any will do, but DynamoDB Local keeps the tables of different keys and regions
	// apart. Where the environment names the endpoint, they are its AWS_ACCESS_KEY_ID and so on.
	Credentials aws.Credentials
	// Version is the server's, such as "DynamoDB Local 3.1.0". It is "DynamoDB Local" where the environment names one, which
	// does not tell, and "DynamoDB" for another that does not.
	Version string
	// Kind is "dynamodb-local", "localstack" or "dynamodb": servers differ from AWS, each in its own way.
	Kind string
}

// DynamoDB returns a server of DynamoDB's API. See the package comment for where it comes from, and for what happens where
// there is none.
func DynamoDB(t testing.TB) *DynamoDBServer {
	t.Helper()
	e := dynamoDBBackend.get(t, "")
	region, keys := awsSettings(os.Getenv(dynamoDBEnv) != "")
	kind := "dynamodb"
	switch {
	case strings.HasPrefix(e.Version, dynamoDBLocalName):
		kind = "dynamodb-local"
	case strings.HasPrefix(e.Version, localStackName):
		kind = "localstack"
	}
	return &DynamoDBServer{URL: e.URL, Region: region, Credentials: keys, Version: e.Version, Kind: kind}
}

// dynamoDBLocalName begins the version of a DynamoDB Local.
const dynamoDBLocalName = "DynamoDB Local"

// Client returns the SDK's client for the server, with the SDK's own retries. The functions may change its options.
func (s *DynamoDBServer) Client(t testing.TB, fns ...func(*dynamodb.Options)) *dynamodb.Client {
	t.Helper()
	return dynamoDBClient(s.URL, s.Region, s.Credentials, fns...)
}

func dynamoDBClient(url, region string, keys aws.Credentials, fns ...func(*dynamodb.Options)) *dynamodb.Client {
	o := dynamodb.Options{BaseEndpoint: &url, Region: region, Credentials: signer(keys)}
	if strings.HasPrefix(url, "http://") {
		// The SDK's own asks a proxy, where one is set, for names of this machine as well.
		o.HTTPClient = awsHTTP
	}
	return dynamodb.New(o, fns...)
}

// longestTableName is DynamoDB's limit.
const longestTableName = 255

// TableName returns a name that no table has; the table that is made under it is deleted when the test ends. It ends in name, at
// most 150 letters, digits, -, _ and dots.
func (s *DynamoDBServer) TableName(t testing.TB, name string) string {
	t.Helper()
	full, ok := newName(t.Name(), name, "", 150, longestTableName, nameLetters+".")
	if !ok {
		t.Fatalf("localstack: dynamodb: the name of a table, %q, is not 1 to 150 letters, digits, -, _ and dots", name)
	}
	t.Cleanup(func() {
		// the test's own context has ended
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		_, err := s.Client(t).DeleteTable(ctx, &dynamodb.DeleteTableInput{TableName: &full})
		if gone := (*types.ResourceNotFoundException)(nil); err != nil && !errors.As(err, &gone) {
			t.Errorf("localstack: dynamodb: deleting the test's table: %v", err)
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
	region, keys := awsSettings(true)
	out, err := dynamoDBClient(url, region, keys).ListTables(ctx, &dynamodb.ListTablesInput{Limit: new(int32(1))})
	if err != nil {
		return "", err
	}
	// AWS's own says nothing of the kind
	if raw, ok := awsmiddleware.GetRawResponse(out.ResultMetadata).(*smithyhttp.Response); ok && strings.HasPrefix(raw.Header.Get("Server"), "Jetty") {
		return dynamoDBLocalName, nil
	}
	return "DynamoDB", nil
}

// servingDynamoDB waits for the first of the addresses where a server answers. Java's first calls take a second: they are made
// here, and not by a test that measures.
func servingDynamoDB(ctx context.Context, urls []string, limit time.Duration) (string, error) {
	url, err := firstOf(ctx, urls, limit, func(ctx context.Context, url string) error {
		_, err := dynamoDBVersion(ctx, url, "")
		return err
	})
	if err != nil {
		return "", err
	}
	return url, warmDynamoDB(ctx, url)
}

// warmDynamoDB makes each of the calls that tests make, once.
func warmDynamoDB(ctx context.Context, url string) error {
	name, _ := newName("start", "warm", "", 150, longestTableName, nameLetters)
	region, keys := awsSettings(false)
	c := dynamoDBClient(url, region, keys)
	_, err := c.CreateTable(ctx, &dynamodb.CreateTableInput{
		TableName: &name, BillingMode: types.BillingModePayPerRequest,
		KeySchema:            []types.KeySchemaElement{{AttributeName: new("k"), KeyType: types.KeyTypeHash}},
		AttributeDefinitions: []types.AttributeDefinition{{AttributeName: new("k"), AttributeType: types.ScalarAttributeTypeS}},
	})
	if err != nil {
		return fmt.Errorf("the first CreateTable: %w", err)
	}
	key := map[string]types.AttributeValue{"k": &types.AttributeValueMemberS{Value: "warm"}}
	if _, err := c.PutItem(ctx, &dynamodb.PutItemInput{TableName: &name, Item: key, ConditionExpression: new("attribute_not_exists(k)")}); err != nil {
		return fmt.Errorf("the first PutItem: %w", err)
	}
	update := types.Update{
		TableName: &name, Key: key, UpdateExpression: new("SET n = if_not_exists(n, :n) + :n"),
		ExpressionAttributeValues: map[string]types.AttributeValue{":n": &types.AttributeValueMemberN{Value: "1"}},
	}
	_, err = c.UpdateItem(ctx, &dynamodb.UpdateItemInput{
		TableName: &name, Key: key, UpdateExpression: update.UpdateExpression, ExpressionAttributeValues: update.ExpressionAttributeValues,
	})
	if err != nil {
		return fmt.Errorf("the first UpdateItem: %w", err)
	}
	_, err = c.TransactWriteItems(ctx, &dynamodb.TransactWriteItemsInput{TransactItems: []types.TransactWriteItem{{Update: &update}}})
	if err != nil {
		return fmt.Errorf("the first TransactWriteItems: %w", err)
	}
	out, err := c.GetItem(ctx, &dynamodb.GetItemInput{TableName: &name, Key: key, ConsistentRead: new(true)})
	if n, ok := out.Item["n"].(*types.AttributeValueMemberN); err != nil || !ok || n.Value != "3" {
		return fmt.Errorf("the first GetItem, of a number that has been raised to 3: %w", cmp.Or(err, fmt.Errorf("%v", out.Item)))
	}
	if _, err := c.DeleteTable(ctx, &dynamodb.DeleteTableInput{TableName: &name}); err != nil {
		return fmt.Errorf("the first DeleteTable: %w", err)
	}
	return nil
}
