package dynamooutbox_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/dynamooutbox"
	"github.com/onceq/onceq/broker"
)

// The order and its job are written together, or neither is.
func ExampleOutbox_Items() {
	client := dynamodb.New(dynamodb.Options{Region: "eu-central-1"})
	outbox, err := dynamooutbox.New(client, "onceq-outbox", "mail", nil, nil) // a producer has no leases
	if err != nil {
		fmt.Println(err)
		return
	}
	order := types.TransactWriteItem{Put: &types.Put{
		TableName: aws.String("orders"), Item: map[string]types.AttributeValue{"id": &types.AttributeValueMemberS{Value: "A-1"}},
		ConditionExpression: aws.String("attribute_not_exists(id)"),
	}}
	job := onceq.Message("mail", "A-1", []byte(`{"order": "A-1"}`))
	job.Group, job.Attributes = "A-1", map[string]string{dynamooutbox.SequenceAttribute: "1"}
	jobs, err := outbox.Items(job)
	if err != nil {
		fmt.Println(err)
		return
	}
	in := &dynamodb.TransactWriteItemsInput{TransactItems: append(jobs, order), ClientRequestToken: aws.String("order-A-1")}
	write := func(ctx context.Context) error { // not here, where there is no table
		_, err := client.TransactWriteItems(ctx, in)
		outbox.Wake() // where the relay is in this process
		return err
	}
	_ = write
	fmt.Println(len(in.TransactItems), *jobs[0].Put.TableName)
	// Output: 2 onceq-outbox
}

// What no transaction can carry is refused before it.
func ExampleNew() {
	client := dynamodb.New(dynamodb.Options{Region: "eu-central-1"})
	outbox, err := dynamooutbox.New(client, "onceq-outbox", "mail", nil, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = outbox.Items(broker.Outgoing{Body: make([]byte, 500_000)})
	fmt.Println(errors.Is(err, broker.ErrTooLarge))

	_, err = dynamooutbox.New(client, "onceq-outbox", "mail", nil, &dynamooutbox.Options{Partitions: 500})
	fmt.Println(err)
	// Output:
	// true
	// dynamooutbox: Options.Partitions: 500 is not within 1 and 128
}
