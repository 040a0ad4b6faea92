// Command raw is a function written by hand on aws-lambda-go and the SDK, that does what the one
// beside it does: a conditional write before the job, one after it, and the failures reported. It
// has no fence, no attempts, no dead letters, and takes its clock as it is.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"log"
	"os"
	"strconv"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-lambda-go/lambda"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

type order struct{ ID string }

type function struct {
	db    *dynamodb.Client
	table string
}

func (f *function) handle(ctx context.Context, e events.SQSEvent) (events.SQSEventResponse, error) {
	r := events.SQSEventResponse{BatchItemFailures: []events.SQSBatchItemFailure{}}
	for i := range e.Records {
		if err := f.record(ctx, &e.Records[i]); err != nil {
			log.Print(err)
			r.BatchItemFailures = append(r.BatchItemFailures, events.SQSBatchItemFailure{ItemIdentifier: e.Records[i].MessageId})
		}
	}
	return r, nil
}

func (f *function) record(ctx context.Context, m *events.SQSMessage) error {
	var o order
	if err := json.Unmarshal([]byte(m.Body), &o); err != nil {
		return err
	}
	now := time.Now()
	number := func(t time.Time) types.AttributeValue {
		return &types.AttributeValueMemberN{Value: strconv.FormatInt(t.Unix(), 10)}
	}
	key := map[string]types.AttributeValue{"key": &types.AttributeValueMemberS{Value: o.ID}, "scope": &types.AttributeValueMemberS{Value: "raw"}}
	_, err := f.db.PutItem(ctx, &dynamodb.PutItemInput{
		TableName: &f.table,
		Item: map[string]types.AttributeValue{
			"key": key["key"], "scope": key["scope"], "status": &types.AttributeValueMemberS{Value: "claimed"}, "lease_until": number(now.Add(time.Minute)),
		},
		ConditionExpression:                 aws.String("attribute_not_exists(#k) OR (#s = :claimed AND lease_until < :now)"),
		ExpressionAttributeNames:            map[string]string{"#k": "key", "#s": "status"},
		ExpressionAttributeValues:           map[string]types.AttributeValue{":claimed": &types.AttributeValueMemberS{Value: "claimed"}, ":now": number(now)},
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	})
	if held := (*types.ConditionalCheckFailedException)(nil); errors.As(err, &held) {
		if s, ok := held.Item["status"].(*types.AttributeValueMemberS); ok && s.Value == "done" {
			return nil
		}
	}
	if err != nil {
		return err
	}
	_, err = f.db.UpdateItem(ctx, &dynamodb.UpdateItemInput{
		TableName: &f.table, Key: key,
		UpdateExpression:          aws.String("SET #s = :done, expires_at = :expires"),
		ConditionExpression:       aws.String("#s = :claimed"),
		ExpressionAttributeNames:  map[string]string{"#s": "status"},
		ExpressionAttributeValues: map[string]types.AttributeValue{":claimed": &types.AttributeValueMemberS{Value: "claimed"}, ":done": &types.AttributeValueMemberS{Value: "done"}, ":expires": number(now.Add(31 * 24 * time.Hour))},
	})
	return err
}

func main() {
	db := dynamodb.New(dynamodb.Options{
		Region: os.Getenv("AWS_REGION"), BaseEndpoint: aws.String(os.Getenv("AWS_ENDPOINT_URL_DYNAMODB")),
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: os.Getenv("AWS_ACCESS_KEY_ID"), SecretAccessKey: os.Getenv("AWS_SECRET_ACCESS_KEY")}, nil
		}),
	})
	lambda.Start((&function{db, os.Getenv("RECORDS_TABLE")}).handle)
}
