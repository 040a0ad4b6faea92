package awssqs_test

import (
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/onceq/onceq/adapters/awssqs"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/testserver/testaws"
)

// The rule holds for each call, client and transport.
func TestRedirectIsNotFollowed(t *testing.T) {
	for name, transport := range map[string]awssqs.Transport{"SDK": awssqs.TransportSDK, "lean": awssqs.TransportLean} {
		t.Run(name, func(t *testing.T) {
			testaws.NoRedirect(t, func(t *testing.T, url string, hc aws.HTTPClient) map[string]func() error {
				b := makeBroker(t, newClient(url, func(o *sqs.Options) { o.HTTPClient = hc }), url+"/0/orders", &awssqs.Options{Transport: transport})
				return map[string]func() error{
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
				}
			})
		})
	}
}
