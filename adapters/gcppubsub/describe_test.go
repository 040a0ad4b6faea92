package gcppubsub_test

import (
	"testing"

	"github.com/onceq/onceq/adapters/gcppubsub"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/must"
)

func TestDescribe(t *testing.T) {
	const topic, sub = "projects/acme/topics/orders", "projects/acme/subscriptions/orders-charge"
	for _, c := range []struct {
		topic, sub string
		want       broker.Description
	}{
		{topic, sub, broker.Description{System: "gcp_pubsub", Name: "orders-charge", Address: sub}},
		{"", sub, broker.Description{System: "gcp_pubsub", Name: "orders-charge", Address: sub}},
		{topic, "", broker.Description{System: "gcp_pubsub", Name: "orders", Address: topic}},
	} {
		b := must.Get(gcppubsub.New(&stub{}, c.topic, c.sub, nil))
		if got := b.Describe(); got != c.want {
			t.Errorf("%q, %q: it is %+v, want %+v", c.topic, c.sub, got, c.want)
		}
	}
	if got := (*gcppubsub.Broker)(nil).Describe(); got != (broker.Description{}) {
		t.Errorf("of nil it is %+v", got)
	}
}
