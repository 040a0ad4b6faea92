package awssqs_test

import (
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/onceq/onceq/adapters/awssqs"
	"github.com/onceq/onceq/broker"
)

// The rule: an answer that redirects costs one request and is an error, for each call, client and
// transport. Else a proxy that redirects to itself gets a storm of requests, and one that names
// another host gets messages and the session's token.
func TestRedirectIsNotFollowed(t *testing.T) {
	for name, transport := range map[string]awssqs.Transport{"SDK": awssqs.TransportSDK, "lean": awssqs.TransportLean} {
		for client, hc := range map[string]sqs.HTTPClient{"the SDK's": awshttp.NewBuildableClient(), "http.Client": &http.Client{}} {
			t.Run(name+" "+client, func(t *testing.T) {
				var requests atomic.Int32
				srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if requests.Add(1) < 5 {
						http.Redirect(w, r, "/again", http.StatusPermanentRedirect)
					}
				}))
				defer srv.Close()
				b := makeBroker(t, newClient(srv.URL, func(o *sqs.Options) { o.HTTPClient = hc }), srv.URL+"/0/orders", &awssqs.Options{Transport: transport})
				for call, f := range map[string]func() error{
					"Receive": func() error {
						_, err := b.Receive(t.Context(), broker.ReceiveOptions{Max: 1, Visibility: time.Minute})
						return err
					},
					"Ack":    func() error { return b.Ack(t.Context(), []broker.Receipt{"r"}) },
					"Extend": func() error { return b.Extend(t.Context(), []broker.Hold{{Receipt: "r", For: time.Minute}}) },
					"Send": func() error {
						_, err := b.Send(t.Context(), []broker.Outgoing{{Body: []byte("x")}})
						return err
					},
					"Depth": func() error {
						_, err := b.Depth(t.Context())
						return err
					},
				} {
					requests.Store(0)
					if err := f(); err == nil || requests.Load() != 1 {
						t.Errorf("%s: %d requests, and the answer is %v", call, requests.Load(), err)
					}
				}
			})
		}
	}
}
