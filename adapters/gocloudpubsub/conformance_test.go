package gocloudpubsub_test

import (
	"context"
	"testing"
	"time"

	"gocloud.dev/pubsub"
	"gocloud.dev/pubsub/mempubsub"

	"github.com/onceq/onceq/adapters/gocloudpubsub"
	"github.com/onceq/onceq/broker/brokertest"
)

// TestConformanceMemory checks the Broker on gocloud's driver in memory, in virtual time: once with
// all that gocloud receives ahead, and once without.
func TestConformanceMemory(t *testing.T) {
	for _, c := range []struct {
		name string
		o    mempubsub.SubscriptionOptions
	}{{name: "prefetch"}, {"no-prefetch", mempubsub.SubscriptionOptions{ReceiveBatcherOptions: gocloudpubsub.NoPrefetch}}} {
		t.Run(c.name, func(t *testing.T) {
			brokertest.Run(t, brokertest.Harness{
				Virtual: true,
				Slack:   poll + time.Millisecond,
				Open: func(t testing.TB, o brokertest.QueueOptions) brokertest.Queue {
					topic := mempubsub.NewTopic()
					sub := mempubsub.NewSubscriptionWithOptions(topic, o.Visibility, &c.o)
					b := makeBroker(t, topic, sub, &gocloudpubsub.Options{Visibility: o.Visibility, Reopen: never})
					return brokertest.Queue{
						Broker: b, Close: b.Close,
						SendRaw: func(ctx context.Context, body []byte, as map[string]string) error {
							return topic.Send(ctx, &pubsub.Message{Body: body, Metadata: as})
						},
					}
				},
				Known: map[string]string{
					"receive-wait": "a Receive with a Wait of 0 waits for 250 ms, because gocloud receives in the background",
				},
			})
		})
	}
}

// poll is how often mempubsub looks.
const poll = 250 * time.Millisecond
