package gocloudpubsub_test

import (
	"context"
	"errors"
	"flag"
	"testing"
	"time"

	"gocloud.dev/pubsub"

	"github.com/onceq/onceq/adapters/gocloudpubsub"
)

// TestMain lets more tests wait at a time than there are processors: in real time they wait for
// timeouts.
func TestMain(m *testing.M) {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == parallel })
	if !given {
		if err := flag.Set(parallel, "256"); err != nil {
			panic(err)
		}
	}
	m.Run()
}

// parallel is go test's flag.
const parallel = "test.parallel"

// makeBroker is a Broker that ends with the test, with all that gocloud began: some of its drivers
// sleep for a while after an empty look.
func makeBroker(t testing.TB, topic *pubsub.Topic, sub *pubsub.Subscription, o *gocloudpubsub.Options) *gocloudpubsub.Broker {
	t.Helper()
	b, err := gocloudpubsub.NewBroker(topic, sub, o)
	if err != nil {
		t.Fatal(err)
	}
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
