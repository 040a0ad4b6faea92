package dynamooutbox

import (
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/onceq/onceq/internal/testserver/testaws"
)

func TestRedirectIsNotFollowed(t *testing.T) {
	testaws.NoRedirect(t, func(t *testing.T, url string, hc aws.HTTPClient) map[string]func() error {
		c := dynamodb.New(dynamodb.Options{
			Region: "us-east-1", BaseEndpoint: &url, Credentials: aws.CredentialsProviderFunc(credentials), HTTPClient: hc,
		})
		b := newOutbox(t, c, testTable, testQueue, newLeases(t), nil)
		return map[string]func() error{"Depth": func() error {
			_, err := b.Depth(t.Context())
			return err
		}}
	})
}
