package gocloudpubsub

import (
	"context"
	"fmt"
	"strings"
	"time"

	raw "cloud.google.com/go/pubsub/apiv1"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/onceq/onceq/broker"
)

// pubsubMinHold is the shortest extension, and the shortest timeout that a subscription can have.
const pubsubMinHold = 10 * time.Second

// pubsubQueue settles on Pub/Sub, with gocloud's client.
type pubsubQueue struct {
	client       *raw.SubscriberClient
	subscription string
}

func newPubSub(c *raw.SubscriberClient, name string) (*service, error) {
	if parts := strings.Split(name, "/"); len(parts) != 4 || parts[0] != "projects" || parts[2] != "subscriptions" || parts[1] == "" || parts[3] == "" {
		return nil, fmt.Errorf("gocloudpubsub: Options.Queue: %q is not projects/PROJECT/subscriptions/NAME", name)
	}
	q := pubsubQueue{c, name}
	return &service{hold: q.modify, nacks: true, ack: q.acknowledge, visibility: q.deadline}, nil
}

func (q pubsubQueue) modify(ctx context.Context, ds []*delivery, times []time.Duration) error {
	whole := make([]time.Duration, len(times))
	for i, d := range times {
		whole[i] = time.Duration(seconds(d)) * time.Second
	}
	return byTime(whole, func(d time.Duration, at []int) error {
		part := make([]*delivery, len(at))
		for n, i := range at {
			part[n] = ds[i]
		}
		return q.each(part, func(ids []string) error {
			return q.client.ModifyAckDeadline(ctx, &pubsubpb.ModifyAckDeadlineRequest{
				Subscription: q.subscription, AckIds: ids, AckDeadlineSeconds: seconds(d),
			})
		})
	})
}

func (q pubsubQueue) acknowledge(ctx context.Context, ds []*delivery) error {
	return q.each(ds, func(ids []string) error {
		return q.client.Acknowledge(ctx, &pubsubpb.AcknowledgeRequest{Subscription: q.subscription, AckIds: ids})
	})
}

// each makes one call for all. Where Pub/Sub refuses ids among them, each is asked for by itself:
// to repeat what was applied changes nothing but the answer.
func (q pubsubQueue) each(ds []*delivery, do func(ids []string) error) error {
	ids := make([]string, len(ds))
	for i, d := range ds {
		ids[i] = receivedOf(d.m).GetAckId()
	}
	err := do(ids)
	if err == nil || status.Code(err) != codes.InvalidArgument {
		return classifyPubSub(err)
	}
	if len(ids) == 1 {
		return classifyPubSub(err)
	}
	errs := make([]error, len(ids))
	for i := range ids {
		errs[i] = classifyPubSub(do(ids[i : i+1]))
	}
	return broker.JoinEntries(errs)
}

// classifyPubSub knows what Pub/Sub says of ack ids.
func classifyPubSub(err error) error {
	switch status.Code(err) {
	case codes.InvalidArgument:
		return fmt.Errorf("%w: %w", broker.ErrReceiptExpired, err)
	case codes.NotFound:
		return fmt.Errorf("%w: %w", broker.ErrNotFound, err)
	case codes.ResourceExhausted:
		return fmt.Errorf("%w: %w", broker.ErrThrottled, err)
	}
	return err
}

func (q pubsubQueue) deadline(ctx context.Context) (time.Duration, error) {
	s, err := q.client.GetSubscription(ctx, &pubsubpb.GetSubscriptionRequest{Subscription: q.subscription})
	switch {
	case status.Code(err) == codes.PermissionDenied:
		return pubsubMinHold, nil // the shortest that a subscription can have
	case err != nil:
		return 0, classifyPubSub(err)
	}
	return max(time.Duration(s.GetAckDeadlineSeconds())*time.Second, pubsubMinHold), nil
}
