package matrix

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/dynamostore"
	"github.com/onceq/onceq/localstack"
	"github.com/onceq/onceq/onceqtest"
)

// dynamoDB has one table for all cells, each with a scope of its own, and one for the effects. Its
// clock is real, as PostgreSQL's.
func dynamoDB(t *testing.T) *backend {
	t.Helper()
	server := localstack.DynamoDB(t)
	d := dynamoCell{c: server.Client(t), records: server.TableName(t, "records"), effects: server.TableName(t, "effects")}
	var err error
	if d.s, err = dynamostore.New(d.c, d.records, nil); err == nil {
		err = d.s.CreateTable(t.Context())
	}
	if err == nil {
		_, err = d.c.CreateTable(t.Context(), &dynamodb.CreateTableInput{
			TableName: &d.effects, BillingMode: types.BillingModePayPerRequest,
			KeySchema: []types.KeySchemaElement{
				{AttributeName: new("scope"), KeyType: types.KeyTypeHash}, {AttributeName: new("id"), KeyType: types.KeyTypeRange},
			},
			AttributeDefinitions: []types.AttributeDefinition{
				{AttributeName: new("scope"), AttributeType: types.ScalarAttributeTypeS},
				{AttributeName: new("id"), AttributeType: types.ScalarAttributeTypeS},
			},
		})
	}
	if err == nil {
		err = dynamodb.NewTableExistsWaiter(d.c).Wait(t.Context(), &dynamodb.DescribeTableInput{TableName: &d.effects}, time.Minute)
	}
	if err != nil {
		t.Fatal(err)
	}
	var cells atomic.Int64
	return &backend{
		name: "dynamodb", queues: inMemory, transactions: true, oneCall: true,
		open: func(testing.TB) database {
			cell := d
			cell.server, cell.name = server, fmt.Sprintf("%s-%d", scope, cells.Add(1))
			return &cell
		},
		// A Java that shares two processors with the tests answers within seconds.
		lease: 20 * time.Second, visibility: 3 * time.Second, call: 2 * time.Second, settle: 20 * time.Second, backoff: 20 * time.Millisecond,
		long: 2625 * time.Millisecond, second: 100 * time.Millisecond, stall: 2500 * time.Millisecond, late: 2300 * time.Millisecond,
		patience: 80 * time.Second,
	}
}

type dynamoCell struct {
	server           *localstack.DynamoDBServer
	c                *dynamodb.Client
	s                *dynamostore.Store
	records, effects string
	name             string
}

func (d *dynamoCell) connect(p *onceqtest.Process) (*conn, error) {
	own := &http.Transport{DialContext: p.Dial(nil)}
	c := dynamodb.New(d.c.Options(), func(o *dynamodb.Options) { o.HTTPClient = &http.Client{Transport: own} })
	s, err := dynamostore.New(c, d.records, nil)
	if err != nil {
		return nil, err
	}
	return &conn{
		store: s, close: own.CloseIdleConnections,
		complete: func(ctx context.Context, p *onceqtest.Process, j *onceq.Job) error {
			// Two that are committed are two items.
			id := fmt.Sprint(j.Fence(), rand.Text())
			put := types.Put{TableName: &d.effects, Item: map[string]types.AttributeValue{
				"scope": &types.AttributeValueMemberS{Value: d.name}, "id": &types.AttributeValueMemberS{Value: id},
			}}
			j.Join() // as Commit does first, so that one which fails has been tried
			err := p.Call(ctx, commit, func(ctx context.Context) error {
				return s.Commit(ctx, j, "paid", types.TransactWriteItem{Put: &put})
			})
			if err != nil {
				return fmt.Errorf("%w: %w", errCommit, err)
			}
			return nil
		},
	}, nil
}

func (d *dynamoCell) store() dedupe.Store { return d.s }
func (d *dynamoCell) scope() string       { return d.name }

func (d *dynamoCell) rows() (n int, err error) {
	out, err := d.c.Query(context.Background(), &dynamodb.QueryInput{
		TableName: &d.effects, ConsistentRead: new(true), Select: types.SelectCount, KeyConditionExpression: new("#s = :s"),
		ExpressionAttributeNames:  map[string]string{"#s": "scope"},
		ExpressionAttributeValues: map[string]types.AttributeValue{":s": &types.AttributeValueMemberS{Value: d.name}},
	})
	if err != nil {
		return 0, err
	}
	return int(out.Count), nil
}

// age sets the end of the claim's lease; there is nothing to age where nothing is claimed.
func (d *dynamoCell) age(bool) error {
	_, err := d.c.UpdateItem(context.Background(), &dynamodb.UpdateItemInput{
		TableName: &d.records,
		Key: map[string]types.AttributeValue{
			"key": &types.AttributeValueMemberS{Value: "order-1"}, "scope": &types.AttributeValueMemberS{Value: d.name},
		},
		UpdateExpression: new("SET lease_until = :past"), ConditionExpression: new("#st = :claimed"),
		ExpressionAttributeNames: map[string]string{"#st": "status"},
		ExpressionAttributeValues: map[string]types.AttributeValue{
			":past":    &types.AttributeValueMemberN{Value: strconv.FormatInt(time.Now().Add(-time.Minute).UnixMicro(), 10)},
			":claimed": &types.AttributeValueMemberS{Value: "claimed"},
		},
	})
	if errors.As(err, new(*types.ConditionalCheckFailedException)) {
		return nil
	}
	return err
}
