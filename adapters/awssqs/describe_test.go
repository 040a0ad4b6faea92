package awssqs_test

import (
	"testing"

	"github.com/onceq/onceq/adapters/awssqs"
	"github.com/onceq/onceq/broker"
)

func TestDescribe(t *testing.T) {
	const url = "https://sqs.us-east-1.amazonaws.com/1/orders.fifo"
	b := makeBroker(t, (&stub{}).client(), url, nil)
	if got, want := b.Describe(), (broker.Description{System: "aws_sqs", Name: "orders.fifo", Address: url}); got != want {
		t.Errorf("it is %+v, want %+v", got, want)
	}
	if got := (*awssqs.Broker)(nil).Describe(); got != (broker.Description{}) {
		t.Errorf("of nil it is %+v", got)
	}
}
