package dynamostore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/onceq/onceq/internal/retry"
)

// tablePause is the one between two looks at a table that is being made; it takes some ten seconds.
const tablePause = 250 * time.Millisecond

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
	fail := func(err error) error { return s.explain(ctx, "CreateTable", err) }
	for {
		out, err := s.client.DescribeTable(ctx, &dynamodb.DescribeTableInput{TableName: &s.table})
		switch {
		case errors.As(err, new(*types.ResourceNotFoundException)):
			// Another starter may be as quick, and one that was just deleted may still be there.
			if _, err := s.client.CreateTable(ctx, s.newTable()); err != nil && !errors.As(err, new(*types.ResourceInUseException)) {
				return fail(err)
			}
		case err != nil:
			return fail(err)
		case out.Table.TableStatus == types.TableStatusActive, out.Table.TableStatus == types.TableStatusUpdating:
			if err := cmp.Or(s.checkKey(out.Table), s.checkIndex(out.Table)); err != nil {
				return fmt.Errorf("dynamostore: CreateTable: %w", err)
			}
			return s.expire(ctx)
		}
		if !retry.Rest(ctx, tablePause) {
			return fail(fmt.Errorf("table %s is not there yet", s.table))
		}
	}
}

func (s *Store) newTable() *dynamodb.CreateTableInput {
	in := &dynamodb.CreateTableInput{
		TableName: &s.table, BillingMode: types.BillingModePayPerRequest,
		AttributeDefinitions: []types.AttributeDefinition{
			{AttributeName: aws.String(attrKey), AttributeType: types.ScalarAttributeTypeS},
			{AttributeName: aws.String(attrScope), AttributeType: types.ScalarAttributeTypeS},
		},
		KeySchema: []types.KeySchemaElement{
			{AttributeName: aws.String(attrKey), KeyType: types.KeyTypeHash},
			{AttributeName: aws.String(attrScope), KeyType: types.KeyTypeRange},
		},
	}
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

// checkKey refuses a table that was made for something else.
func (s *Store) checkKey(t *types.TableDescription) error {
	has := make(map[string]string)
	for _, k := range t.KeySchema {
		has[deref(k.AttributeName)] = string(k.KeyType)
	}
	for _, a := range t.AttributeDefinitions {
		if n := deref(a.AttributeName); has[n] != "" {
			has[n] += " " + string(a.AttributeType)
		}
	}
	if len(has) == 2 && has[attrKey] == "HASH S" && has[attrScope] == "RANGE S" {
		return nil
	}
	return fmt.Errorf("table %s has the key %v, want the partition key %q and the sort key %q, both strings: it was made for something else",
		s.table, has, attrKey, attrScope)
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
		if !retry.Rest(ctx, tablePause) {
			return s.explain(ctx, "CreateTable: switching on the expiry", err)
		}
	}
}
