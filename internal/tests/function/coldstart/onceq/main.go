// Command onceq is the function that is measured beside the one written by hand.
package main

import (
	"context"
	"log"
	"os"

	"github.com/aws/aws-lambda-go/lambda"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/sqslambda"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/dynamostore"
)

type order struct{ ID string }

func main() {
	db := dynamodb.New(dynamodb.Options{
		Region: os.Getenv("AWS_REGION"), BaseEndpoint: aws.String(os.Getenv("AWS_ENDPOINT_URL_DYNAMODB")),
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: os.Getenv("AWS_ACCESS_KEY_ID"), SecretAccessKey: os.Getenv("AWS_SECRET_ACCESS_KEY")}, nil
		}),
	})
	store, err := dynamostore.New(db, os.Getenv("RECORDS_TABLE"), nil)
	if err != nil {
		log.Fatal(err)
	}
	p, err := onceq.NewProcessor(onceq.ProcessorConfig{
		Handler: onceq.JSON(func(context.Context, *onceq.Job, order) error { return nil }),
		Store:   store, Scope: "onceq",
		// Each start has a message of its own.
		Key: func(m *broker.Message) (dedupe.Key, error) { return dedupe.Key{Key: m.ID}, nil },
	})
	if err != nil {
		log.Fatal(err)
	}
	b, err := p.Batches(onceq.BatchConfig{DeadLetter: onceq.KeepInQueue})
	if err != nil {
		log.Fatal(err)
	}
	h, err := sqslambda.Handler(b, nil)
	if err != nil {
		log.Fatal(err)
	}
	lambda.Start(h)
}
