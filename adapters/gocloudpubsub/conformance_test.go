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
	}{{name: "prefetch"}, {"no-prefetch", mempubsub.SubscriptionOptions{ReceiveBatcherOptions: gocloudpubsub.NoPrefetch()}}} {
		t.Run(c.name, func(t *testing.T) {
			h := brokertest.Harness{
				Slack: poll + time.Millisecond,
				Open: func(t testing.TB, o brokertest.QueueOptions) brokertest.Queue {
					topic := mempubsub.NewTopic()
					sub := mempubsub.NewSubscriptionWithOptions(topic, o.Visibility, &c.o)
					b := makeBroker(t, topic, sub, gocloudpubsub.Options{Visibility: o.Visibility, Reopen: never})
					return brokertest.Queue{
						Broker: b,
						Close: func() error {
							letGo(sub)
							return b.Close()
						},
						SendRaw: func(ctx context.Context, body []byte, as map[string]string) error {
							return topic.Send(ctx, &pubsub.Message{Body: body, Metadata: as})
						},
					}
				},
				Known: map[string]string{"published-is-the-send": untold},
			}
			virtual(&h)
			brokertest.Run(t, h)
		})
	}
}

// untold is why a driver that the Broker does not know has no time of publishing.
const untold = "gocloud does not say when a message was published"

// poll is how often mempubsub looks.
const poll = 250 * time.Millisecond
