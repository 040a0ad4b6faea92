package snippets

import (
	"context"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe/dynamostore"
	"github.com/onceq/onceq/dedupe/memstore"
	"github.com/onceq/onceq/dedupe/pgstore"
	"github.com/onceq/onceq/localstack"
)

// Both messages ask for the same three pieces.
func TestDeduct(t *testing.T) {
	pool, err := pgxpool.New(t.Context(), localstack.Postgres(t).URL)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	_, err = pool.Exec(t.Context(), "CREATE TABLE stock (sku text PRIMARY KEY, n integer NOT NULL); INSERT INTO stock VALUES ('bolt', 20)")
	require.NoError(t, err)
	store, err := pgstore.New(pool, nil)
	require.NoError(t, err)
	require.NoError(t, store.Migrate(t.Context()))
	queue := newQueue(t)
	for range 2 {
		require.NoError(t, onceq.SendOne(t.Context(), queue, &broker.Outgoing{
			Body: []byte(`{"SKU": "bolt", "Pieces": 3}`), Meta: &broker.Meta{Key: "order-1"},
		}))
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := &count{left: 2, stop: stop}
	p, err := onceq.NewProcessor(onceq.ProcessorConfig{
		Handler: deduct(pool, store), Store: store, Scope: "orders", Observer: ended,
	})
	require.NoError(t, err)
	worker, err := p.Worker(queue, onceq.WorkerConfig{DeadLetter: newQueue(t), Concurrency: 1})
	require.NoError(t, err)
	require.NoError(t, worker.Run(ctx))
	var n int
	require.NoError(t, pool.QueryRow(t.Context(), "SELECT n FROM stock").Scan(&n))
	require.Equal(t, 17, n)
}

func TestDeductItem(t *testing.T) {
	server := localstack.DynamoDB(t)
	client, stock := server.Client(t), server.TableName(t, "stock")
	store, err := dynamostore.New(client, server.TableName(t, "records"), nil)
	require.NoError(t, err)
	require.NoError(t, store.CreateTable(t.Context()))
	_, err = client.CreateTable(t.Context(), &dynamodb.CreateTableInput{
		TableName: &stock, BillingMode: types.BillingModePayPerRequest,
		AttributeDefinitions: []types.AttributeDefinition{{AttributeName: aws.String("sku"), AttributeType: types.ScalarAttributeTypeS}},
		KeySchema:            []types.KeySchemaElement{{AttributeName: aws.String("sku"), KeyType: types.KeyTypeHash}},
	})
	require.NoError(t, err)
	queue := newQueue(t)
	for range 2 {
		require.NoError(t, onceq.SendOne(t.Context(), queue, &broker.Outgoing{
			Body: []byte(`{"SKU": "bolt", "Pieces": 3}`), Meta: &broker.Meta{Key: "order-1"},
		}))
	}
	ctx, stop := context.WithCancel(t.Context())
	p, err := onceq.NewProcessor(onceq.ProcessorConfig{
		Handler: deductItem(store, stock), Store: store, Scope: "orders", Observer: &count{left: 2, stop: stop},
	})
	require.NoError(t, err)
	worker, err := p.Worker(queue, onceq.WorkerConfig{DeadLetter: newQueue(t), Concurrency: 1})
	require.NoError(t, err)
	require.NoError(t, worker.Run(ctx))
	bolt, err := client.GetItem(t.Context(), &dynamodb.GetItemInput{
		TableName: &stock, Key: map[string]types.AttributeValue{"sku": &types.AttributeValueMemberS{Value: "bolt"}}, ConsistentRead: aws.Bool(true),
	})
	require.NoError(t, err)
	require.Equal(t, &types.AttributeValueMemberN{Value: "-3"}, bolt.Item["n"])
}

// What cannot work is refused before the function takes an event.
func TestServe(t *testing.T) {
	require.ErrorContains(t, serve(nil, newQueue(t)), "Store")
}

// count stops the worker after so many jobs.
type count struct {
	left int
	stop func()
}

func (c *count) JobStarted(ctx context.Context, _ *onceq.Job) context.Context { return ctx }

func (c *count) JobEnded(context.Context, *onceq.JobReport) {
	if c.left--; c.left == 0 {
		c.stop()
	}
}

func TestReplay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dead, orders := newQueue(t), newQueue(t)
		for i := range 10 {
			_, err := dead.Send(t.Context(), []broker.Outgoing{{Body: []byte("order"), Meta: &broker.Meta{
				ID: "job-" + strconv.Itoa(i), Key: strconv.Itoa(i),
				Dead: &broker.Letter{Fence: uint64(i + 1), Class: onceq.ClassTimeout, At: time.Now()},
			}}})
			require.NoError(t, err)
		}
		<-time.After(time.Second) // only what failed before is replayed
		require.NoError(t, replay(t.Context(), dead, orders))
		d, err := orders.Depth(t.Context())
		require.NoError(t, err)
		require.EqualValues(t, 10, d.Visible)
	})
}

type fakeBank struct{ charges int }

func (b *fakeBank) Charge(context.Context, string, int) (string, error) {
	b.charges++
	return "receipt-" + strconv.Itoa(b.charges), nil
}

func TestPay(t *testing.T) {
	store, err := memstore.New(nil)
	require.NoError(t, err)
	p, err := onceq.NewProcessor(onceq.ProcessorConfig{Store: store, Scope: "payments"})
	require.NoError(t, err)
	var b fakeBank
	for range 2 {
		receipt, err := pay(t.Context(), p, &b, "payment-1", 995)
		require.NoError(t, err)
		require.Equal(t, "receipt-1", receipt)
	}
	require.Equal(t, 1, b.charges)
}

func newQueue(t *testing.T) *membroker.Broker {
	t.Helper()
	q, err := membroker.New(nil)
	require.NoError(t, err)
	return q
}
