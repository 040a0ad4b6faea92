// Package snippets holds the functions that the README and the pages under docs show, so that they
// are compiled and run.
package snippets

import (
	"context"
	"fmt"
	"strconv"

	"github.com/aws/aws-lambda-go/lambda"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/sqslambda"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/dynamostore"
	"github.com/onceq/onceq/dedupe/pgstore"
	"github.com/onceq/onceq/dlq"
)

type order struct {
	SKU    string
	Pieces int
}

func deduct(pool *pgxpool.Pool, store *pgstore.Store) onceq.Handler {
	return onceq.JSON(func(ctx context.Context, j *onceq.Job, o order) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, "UPDATE stock SET n = n - $1 WHERE sku = $2", o.Pieces, o.SKU); err != nil {
				return err
			}
			return store.CompleteTx(ctx, tx, j, nil)
		})
	})
}

func deductItem(store *dynamostore.Store, table string) onceq.Handler {
	return onceq.JSON(func(ctx context.Context, j *onceq.Job, o order) error {
		return store.Commit(ctx, j, nil, types.TransactWriteItem{Update: &types.Update{
			TableName: &table, Key: map[string]types.AttributeValue{"sku": &types.AttributeValueMemberS{Value: o.SKU}},
			UpdateExpression: aws.String("ADD n :less"),
			ExpressionAttributeValues: map[string]types.AttributeValue{
				":less": &types.AttributeValueMemberN{Value: strconv.Itoa(-o.Pieces)},
			},
		}})
	})
}

func serve(store *dynamostore.Store, dead broker.Sender) error {
	p, err := onceq.NewProcessor(onceq.ProcessorConfig{
		Handler: deductItem(store, "stock"), // docs/backend-dynamodb.md shows it
		Store:   store, Scope: "orders",
	})
	if err != nil {
		return err
	}
	batches, err := p.Batches(onceq.BatchConfig{DeadLetter: dead})
	if err != nil {
		return err
	}
	h, err := sqslambda.Handler(batches, nil)
	if err != nil {
		return err
	}
	lambda.Start(h)
	return nil
}

func replay(ctx context.Context, dead, orders broker.Broker) error {
	letters, err := dlq.New(dead, nil)
	if err != nil {
		return err
	}
	groups, err := letters.Group(ctx, dlq.Filter{})
	if err != nil {
		return err
	}
	fmt.Print(groups) // by kind of failure: how many, since when, of which types and sources, the last error
	report, err := letters.Replay(ctx, dlq.ReplayOptions{
		Filter: dlq.Filter{Class: onceq.ClassTimeout}, To: orders, PerSecond: 50, Canary: 5,
	})
	fmt.Println(report)
	return err
}

type bank interface {
	Charge(ctx context.Context, idempotencyKey string, cents int) (receipt string, err error)
}

func pay(ctx context.Context, p *onceq.Processor, b bank, key string, cents int) (receipt string, err error) {
	return onceq.Do(ctx, p, dedupe.Key{Key: key}, nil, func(ctx context.Context, j *onceq.Job) (string, error) {
		return b.Charge(ctx, j.EffectKey("charge"), cents)
	})
}
