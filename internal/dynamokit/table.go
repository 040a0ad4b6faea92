// Package dynamokit is what the store and the outbox in DynamoDB do alike to their tables: name,
// make and check them. Items, writes and clients are their users' own.
package dynamokit

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/onceq/onceq/internal/retry"
)

// Pause is the one between two looks at a table that is being made; it takes some ten seconds.
const Pause = 250 * time.Millisecond

// tableName matches what DynamoDB takes for a table's name, or an ARN, which names a table of
// another account. IsTableName checks the length, because a counted repetition would cost each
// process 1.4 ms and 350 KB at its start.
var tableName = regexp.MustCompile(`^(?:arn:[a-z0-9-]+:dynamodb:[a-z0-9-]*:[0-9]*:table/)?([a-zA-Z0-9_.-]+)$`)

// IsTableName reports whether DynamoDB takes s for a table's name or ARN.
func IsTableName(s string) bool {
	m := tableName.FindStringSubmatch(s)
	return m != nil && len(m[1]) >= 3 && len(m[1]) <= 255
}

// Table is a table with a partition key and a sort key, both strings.
type Table struct{ Name, Partition, Sort string }

// Definition is the table as it is made, billed by request.
func (t *Table) Definition() *dynamodb.CreateTableInput {
	return &dynamodb.CreateTableInput{
		TableName: &t.Name, BillingMode: types.BillingModePayPerRequest,
		AttributeDefinitions: []types.AttributeDefinition{
			{AttributeName: &t.Partition, AttributeType: types.ScalarAttributeTypeS},
			{AttributeName: &t.Sort, AttributeType: types.ScalarAttributeTypeS},
		},
		KeySchema: []types.KeySchemaElement{
			{AttributeName: &t.Partition, KeyType: types.KeyTypeHash},
			{AttributeName: &t.Sort, KeyType: types.KeyTypeRange},
		},
	}
}

// Create makes the table if there is none, and waits until it can be used, or ctx ends. Many
// starters may call it at once.
func Create(ctx context.Context, c *dynamodb.Client, in *dynamodb.CreateTableInput) (*types.TableDescription, error) {
	for {
		out, err := c.DescribeTable(ctx, &dynamodb.DescribeTableInput{TableName: in.TableName})
		switch {
		case errors.As(err, new(*types.ResourceNotFoundException)):
			// Another starter may be as quick, and one that was just deleted may still be there.
			if _, err := c.CreateTable(ctx, in); err != nil && !errors.As(err, new(*types.ResourceInUseException)) {
				return nil, err
			}
		case err != nil:
			return nil, err
		case out.Table.TableStatus == types.TableStatusActive, out.Table.TableStatus == types.TableStatusUpdating:
			return out.Table, nil
		}
		if !retry.Rest(ctx, Pause) {
			return nil, fmt.Errorf("table %s is not there yet", *in.TableName)
		}
	}
}

// CheckKey refuses a table that was made for something else.
func (t *Table) CheckKey(d *types.TableDescription) error {
	has := make(map[string]string)
	for _, k := range d.KeySchema {
		has[aws.ToString(k.AttributeName)] = string(k.KeyType)
	}
	for _, a := range d.AttributeDefinitions {
		if n := aws.ToString(a.AttributeName); has[n] != "" {
			has[n] += " " + string(a.AttributeType)
		}
	}
	if len(has) == 2 && has[t.Partition] == "HASH S" && has[t.Sort] == "RANGE S" {
		return nil
	}
	return fmt.Errorf("table %s has the key %v, want the partition key %q and the sort key %q, both strings: it was made for something else",
		t.Name, has, t.Partition, t.Sort)
}
