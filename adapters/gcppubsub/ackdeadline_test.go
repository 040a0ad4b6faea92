package gcppubsub_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/onceq/onceq/adapters/gcppubsub"
	"github.com/onceq/onceq/adapters/gcppubsub/pubsubpush"
	"github.com/onceq/onceq/broker"
)

// A push endpoint compares its deadline with the subscription's.
var _ pubsubpush.Subscription = (*gcppubsub.Broker)(nil)

func TestAckDeadline(t *testing.T) {
	sub := &pubsubpb.Subscription{Name: stubSubscription, AckDeadlineSeconds: 60}
	var failure error
	b, _ := stubbed(t, &gcppubsub.Options{Visibility: 20 * time.Second}, func(_ context.Context, in proto.Message) (proto.Message, error) {
		if _, ok := in.(*pubsubpb.GetSubscriptionRequest); !ok {
			t.Errorf("it asks for %T", in)
		}
		return sub, failure
	})
	if d, err := b.AckDeadline(t.Context()); d != time.Minute || err != nil {
		t.Errorf("%v, %v: not the subscription's own", d, err)
	}
	sub.AckDeadlineSeconds = 0 // Pub/Sub means its default, 10 s
	if d, err := b.AckDeadline(t.Context()); d != 10*time.Second || err != nil {
		t.Errorf("%v, %v", d, err)
	}
	failure = status.Error(codes.NotFound, "gone")
	if d, err := b.AckDeadline(t.Context()); d != 0 || !errors.Is(err, broker.ErrNotFound) {
		t.Errorf("%v, %v", d, err)
	}
}
