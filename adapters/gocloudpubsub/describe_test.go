package gocloudpubsub_test

import (
	"testing"
	"time"

	"github.com/onceq/onceq/adapters/gocloudpubsub"
	"github.com/onceq/onceq/broker"
)

func TestDescribe(t *testing.T) {
	q := &tiny{}
	const url = "https://sqs.us-east-1.amazonaws.com/1/orders"
	for queue, want := range map[string]broker.Description{
		"":  {System: "gocloud"},
		url: {System: "gocloud", Name: "orders", Address: url},
	} {
		b, err := gocloudpubsub.NewBroker(q.topic(), q.subscribe(nil), &gocloudpubsub.Options{Reopen: never, Visibility: time.Minute, Queue: queue})
		if err != nil {
			t.Fatal(err)
		}
		if got := b.Describe(); got != want {
			t.Errorf("with Queue %q it is %+v, want %+v", queue, got, want)
		}
	}
	if got := (*gocloudpubsub.Broker)(nil).Describe(); got != (broker.Description{}) {
		t.Errorf("of nil it is %+v", got)
	}
}
