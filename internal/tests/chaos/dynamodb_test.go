//go:build unix

package chaos

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/dynamostore"
	"github.com/onceq/onceq/internal/must"
	"github.com/onceq/onceq/localstack"
)

// tablesAt is the address of books on DynamoDB.
type tablesAt struct {
	URL, Region       string
	Keys              aws.Credentials
	Records, Payments string
}

func tables(t *testing.T) string {
	t.Helper()
	db := localstack.DynamoDB(t)
	text := must.Get(json.Marshal(tablesAt{
		URL: db.URL, Region: db.Region, Keys: db.Credentials, Records: db.TableName(t, "records"), Payments: db.TableName(t, "payments"),
	}))
	return string(text)
}

type dynamoBooks struct {
	at     tablesAt
	client *dynamodb.Client
	s      *dynamostore.Store
}

func openDynamoDB(address string) (books, error) {
	b := &dynamoBooks{}
	if err := json.Unmarshal([]byte(address), &b.at); err != nil {
		return nil, err
	}
	b.client = dynamodb.New(dynamodb.Options{
		BaseEndpoint: &b.at.URL, Region: b.at.Region,
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) { return b.at.Keys, nil }),
	})
	var err error
	b.s, err = dynamostore.New(b.client, b.at.Records, nil)
	return b, err
}

func (b *dynamoBooks) store() dedupe.Store { return b.s }

func (b *dynamoBooks) migrate(ctx context.Context) error {
	if err := b.s.CreateTable(ctx); err != nil {
		return err
	}
	_, err := b.client.CreateTable(ctx, &dynamodb.CreateTableInput{
		TableName: &b.at.Payments, BillingMode: types.BillingModePayPerRequest,
		AttributeDefinitions: []types.AttributeDefinition{{AttributeName: new("id"), AttributeType: types.ScalarAttributeTypeS}},
		KeySchema:            []types.KeySchemaElement{{AttributeName: new("id"), KeyType: types.KeyTypeHash}},
	})
	if err != nil {
		return err
	}
	return dynamodb.NewTableExistsWaiter(b.client).Wait(ctx, &dynamodb.DescribeTableInput{TableName: &b.at.Payments}, time.Minute)
}

// pay puts the payment under an id of its own: under the order's, a second one would hide behind
// the first.
func (b *dynamoBooks) pay(ctx context.Context, j *onceq.Job) error {
	ctx, cancel := context.WithTimeoutCause(ctx, 20*time.Second, errors.New("the transaction takes too long"))
	defer cancel()
	return b.s.Commit(ctx, j, nil, types.TransactWriteItem{Put: &types.Put{
		TableName: &b.at.Payments, Item: payment(j.Key().Key, j.Fence()),
	}})
}

func payment(order string, fence uint64) map[string]types.AttributeValue {
	return map[string]types.AttributeValue{
		"id":    &types.AttributeValueMemberS{Value: rand.Text()},
		"order": &types.AttributeValueMemberS{Value: order},
		"fence": &types.AttributeValueMemberN{Value: strconv.FormatUint(fence, 10)},
	}
}

func (b *dynamoBooks) note(ctx context.Context, order string, fence uint64) error {
	_, err := b.client.PutItem(ctx, &dynamodb.PutItemInput{TableName: &b.at.Payments, Item: payment(order, fence)})
	return err
}

func (b *dynamoBooks) paid(ctx context.Context) (map[string][]uint64, error) {
	all := map[string][]uint64{}
	pages := dynamodb.NewScanPaginator(b.client, &dynamodb.ScanInput{TableName: &b.at.Payments, ConsistentRead: new(true)})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, err
		}
		for _, it := range page.Items {
			order, ok := it["order"].(*types.AttributeValueMemberS)
			number, also := it["fence"].(*types.AttributeValueMemberN)
			if !ok || !also {
				return nil, fmt.Errorf("a payment without an order or a fence: %v", it)
			}
			fence, err := strconv.ParseUint(number.Value, 10, 64)
			if err != nil {
				return nil, err
			}
			all[order.Value] = append(all[order.Value], fence)
		}
	}
	return all, nil
}

// blocked is never so: nothing is locked.
func (b *dynamoBooks) blocked(context.Context) bool { return false }

// patience has the 2 s that the store adds to each lease for its clocks.
func (b *dynamoBooks) patience() time.Duration { return 7 * hold }

func (b *dynamoBooks) close() { _ = b.s.Close() }
