package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/dynamostore"
	"github.com/onceq/onceq/examples/internal/shop"
)

// This file owns the till on DynamoDB: the tables, a charge with its record in one transaction, and
// the audit. The demo's process makes and audits it, and each worker's process charges, from many
// goroutines. Nothing is locked here, because the transaction decides. sqlite.go is the other till.

// The tables of the demo on DynamoDB.
const (
	recordsTable = "onceq-demo-records"
	chargesTable = "onceq-demo-charges"
)

// dynamoTill is a table of charges beside that of the records.
type dynamoTill struct {
	endpoint string
	client   *dynamodb.Client
	s        *dynamostore.Store
}

func openDynamoTill(endpoint string) (till, error) {
	c := dynamodb.New(dynamodb.Options{
		BaseEndpoint: &endpoint, Region: "us-east-1",
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: "test", SecretAccessKey: "test"}, nil
		}),
	})
	s, err := dynamostore.New(c, recordsTable, nil)
	if err != nil {
		return nil, err
	}
	return &dynamoTill{endpoint, c, s}, nil
}

func (t *dynamoTill) store() dedupe.Store { return t.s }

// charge puts each charge under a number of its own: under the order's alone, a second one would
// hide behind the first.
func (t *dynamoTill) charge(ctx context.Context, j *onceq.Job, o shop.Order, itemCents int64, worker string) error {
	text := func(s string) types.AttributeValue { return &types.AttributeValueMemberS{Value: s} }
	number := func(n int64) types.AttributeValue {
		return &types.AttributeValueMemberN{Value: strconv.FormatInt(n, 10)}
	}
	return t.s.Commit(ctx, j, nil, types.TransactWriteItem{Put: &types.Put{
		TableName: new(chargesTable),
		Item: map[string]types.AttributeValue{
			"order": text(o.ID), "number": text(rand.Text()), "customer": text(o.Customer), "cents": number(o.Cents),
			"currency": text(o.Currency), "item_cents": number(itemCents), "worker": text(worker),
		},
	}})
}

func (t *dynamoTill) make(ctx context.Context, fresh bool) error {
	if fresh {
		if err := t.drop(ctx); err != nil {
			return err
		}
	}
	if err := t.s.CreateTable(ctx); err != nil {
		return err
	}
	_, err := t.client.CreateTable(ctx, &dynamodb.CreateTableInput{
		TableName: new(chargesTable), BillingMode: types.BillingModePayPerRequest,
		AttributeDefinitions: []types.AttributeDefinition{
			{AttributeName: new("order"), AttributeType: types.ScalarAttributeTypeS},
			{AttributeName: new("number"), AttributeType: types.ScalarAttributeTypeS},
		},
		KeySchema: []types.KeySchemaElement{
			{AttributeName: new("order"), KeyType: types.KeyTypeHash},
			{AttributeName: new("number"), KeyType: types.KeyTypeRange},
		},
	})
	if there := (*types.ResourceInUseException)(nil); err != nil && !errors.As(err, &there) {
		return err
	}
	return dynamodb.NewTableExistsWaiter(t.client).Wait(ctx, &dynamodb.DescribeTableInput{TableName: new(chargesTable)}, time.Minute)
}

// drop deletes the tables.
func (t *dynamoTill) drop(ctx context.Context) error {
	for _, table := range []string{recordsTable, chargesTable} {
		_, err := t.client.DeleteTable(ctx, &dynamodb.DeleteTableInput{TableName: &table})
		if gone := (*types.ResourceNotFoundException)(nil); errors.As(err, &gone) {
			continue
		}
		if err == nil {
			err = dynamodb.NewTableNotExistsWaiter(t.client).Wait(ctx, &dynamodb.DescribeTableInput{TableName: &table}, time.Minute)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (t *dynamoTill) audit(ctx context.Context, rows []shop.Row, letters map[string]string) (*shop.Audit, error) {
	return auditCopy(ctx, rows, letters, func(put putCharge) error {
		pages := dynamodb.NewScanPaginator(t.client, &dynamodb.ScanInput{TableName: new(chargesTable), ConsistentRead: new(true)})
		for pages.HasMorePages() {
			page, err := pages.NextPage(ctx)
			if err != nil {
				return err
			}
			for _, it := range page.Items {
				o := shop.Order{ID: text(it["order"]), Customer: text(it["customer"]), Currency: text(it["currency"])}
				var itemCents int64
				for attribute, n := range map[string]*int64{"cents": &o.Cents, "item_cents": &itemCents} {
					if *n, err = strconv.ParseInt(text(it[attribute]), 10, 64); err != nil {
						return fmt.Errorf("the charge of %s: %s: %w", o.ID, attribute, err)
					}
				}
				if err := put(o, itemCents, text(it["worker"])); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

func (t *dynamoTill) where() string { return "DynamoDB at " + t.endpoint + ", table " + chargesTable }

// text is an attribute's, or its number; empty where there is none.
func text(v types.AttributeValue) string {
	switch v := v.(type) {
	case *types.AttributeValueMemberS:
		return v.Value
	case *types.AttributeValueMemberN:
		return v.Value
	}
	return ""
}

func (t *dynamoTill) close() { _ = t.s.Close() }
