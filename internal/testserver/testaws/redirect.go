package testaws

import (
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
)

// NoRedirect checks that an answer that redirects costs one request and is an error. Else whoever
// it names gets what is sent, and the session's token, and a proxy that redirects to itself gets a
// storm of requests. calls makes the calls of a client of url, for each HTTP client that users
// have.
func NoRedirect(t *testing.T, calls func(t *testing.T, url string, hc aws.HTTPClient) map[string]func() error) {
	for client, hc := range map[string]aws.HTTPClient{"the SDK's": awshttp.NewBuildableClient(), "http.Client": &http.Client{}} {
		t.Run(client, func(t *testing.T) {
			var requests atomic.Int32
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if requests.Add(1) < 5 {
					http.Redirect(w, r, "/again", http.StatusPermanentRedirect)
				}
			}))
			defer srv.Close()
			for call, f := range calls(t, srv.URL, hc) {
				requests.Store(0)
				if err := f(); err == nil || requests.Load() != 1 {
					t.Errorf("%s: %d requests, and the answer is %v", call, requests.Load(), err)
				}
			}
		})
	}
}
