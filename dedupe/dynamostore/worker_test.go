package dynamostore_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/dedupe/dynamostore"
	"github.com/onceq/onceq/internal/storetest"
	"github.com/onceq/onceq/internal/testserver/testaws"
)

// stock is the handler of doc.go: what a job does, and that it is done, are one transaction.
type stock struct {
	client *dynamodb.Client
	store  *dynamostore.Store
	table  string
	runs   atomic.Int64
}

func (h *stock) Handle(ctx context.Context, job *onceq.Job) error {
	run := h.runs.Add(1)
	take := types.TransactWriteItem{Update: &types.Update{
		TableName: &h.table, Key: map[string]types.AttributeValue{"row": &types.AttributeValueMemberS{Value: string(job.Message.Body)}},
		UpdateExpression:          aws.String("SET pieces = pieces - :one"),
		ConditionExpression:       aws.String("pieces >= :one"),
		ExpressionAttributeValues: map[string]types.AttributeValue{":one": &types.AttributeValueMemberN{Value: "1"}},
	}}
	result := map[string]string{"item": string(job.Message.Body)}
	switch {
	case run%3 == 0:
		if _, err := h.store.CompleteItems(job, result); err != nil {
			return err
		}
		return errors.New("given up in the last moment")
	case run%4 == 0:
		items, err := h.store.CompleteItems(job, result)
		if err != nil {
			return err
		}
		_, err = h.client.TransactWriteItems(ctx, &dynamodb.TransactWriteItemsInput{TransactItems: append(items, take)})
		return err // a conflict, too: the job is run again
	}
	err := h.store.Commit(ctx, job, result, take)
	if err == nil && run%5 == 0 {
		return errors.New("written, but the answer was lost")
	}
	return err
}

// TestWorkers: two workers, each order sent twice, transactions that are given up, and ones whose
// answers are lost: each order takes one piece.
func TestWorkers(t *testing.T) {
	ctx, stop := context.WithTimeout(t.Context(), 5*time.Minute)
	defer stop()
	server := testaws.NewDynamoDB(t)
	client := server.Client(t)
	store, err := dynamostore.New(client, server.TableName(t, "records"), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := store.CreateTable(ctx); err != nil {
		t.Fatal(err)
	}
	const pieces = 100
	table := server.TableName(t, "stock")
	_, err = client.CreateTable(ctx, &dynamodb.CreateTableInput{
		TableName: &table, BillingMode: types.BillingModePayPerRequest,
		AttributeDefinitions: []types.AttributeDefinition{{AttributeName: aws.String("row"), AttributeType: types.ScalarAttributeTypeS}},
		KeySchema:            []types.KeySchemaElement{{AttributeName: aws.String("row"), KeyType: types.KeyTypeHash}},
	})
	if err != nil {
		t.Fatal(err)
	}
	for n := range storetest.Items {
		_, err := client.PutItem(ctx, &dynamodb.PutItemInput{TableName: &table, Item: map[string]types.AttributeValue{
			"row": &types.AttributeValueMemberS{Value: fmt.Sprintf("item-%d", n)}, "pieces": &types.AttributeValueMemberN{Value: strconv.Itoa(pieces)},
		}})
		if err != nil {
			t.Fatal(err)
		}
	}
	h := &stock{client: client, store: store, table: table}
	storetest.Workers(ctx, t, store, h)
	out, err := client.Scan(t.Context(), &dynamodb.ScanInput{TableName: &table, ConsistentRead: aws.Bool(true)})
	if err != nil {
		t.Fatal(err)
	}
	for _, it := range out.Items {
		if n := it["pieces"].(*types.AttributeValueMemberN).Value; n != strconv.Itoa(pieces-storetest.Orders/storetest.Items) {
			t.Errorf("an item has %s pieces left, want %d", n, pieces-storetest.Orders/storetest.Items)
		}
	}
	if n := h.runs.Load(); n < storetest.Orders {
		t.Errorf("the handler ran %d times", n)
	}
}
