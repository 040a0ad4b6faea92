package dynamostore_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/dynamostore"
)

func ExampleNew() {
	client := dynamodb.New(dynamodb.Options{Region: "eu-central-1"}) // or dynamodb.NewFromConfig(cfg)
	store, err := dynamostore.New(client, "onceq-records", nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	l := store.Limits()
	fmt.Println("largest result:", l.MaxResult, "bytes; batch:", l.MaxBatch)

	_, err = dynamostore.New(client, "onceq-records", &dynamostore.Options{TTLAttribute: "status"})
	fmt.Println(err)
	// Output:
	// largest result: 399360 bytes; batch: 100
	// dynamostore: New: dedupe: bad request: Options.TTLAttribute is "status", an attribute that the store uses for something else
}

// charge is what a handler does: the line in the ledger and the end of the job are one transaction.
func charge(ctx context.Context, store *dynamostore.Store, job dedupe.Owned, order string) error {
	err := store.Commit(ctx, job, map[string]string{"charged": order}, types.TransactWriteItem{Put: &types.Put{
		TableName:           aws.String("ledger"),
		Item:                map[string]types.AttributeValue{"order": &types.AttributeValueMemberS{Value: order}},
		ConditionExpression: aws.String("attribute_not_exists(#order)"), ExpressionAttributeNames: map[string]string{"#order": "order"},
	}})
	var no *dynamostore.CommitError
	if errors.As(err, &no) && no.Code == "ConditionalCheckFailed" {
		return onceq.Permanent(fmt.Errorf("order %s was charged by somebody else", order))
	}
	return err
}

// A handler whose effects are items in DynamoDB commits them with the end of its job. Its
// *onceq.Job is the job.
func ExampleStore_Commit() {
	client := dynamodb.New(dynamodb.Options{Region: "eu-central-1", Credentials: aws.AnonymousCredentials{}, HTTPClient: pretend{}})
	store, err := dynamostore.New(client, "onceq-records", nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	job := &running{dedupe.Lease{Key: dedupe.Key{Scope: "orders", Key: "o-1"}, Token: dedupe.Token{1}, Fence: 1}}
	fmt.Println(charge(context.Background(), store, job, "o-1"))
	fmt.Println(charge(context.Background(), store, job, "o-2"))
	// Output:
	// the worker leaves it to the transaction
	// <nil>
	// the worker leaves it to the transaction
	// order o-2 was charged by somebody else
}

// pretend is a DynamoDB that knows two answers.
type pretend struct{}

func (pretend) Do(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	status, answer := http.StatusOK, "{}"
	if bytes.Contains(body, []byte("o-2")) {
		status = http.StatusBadRequest
		answer = `{"__type": "TransactionCanceledException", "CancellationReasons": [{"Code": "ConditionalCheckFailed"}, {"Code": "None"}]}`
	}
	return &http.Response{
		StatusCode: status, Body: io.NopCloser(strings.NewReader(answer)), Request: r,
		Header: http.Header{"Content-Type": {"application/x-amz-json-1.0"}, "Date": {time.Now().UTC().Format(http.TimeFormat)}},
	}, nil
}

// running stands for a *onceq.Job.
type running struct{ lease dedupe.Lease }

func (r *running) Lease() dedupe.Lease   { return r.lease }
func (r *running) Retain() time.Duration { return 0 }
func (r *running) Join()                 { fmt.Println("the worker leaves it to the transaction") }

// Who sends the transaction himself adds the completion to it.
func ExampleStore_CompleteItems() {
	client := dynamodb.New(dynamodb.Options{Region: "eu-central-1"})
	store, err := dynamostore.New(client, "onceq-records", nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	job := &running{dedupe.Lease{Key: dedupe.Key{Scope: "orders", Key: "o-1"}, Token: dedupe.Token{1}, Fence: 1}}
	items, err := store.CompleteItems(job, "receipt 77")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(len(items), "action on table", *items[0].Update.TableName)
	_, err = store.CompleteItems(job, make([]byte, 410<<10))
	fmt.Println(errors.Is(err, dedupe.ErrResultSize))
	// Output:
	// the worker leaves it to the transaction
	// 1 action on table onceq-records
	// the worker leaves it to the transaction
	// true
}
