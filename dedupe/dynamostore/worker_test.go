package dynamostore_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe/dynamostore"
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

// counter is told of how each delivery ended.
type counter func(outcome string)

func (c counter) JobStarted(ctx context.Context, _ *onceq.Job) context.Context { return ctx }
func (c counter) JobEnded(_ context.Context, r *onceq.TimingRecord)            { c(string(r.Outcome)) }

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
	const orders, pieces = 60, 100
	table := server.TableName(t, "stock")
	_, err = client.CreateTable(ctx, &dynamodb.CreateTableInput{
		TableName: &table, BillingMode: types.BillingModePayPerRequest,
		AttributeDefinitions: []types.AttributeDefinition{{AttributeName: aws.String("row"), AttributeType: types.ScalarAttributeTypeS}},
		KeySchema:            []types.KeySchemaElement{{AttributeName: aws.String("row"), KeyType: types.KeyTypeHash}},
	})
	if err != nil {
		t.Fatal(err)
	}
	for n := range 6 {
		_, err := client.PutItem(ctx, &dynamodb.PutItemInput{TableName: &table, Item: map[string]types.AttributeValue{
			"row": &types.AttributeValueMemberS{Value: fmt.Sprintf("item-%d", n)}, "pieces": &types.AttributeValueMemberN{Value: strconv.Itoa(pieces)},
		}})
		if err != nil {
			t.Fatal(err)
		}
	}
	queue, err := membroker.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	dead, err := membroker.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	// The second wave comes when the first is done: a duplicate that meets its job at work comes
	// back after a lease.
	wave := func() {
		var out []broker.Outgoing
		for i := range orders {
			out = append(out, broker.Outgoing{Body: fmt.Appendf(nil, "item-%d", i%6), Meta: &broker.Meta{Key: fmt.Sprintf("order-%d", i)}})
		}
		for part := range slices.Chunk(out, queue.Limits().SendBatch) {
			if err := onceq.Send(ctx, queue, part); err != nil {
				t.Error(err)
			}
		}
	}
	wave()
	h := &stock{client: client, store: store, table: table}
	var over atomic.Int64
	run, end := context.WithCancel(ctx)
	var wg sync.WaitGroup
	for range 2 {
		p, err := onceq.NewProcessor(onceq.ProcessorConfig{
			Handler: h, Store: store, Scope: "orders", Logger: slog.New(slog.DiscardHandler),
			Defaults: onceq.JobOptions{Backoff: func(int, error) time.Duration { return time.Millisecond }, MaxAttempts: 1000},
			Observer: counter(func(outcome string) {
				if outcome != "done" && outcome != "already-done" {
					return
				}
				switch over.Add(1) {
				case orders:
					wave()
				case 2 * orders:
					end()
				}
			}),
		})
		if err != nil {
			t.Fatal(err)
		}
		w, err := p.Worker(queue, onceq.WorkerConfig{DeadLetter: dead})
		if err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			if err := w.Run(run); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	end()
	out, err := client.Scan(t.Context(), &dynamodb.ScanInput{TableName: &table, ConsistentRead: aws.Bool(true)})
	if err != nil {
		t.Fatal(err)
	}
	for _, it := range out.Items {
		if n := it["pieces"].(*types.AttributeValueMemberN).Value; n != strconv.Itoa(pieces-orders/6) {
			t.Errorf("an item has %s pieces left, want %d", n, pieces-orders/6)
		}
	}
	if over.Load() < 2*orders || h.runs.Load() < orders {
		t.Errorf("%d messages have ended after %d runs", over.Load(), h.runs.Load())
	}
}
