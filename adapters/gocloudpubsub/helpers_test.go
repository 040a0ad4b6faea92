package gocloudpubsub_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"gocloud.dev/pubsub"

	"github.com/onceq/onceq/adapters/gocloudpubsub"
	"github.com/onceq/onceq/adapters/gocloudpubsub/internal/gocloudtest"
	"github.com/onceq/onceq/internal/must"
)

func TestMain(m *testing.M) { gocloudtest.Main(m) }

// makeBroker is a Broker that ends with the test, with all that gocloud began: some of its drivers
// sleep for a while after an empty look.
func makeBroker(t testing.TB, topic *pubsub.Topic, sub *pubsub.Subscription, o gocloudpubsub.Options) *gocloudpubsub.Broker {
	t.Helper()
	b := must.Get(gocloudpubsub.New(topic, sub, o))
	t.Cleanup(func() {
		letGo(sub)
		b.Close()
		<-time.After(time.Second)
	})
	return b
}

// letGo frees the goroutine in which gocloud (0.47, pubsub.go) tells a Receive of new messages. It
// stays for ever where a Receive found them without being told, and no other one came.
func letGo(subs ...*pubsub.Subscription) {
	for _, s := range subs {
		ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
		for {
			if _, err := s.Receive(ctx); err != nil {
				break
			}
		}
		cancel()
	}
}

// never is for subscriptions that do not fail.
func never(context.Context) (*pubsub.Subscription, error) {
	return nil, errors.New("it should not have failed")
}
