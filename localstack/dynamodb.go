package localstack

import (
	"cmp"
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/onceq/onceq/internal/testserver/testaws"
)

var dynamoDBBackend = backend{
	Backend: testaws.DynamoDBBackend,
	ways:    []way{{how: "Docker", start: runDynamoDB}, {how: "host process", start: startDynamoDB}},
}

// A DynamoDBServer is a server of DynamoDB's API that all tests of a run share: each has tables
// of its own there, under names from [DynamoDBServer.TableName].
type DynamoDBServer struct {
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

// DynamoDB returns a server of DynamoDB's API. See the package comment for where it comes from,
// and for what happens where there is none.
func DynamoDB(t testing.TB) *DynamoDBServer {
	t.Helper()
	s := testaws.OnDynamoDB(t, dynamoDBBackend.asked())
	return &DynamoDBServer{URL: s.URL, Region: s.Region, Credentials: s.Credentials, Version: s.Version, Kind: s.Kind}
}

// tables is what has the methods: the tests of this repository use it without this package.
func (s *DynamoDBServer) tables() *testaws.DynamoDB {
	return &testaws.DynamoDB{URL: s.URL, Region: s.Region, Credentials: s.Credentials, Version: s.Version, Kind: s.Kind}
}

// Client returns the SDK's client for the server, with the SDK's own retries. The functions may
// change its options.
func (s *DynamoDBServer) Client(t testing.TB, fns ...func(*dynamodb.Options)) *dynamodb.Client {
	t.Helper()
	return s.tables().Client(t, fns...)
}

// TableName returns a name that no table has; the table that is made under it is deleted when
// the test ends. It ends in name, at most 150 letters, digits, -, _ and dots.
func (s *DynamoDBServer) TableName(t testing.TB, name string) string {
	t.Helper()
	return s.tables().TableName(t, name)
}

// servingDynamoDB waits for the first of the addresses where a server answers. Java's first
// calls take a second: they are made here, and not by a test that measures.
func servingDynamoDB(ctx context.Context, urls []string, limit time.Duration) (string, error) {
	url, err := firstOf(ctx, urls, limit, func(ctx context.Context, url string) error {
		_, err := testaws.DynamoDBBackend.Version(ctx, url, "")
		return err
	})
	if err != nil {
		return "", err
	}
	return url, warmDynamoDB(ctx, url)
}

// warmDynamoDB makes each of the calls that tests make, once.
func warmDynamoDB(ctx context.Context, url string) error {
	name, _ := testaws.TableName("start", "warm")
	region, keys := testaws.Settings(false)
	c := testaws.DynamoDBClient(url, region, keys)
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
