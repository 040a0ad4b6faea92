package gcppubsub

import (
	"context"
	"errors"
	"fmt"
	"time"

	"cloud.google.com/go/iam/apiv1/iampb"
	pubsub "cloud.google.com/go/pubsub/v2/apiv1"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/googleapis/gax-go/v2"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/protobuf/types/known/emptypb"
)

// This file owns Clients: Google's generated clients as the Broker's API. Many goroutines call its
// methods; nothing is locked, because it never changes after it was made.

// Clients calls Pub/Sub through Google's own clients, and never repeats a call: it turns their
// retries off. Pulls, acks, leases (nacks and extensions) and all else each go out on connections
// of their own where they have clients of their own, as [Dial] makes them. A call that is stalled
// then holds up none of another kind.
//
// Whoever makes a Clients by hand sets Topics, if anything is sent, and Pulls, if anything is
// received. Acks and Leases nil mean Pulls.
type Clients struct {
	Topics              *pubsub.TopicAdminClient
	Pulls, Acks, Leases *pubsub.SubscriptionAdminClient
}

var _ API = (*Clients)(nil)

// keepAlive is how long a connection may be silent before it is probed. Google's own client has the
// same. While something is asked on it, a dead one is found after 20 s.
const keepAlive = 5 * time.Minute

// Dial makes the clients, each with connections of its own. One Clients serves any number of
// Brokers of a process. Where PUBSUB_EMULATOR_HOST is set, it names the server. It does no calls.
// Close them at the end.
func Dial(ctx context.Context, opts ...option.ClientOption) (*Clients, error) {
	opts = append([]option.ClientOption{
		option.WithGRPCDialOption(grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: keepAlive})),
	}, opts...)
	c := &Clients{}
	var err error
	if c.Topics, err = pubsub.NewTopicAdminClient(ctx, opts...); err != nil {
		return nil, fmt.Errorf("gcppubsub: dial: %w", err)
	}
	for _, s := range [...]**pubsub.SubscriptionAdminClient{&c.Pulls, &c.Acks, &c.Leases} {
		if *s, err = pubsub.NewSubscriptionAdminClient(ctx, opts...); err != nil {
			return nil, fmt.Errorf("gcppubsub: dial: %w", errors.Join(err, c.Close()))
		}
	}
	return c, nil
}

// Close closes the clients' connections. Brokers that use them are of no use any more.
func (c *Clients) Close() error {
	if c == nil {
		return nil
	}
	var errs []error
	if c.Topics != nil {
		errs = append(errs, c.Topics.Close())
	}
	closed := map[*pubsub.SubscriptionAdminClient]bool{nil: true}
	for _, s := range [...]*pubsub.SubscriptionAdminClient{c.Pulls, c.Acks, c.Leases} {
		if !closed[s] {
			closed[s] = true
			errs = append(errs, s.Close())
		}
	}
	return errors.Join(errs...)
}

// once turns a client's retries off.
var once = gax.WithRetry(nil)

// errNoClient says that a Clients was made without what a call needs.
var errNoClient = errors.New("the Clients have no client for it")

// Publish sends messages.
func (c *Clients) Publish(ctx context.Context, in *pubsubpb.PublishRequest) (*pubsubpb.PublishResponse, error) {
	if c.Topics == nil {
		return nil, errNoClient
	}
	return c.Topics.Publish(ctx, in, once)
}

// Pull receives messages.
func (c *Clients) Pull(ctx context.Context, in *pubsubpb.PullRequest) (*pubsubpb.PullResponse, error) {
	if c.Pulls == nil {
		return nil, errNoClient
	}
	return c.Pulls.Pull(ctx, in, once)
}

// Acknowledge ends messages.
func (c *Clients) Acknowledge(ctx context.Context, in *pubsubpb.AcknowledgeRequest) (*emptypb.Empty, error) {
	s := c.or(c.Acks)
	if s == nil {
		return nil, errNoClient
	}
	return &emptypb.Empty{}, s.Acknowledge(ctx, in, once)
}

// ModifyAckDeadline holds messages or gives them back.
func (c *Clients) ModifyAckDeadline(ctx context.Context, in *pubsubpb.ModifyAckDeadlineRequest) (*emptypb.Empty, error) {
	s := c.or(c.Leases)
	if s == nil {
		return nil, errNoClient
	}
	return &emptypb.Empty{}, s.ModifyAckDeadline(ctx, in, once)
}

// GetSubscription tells a subscription's settings.
func (c *Clients) GetSubscription(ctx context.Context, in *pubsubpb.GetSubscriptionRequest) (*pubsubpb.Subscription, error) {
	s := c.or(c.Leases)
	if s == nil {
		return nil, errNoClient
	}
	return s.GetSubscription(ctx, in, once)
}

// GetTopic tells a topic's settings.
func (c *Clients) GetTopic(ctx context.Context, in *pubsubpb.GetTopicRequest) (*pubsubpb.Topic, error) {
	if c.Topics == nil {
		return nil, errNoClient
	}
	return c.Topics.GetTopic(ctx, in, once)
}

// GetIamPolicy tells who may do what with a topic or a subscription.
func (c *Clients) GetIamPolicy(ctx context.Context, in *iampb.GetIamPolicyRequest) (*iampb.Policy, error) {
	if s := c.or(c.Leases); s != nil {
		return s.GetIamPolicy(ctx, in, once)
	}
	if c.Topics == nil {
		return nil, errNoClient
	}
	return c.Topics.GetIamPolicy(ctx, in, once)
}

// TestIamPermissions tells which of the permissions the program has. It asks the topics' client.
func (c *Clients) TestIamPermissions(ctx context.Context, in *iampb.TestIamPermissionsRequest) (*iampb.TestIamPermissionsResponse, error) {
	if c.Topics == nil {
		return nil, errNoClient
	}
	return c.Topics.TestIamPermissions(ctx, in, once)
}

// or is s, or the client of pulls where there is none.
func (c *Clients) or(s *pubsub.SubscriptionAdminClient) *pubsub.SubscriptionAdminClient {
	if s == nil {
		return c.Pulls
	}
	return s
}
