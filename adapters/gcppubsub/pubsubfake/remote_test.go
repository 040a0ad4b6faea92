package pubsubfake_test

import (
	"context"

	"cloud.google.com/go/iam/apiv1/iampb"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/emptypb"
)

// remote is an api whose server is behind a connection. Nothing is repeated.
type remote struct {
	p   pubsubpb.PublisherClient
	s   pubsubpb.SubscriberClient
	iam iampb.IAMPolicyClient
	// conn is what they use.
	conn *grpc.ClientConn
}

func (r remote) CreateTopic(ctx context.Context, in *pubsubpb.Topic) (*pubsubpb.Topic, error) {
	return r.p.CreateTopic(ctx, in)
}

func (r remote) UpdateTopic(ctx context.Context, in *pubsubpb.UpdateTopicRequest) (*pubsubpb.Topic, error) {
	return r.p.UpdateTopic(ctx, in)
}

func (r remote) Publish(ctx context.Context, in *pubsubpb.PublishRequest) (*pubsubpb.PublishResponse, error) {
	return r.p.Publish(ctx, in)
}

func (r remote) GetTopic(ctx context.Context, in *pubsubpb.GetTopicRequest) (*pubsubpb.Topic, error) {
	return r.p.GetTopic(ctx, in)
}

func (r remote) ListTopics(ctx context.Context, in *pubsubpb.ListTopicsRequest) (*pubsubpb.ListTopicsResponse, error) {
	return r.p.ListTopics(ctx, in)
}

func (r remote) ListTopicSubscriptions(ctx context.Context, in *pubsubpb.ListTopicSubscriptionsRequest) (*pubsubpb.ListTopicSubscriptionsResponse, error) {
	return r.p.ListTopicSubscriptions(ctx, in)
}

func (r remote) DeleteTopic(ctx context.Context, in *pubsubpb.DeleteTopicRequest) (*emptypb.Empty, error) {
	return r.p.DeleteTopic(ctx, in)
}

func (r remote) DetachSubscription(ctx context.Context, in *pubsubpb.DetachSubscriptionRequest) (*pubsubpb.DetachSubscriptionResponse, error) {
	return r.p.DetachSubscription(ctx, in)
}

func (r remote) CreateSubscription(ctx context.Context, in *pubsubpb.Subscription) (*pubsubpb.Subscription, error) {
	return r.s.CreateSubscription(ctx, in)
}

func (r remote) GetSubscription(ctx context.Context, in *pubsubpb.GetSubscriptionRequest) (*pubsubpb.Subscription, error) {
	return r.s.GetSubscription(ctx, in)
}

func (r remote) UpdateSubscription(ctx context.Context, in *pubsubpb.UpdateSubscriptionRequest) (*pubsubpb.Subscription, error) {
	return r.s.UpdateSubscription(ctx, in)
}

func (r remote) ListSubscriptions(ctx context.Context, in *pubsubpb.ListSubscriptionsRequest) (*pubsubpb.ListSubscriptionsResponse, error) {
	return r.s.ListSubscriptions(ctx, in)
}

func (r remote) DeleteSubscription(ctx context.Context, in *pubsubpb.DeleteSubscriptionRequest) (*emptypb.Empty, error) {
	return r.s.DeleteSubscription(ctx, in)
}

func (r remote) ModifyAckDeadline(ctx context.Context, in *pubsubpb.ModifyAckDeadlineRequest) (*emptypb.Empty, error) {
	return r.s.ModifyAckDeadline(ctx, in)
}

func (r remote) Acknowledge(ctx context.Context, in *pubsubpb.AcknowledgeRequest) (*emptypb.Empty, error) {
	return r.s.Acknowledge(ctx, in)
}

func (r remote) Pull(ctx context.Context, in *pubsubpb.PullRequest) (*pubsubpb.PullResponse, error) {
	return r.s.Pull(ctx, in)
}

func (r remote) Seek(ctx context.Context, in *pubsubpb.SeekRequest) (*pubsubpb.SeekResponse, error) {
	return r.s.Seek(ctx, in)
}

func (r remote) GetIamPolicy(ctx context.Context, in *iampb.GetIamPolicyRequest) (*iampb.Policy, error) {
	return r.iam.GetIamPolicy(ctx, in)
}

func (r remote) SetIamPolicy(ctx context.Context, in *iampb.SetIamPolicyRequest) (*iampb.Policy, error) {
	return r.iam.SetIamPolicy(ctx, in)
}
