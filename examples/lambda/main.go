// Command lambda is an AWS Lambda function that takes payments from an SQS queue into accounts in
// DynamoDB.
//
// The trap: Lambda calls a function again with what it has done already, after a timeout, a crash,
// or a delete that failed. A handler that adds to a balance adds twice. A table of "seen" ids
// beside it does not help: a function that dies between the two writes has either lost the payment
// or will add it twice.
//
// The answer: dynamostore.Commit, which writes the balance, the line in the ledger and the end of
// the job in one transaction, or none of them; and sqslambda.Handler, which reports the records
// that failed, one by one.
//
// template.yaml beside it is the whole stack: queue, dead-letter queue, tables, function, event
// source mapping and rights.
//
//	GOOS=linux GOARCH=arm64 CGO_ENABLED=0 go build -tags lambda.norpc -trimpath -ldflags '-s -w' -o build/bootstrap ./examples/lambda
//	sam deploy --guided --template-file examples/lambda/template.yaml
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"os"
	"strconv"
	"time"

	"github.com/aws/aws-lambda-go/lambda"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/awssqs"
	"github.com/onceq/onceq/adapters/sqslambda"
	"github.com/onceq/onceq/dedupe/dynamostore"
)

// payment is a message's body.
type payment struct {
	ID, Account string
	Cents       int64
}

// receipt is what is kept with the job.
type receipt struct{ Booked time.Time }

// books are the accounts and their ledger, one table: the account's balance under its name, each
// payment under its id.
type books struct {
	store *dynamostore.Store
	table string
}

// pay books a payment: all of it, or nothing.
func (b *books) pay(ctx context.Context, job *onceq.Job, p payment) error {
	if p.ID == "" || p.Account == "" || p.Cents <= 0 {
		return onceq.Permanent(fmt.Errorf("payment %q: %d cents to account %q", p.ID, p.Cents, p.Account))
	}
	now, cents := time.Now().UTC(), strconv.FormatInt(p.Cents, 10)
	err := b.store.Commit(ctx, job, receipt{now},
		types.TransactWriteItem{Put: &types.Put{
			TableName: &b.table,
			Item: map[string]types.AttributeValue{
				"id":      &types.AttributeValueMemberS{Value: "payment#" + p.ID},
				"account": &types.AttributeValueMemberS{Value: p.Account},
				"cents":   &types.AttributeValueMemberN{Value: cents},
				"booked":  &types.AttributeValueMemberS{Value: now.Format(time.RFC3339)},
			},
			// Another job with the same payment is a mistake of the producer's, and not to be
			// booked either.
			ConditionExpression: aws.String("attribute_not_exists(id)"),
		}},
		types.TransactWriteItem{Update: &types.Update{
			TableName:                 &b.table,
			Key:                       map[string]types.AttributeValue{"id": &types.AttributeValueMemberS{Value: "account#" + p.Account}},
			UpdateExpression:          aws.String("ADD balance :cents"),
			ExpressionAttributeValues: map[string]types.AttributeValue{":cents": &types.AttributeValueMemberN{Value: cents}},
		}},
	)
	// It is of our own items: a job that was overtaken is told so by dedupe.ErrLeaseLost, and has
	// nothing to say.
	if no := (*dynamostore.CommitError)(nil); errors.As(err, &no) && no.Code == "ConditionalCheckFailed" {
		return onceq.Permanent(fmt.Errorf("payment %s is booked already, by another job: %w", p.ID, err))
	}
	return err
}

// function puts the parts together. What is missing shows when the function starts, and not with
// the first payment.
func function(env func(string) string) (sqslambda.Func, error) {
	level := slog.LevelInfo
	if env("LOG_LEVEL") != "" {
		if err := level.UnmarshalText([]byte(env("LOG_LEVEL"))); err != nil {
			return nil, fmt.Errorf("LOG_LEVEL: %w", err)
		}
	}
	logger := slog.New(slog.NewJSONHandler(os.Stderr, &slog.HandlerOptions{Level: level}))
	keys := credentials(env)
	store, err := dynamostore.New(dynamodb.New(dynamodb.Options{
		Region: env("AWS_REGION"), Credentials: keys, BaseEndpoint: endpoint(env("AWS_ENDPOINT_URL_DYNAMODB")),
	}), env("RECORDS_TABLE"), nil)
	if err != nil {
		return nil, fmt.Errorf("RECORDS_TABLE: %w", err)
	}
	if env("BOOKS_TABLE") == "" {
		return nil, errors.New("BOOKS_TABLE is not set")
	}
	client := sqs.New(sqs.Options{Region: env("AWS_REGION"), Credentials: keys, BaseEndpoint: endpoint(env("AWS_ENDPOINT_URL_SQS"))})
	queue, err := awssqs.New(client, env("QUEUE_URL"), nil)
	if err != nil {
		return nil, fmt.Errorf("QUEUE_URL: %w", err)
	}
	dead, err := awssqs.New(client, env("DEAD_LETTER_QUEUE_URL"), nil)
	if err != nil {
		return nil, fmt.Errorf("DEAD_LETTER_QUEUE_URL: %w", err)
	}
	b := &books{store: store, table: env("BOOKS_TABLE")}
	p, err := onceq.NewProcessor(onceq.ProcessorConfig{
		Handler: onceq.JSON(b.pay), Store: store, Scope: "payments", Logger: logger,
		Owner: env("AWS_LAMBDA_LOG_STREAM_NAME"), // a record names the log to look into
	})
	if err != nil {
		return nil, err
	}
	batches, err := p.Batches(onceq.BatchConfig{DeadLetter: dead})
	if err != nil {
		return nil, err
	}
	return sqslambda.Handler(batches, &sqslambda.Options{Queue: queue, Logger: logger})
}

// credentials are the function's, which Lambda puts into the environment for as long as the sandbox
// lasts. (With aws-sdk-go-v2/config, LoadDefaultConfig finds them, and takes some milliseconds of
// each cold start to look elsewhere too.)
func credentials(env func(string) string) aws.CredentialsProvider {
	return aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
		return aws.Credentials{
			AccessKeyID: env("AWS_ACCESS_KEY_ID"), SecretAccessKey: env("AWS_SECRET_ACCESS_KEY"), SessionToken: env("AWS_SESSION_TOKEN"),
		}, nil
	})
}

// endpoint is where a test serves the service; nil = AWS.
func endpoint(url string) *string {
	if url == "" {
		return nil
	}
	return &url
}

func main() {
	h, err := function(os.Getenv)
	if err != nil {
		log.Fatal(err)
	}
	lambda.Start(h)
}
