package snippets

import (
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/stretchr/testify/require"

	"github.com/onceq/onceq/adapters/dynamooutbox"
)

// Where DynamoDB cannot be asked, no order is placed, and the caller is told.
func TestPutOrderWithoutADynamoDB(t *testing.T) {
	c := dynamodb.New(dynamodb.Options{Region: "eu-central-1", BaseEndpoint: aws.String("http://127.0.0.1:1"), Retryer: aws.NopRetryer{}})
	outbox, err := dynamooutbox.New(c, "onceq-outbox", "mail", nil, nil)
	require.NoError(t, err)
	require.Error(t, putOrder(t.Context(), c, outbox, types.TransactWriteItem{}, "A-1"))
}
