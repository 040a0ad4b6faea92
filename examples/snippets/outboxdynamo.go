package snippets

import (
	"context"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/dynamooutbox"
)

// putOrder writes an order and its job in one transaction: both are there, or neither.
func putOrder(
	ctx context.Context, c *dynamodb.Client, outbox *dynamooutbox.Outbox, order types.TransactWriteItem, id string,
) error {
	job := onceq.Message("ship", id, nil)
	job.Group, job.Attributes = id, map[string]string{dynamooutbox.SequenceAttribute: "1"}
	jobs, err := outbox.Items(job)
	if err != nil {
		return err
	}
	in := &dynamodb.TransactWriteItemsInput{TransactItems: append(jobs, order)}
	_, err = c.TransactWriteItems(ctx, in)
	outbox.Wake() // where the relay is in this process
	return err
}
