package dynamooutbox

import (
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
)

// The rule: an answer that redirects costs one request and is an error. Else whoever it names gets
// the messages and the session's token.
func TestRedirectIsNotFollowed(t *testing.T) {
	for name, hc := range map[string]dynamodb.HTTPClient{"the SDK's": awshttp.NewBuildableClient(), "http.Client": &http.Client{}} {
		var requests atomic.Int32
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if requests.Add(1) < 5 {
				http.Redirect(w, r, "/again", http.StatusPermanentRedirect)
			}
		}))
		c := dynamodb.New(dynamodb.Options{
			Region: "us-east-1", BaseEndpoint: &srv.URL, Credentials: aws.CredentialsProviderFunc(credentials), HTTPClient: hc,
		})
		b := newOutbox(t, c, testTable, testQueue, newLeases(t), nil)
		if _, err := b.Depth(t.Context()); err == nil || requests.Load() != 1 {
			t.Errorf("%s: %d requests, and the answer is %v", name, requests.Load(), err)
		}
		srv.Close()
	}
}
