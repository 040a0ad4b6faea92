package awssqs_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/onceq/onceq/adapters/awssqs"
	"github.com/onceq/onceq/broker"
)

// A Broker that New did not make, such as the one beside an error that nobody looked at, answers as
// a closed one.
func TestBrokerThatNewDidNotMake(t *testing.T) {
	for name, b := range map[string]*awssqs.Broker{"nil": nil, "zero": {}} {
		ctx := t.Context()
		_, received := b.Receive(ctx, broker.ReceiveOptions{Max: 1})
		_, sent := b.Send(ctx, []broker.Outgoing{sized(1)})
		_, depth := b.Depth(ctx)
		_, policy := b.Redrive(ctx)
		_, _, checked := b.Check(ctx, awssqs.CheckOptions{})
		_, visibility := b.VisibilityTimeout(ctx)
		_, started := b.StartRedrive(ctx, nil)
		_, listed := b.RedriveTasks(ctx)
		_, cancelled := b.CancelRedrive(ctx, "h")
		holds := []broker.Hold{{Receipt: "r", For: time.Second}}
		for call, err := range map[string]error{
			"Receive": received, "Send": sent, "Depth": depth, "Redrive": policy, "Check": checked, "VisibilityTimeout": visibility,
			"StartRedrive": started, "RedriveTasks": listed, "CancelRedrive": cancelled,
			"Ack": b.Ack(ctx, []broker.Receipt{"r"}), "Nack": b.Nack(ctx, holds), "Extend": b.Extend(ctx, holds),
		} {
			if !errors.Is(err, broker.ErrClosed) {
				t.Errorf("%s: %s is answered %v", name, call, err)
			}
		}
		if b.URL() != "" || b.Name() != "" || b.HasARN("arn:aws:sqs:us-east-1:123456789012:orders") || b.Close() != nil ||
			b.Limits() != (broker.Limits{}) || b.Stats() != (awssqs.Stats{}) {
			t.Errorf("%s: it tells of a queue", name)
		}
		if err := b.Ack(ctx, nil); err != nil {
			t.Errorf("%s: an ack of nothing is answered %v", name, err)
		}
	}
	if _, err := awssqs.Find(t.Context(), nil, "orders"); err == nil || !strings.Contains(err.Error(), "client is nil") {
		t.Errorf("Find without a client is answered %v", err)
	}
}
