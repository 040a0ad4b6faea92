package gcppubsub

import (
	"context"

	"cloud.google.com/go/iam/apiv1/iampb"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/protobuf/types/known/emptypb"
)

// API is what the driver calls of Pub/Sub, each call once: nothing below it may repeat a call by
// itself, because the core does. Its methods are those of gRPC's servers, so that a server in the
// same process, such as pubsubfake's, can stand behind a Broker without a network. [Clients] calls
// the service. The methods may be called from many goroutines.
type API interface {
	Publish(context.Context, *pubsubpb.PublishRequest) (*pubsubpb.PublishResponse, error)
	Pull(context.Context, *pubsubpb.PullRequest) (*pubsubpb.PullResponse, error)
	Acknowledge(context.Context, *pubsubpb.AcknowledgeRequest) (*emptypb.Empty, error)
	ModifyAckDeadline(context.Context, *pubsubpb.ModifyAckDeadlineRequest) (*emptypb.Empty, error)
	GetSubscription(context.Context, *pubsubpb.GetSubscriptionRequest) (*pubsubpb.Subscription, error)
	GetTopic(context.Context, *pubsubpb.GetTopicRequest) (*pubsubpb.Topic, error)
	GetIamPolicy(context.Context, *iampb.GetIamPolicyRequest) (*iampb.Policy, error)
}
