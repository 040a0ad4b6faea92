package dynamostore

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/onceq/onceq/internal/dynamokit"
	"github.com/onceq/onceq/internal/retry"
)

// CreateTable makes the store's table if there is none, billed by request, and switches on its
// expiry. It waits until both can be used, or ctx ends. It may be called at every start, by many
// starters at once. A table that is there stays as it is, but for the expiry. One with another key,
// or another TTL attribute, is an error. It needs the rights dynamodb:CreateTable, DescribeTable,
// DescribeTimeToLive and UpdateTimeToLive. The package comment has the same in Terraform and
// CloudFormation.
func (s *Store) CreateTable(ctx context.Context) error {
	if err := s.ready(ctx, 0); err != nil {
		return err
	}
	d, err := dynamokit.Create(ctx, s.client, s.newTable())
	if err != nil {
		return s.explain(ctx, "CreateTable", err)
	}
	if err := cmp.Or(s.keys().CheckKey(d), s.checkIndex(d)); err != nil {
		return fmt.Errorf("dynamostore: CreateTable: %w", err)
	}
	return s.expire(ctx)
}

func (s *Store) keys() *dynamokit.Table {
	return &dynamokit.Table{Name: s.table, Partition: attrKey, Sort: attrScope}
}

func (s *Store) newTable() *dynamodb.CreateTableInput {
	in := s.keys().Definition()
	if s.attentionIndex != "" {
		in.AttributeDefinitions = append(in.AttributeDefinitions,
			types.AttributeDefinition{AttributeName: aws.String(attrAttention), AttributeType: types.ScalarAttributeTypeS})
		in.GlobalSecondaryIndexes = []types.GlobalSecondaryIndex{{
			IndexName:  &s.attentionIndex,
			KeySchema:  []types.KeySchemaElement{{AttributeName: aws.String(attrAttention), KeyType: types.KeyTypeHash}},
			Projection: &types.Projection{ProjectionType: types.ProjectionTypeKeysOnly},
		}}
	}
	return in
}

// checkIndex refuses a table without the index that Options name, because every list would fail.
func (s *Store) checkIndex(t *types.TableDescription) error {
	if s.attentionIndex == "" {
		return nil
	}
	for _, i := range t.GlobalSecondaryIndexes {
		if deref(i.IndexName) != s.attentionIndex {
			continue
		}
		if len(i.KeySchema) != 1 || deref(i.KeySchema[0].AttributeName) != attrAttention || i.KeySchema[0].KeyType != types.KeyTypeHash {
			return fmt.Errorf("index %s of table %s has another key, want the partition key %q alone", s.attentionIndex, s.table, attrAttention)
		}
		return nil
	}
	return fmt.Errorf("table %s has no index %s, which Options.AttentionIndex names: add it (partition key %q, a string; projection KEYS_ONLY), or leave the option out",
		s.table, s.attentionIndex, attrAttention)
}

// expire switches on the expiry.
func (s *Store) expire(ctx context.Context) error {
	const tries = 20
	for n := 1; ; n++ {
		out, err := s.client.DescribeTimeToLive(ctx, &dynamodb.DescribeTimeToLiveInput{TableName: &s.table})
		if err != nil {
			return s.explain(ctx, "CreateTable: reading the expiry", err)
		}
		d := out.TimeToLiveDescription
		if d == nil {
			d = &types.TimeToLiveDescription{}
		}
		switch d.TimeToLiveStatus {
		case types.TimeToLiveStatusEnabled, types.TimeToLiveStatusEnabling:
			if deref(d.AttributeName) != s.ttl {
				return fmt.Errorf("dynamostore: CreateTable: table %s expires by attribute %q, want %q: name it in Options.TTLAttribute",
					s.table, deref(d.AttributeName), s.ttl)
			}
			return nil
		default: // off, or being switched off
		}
		_, err = s.client.UpdateTimeToLive(ctx, &dynamodb.UpdateTimeToLiveInput{TableName: &s.table, TimeToLiveSpecification: &types.TimeToLiveSpecification{
			AttributeName: &s.ttl, Enabled: aws.Bool(true),
		}})
		switch {
		case err == nil:
			return nil
		// Another starter may have been quicker, or the table just be changing.
		case n < tries && (isInvalid(err, "TimeToLive", "Time to live") || errors.As(err, new(*types.ResourceInUseException))):
		default:
			return s.explain(ctx, "CreateTable: switching on the expiry", err)
		}
		if !retry.Rest(ctx, dynamokit.Pause) {
			return s.explain(ctx, "CreateTable: switching on the expiry", err)
		}
	}
}
