package gcppubsub_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"cloud.google.com/go/iam/apiv1/iampb"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/onceq/onceq/adapters/gcppubsub"
)

const (
	stubTopic        = "projects/acme/topics/orders"
	stubSubscription = "projects/acme/subscriptions/orders-workers"
)

// stub answers the calls in the test's own goroutines: what a server would not do is tried here.
type stub struct {
	mu     sync.Mutex
	calls  []stubCall
	answer func(ctx context.Context, in proto.Message) (proto.Message, error)
}

type stubCall struct {
	in   proto.Message
	at   time.Time
	left time.Duration // until the deadline that travels
}

func call[Out proto.Message](ctx context.Context, s *stub, in proto.Message) (out Out, err error) {
	c := stubCall{in: in, at: time.Now()}
	if end, ok := ctx.Deadline(); ok {
		c.left = time.Until(end)
	}
	s.mu.Lock()
	s.calls = append(s.calls, c)
	s.mu.Unlock()
	m, err := s.answer(ctx, in)
	if err != nil {
		return out, err
	}
	if m != nil {
		return m.(Out), nil
	}
	return out.ProtoReflect().Type().New().Interface().(Out), nil
}

func (s *stub) Publish(ctx context.Context, in *pubsubpb.PublishRequest) (*pubsubpb.PublishResponse, error) {
	return call[*pubsubpb.PublishResponse](ctx, s, in)
}

func (s *stub) Pull(ctx context.Context, in *pubsubpb.PullRequest) (*pubsubpb.PullResponse, error) {
	return call[*pubsubpb.PullResponse](ctx, s, in)
}

func (s *stub) Acknowledge(ctx context.Context, in *pubsubpb.AcknowledgeRequest) (*emptypb.Empty, error) {
	return call[*emptypb.Empty](ctx, s, in)
}

func (s *stub) ModifyAckDeadline(ctx context.Context, in *pubsubpb.ModifyAckDeadlineRequest) (*emptypb.Empty, error) {
	return call[*emptypb.Empty](ctx, s, in)
}

func (s *stub) GetSubscription(ctx context.Context, in *pubsubpb.GetSubscriptionRequest) (*pubsubpb.Subscription, error) {
	return call[*pubsubpb.Subscription](ctx, s, in)
}

func (s *stub) GetTopic(ctx context.Context, in *pubsubpb.GetTopicRequest) (*pubsubpb.Topic, error) {
	return call[*pubsubpb.Topic](ctx, s, in)
}

func (s *stub) GetIamPolicy(ctx context.Context, in *iampb.GetIamPolicyRequest) (*iampb.Policy, error) {
	return call[*iampb.Policy](ctx, s, in)
}

func (s *stub) TestIamPermissions(ctx context.Context, in *iampb.TestIamPermissionsRequest) (*iampb.TestIamPermissionsResponse, error) {
	return call[*iampb.TestIamPermissionsResponse](ctx, s, in)
}

// stubbed is a broker whose calls answer answers.
func stubbed(t testing.TB, o *gcppubsub.Options, answer func(ctx context.Context, in proto.Message) (proto.Message, error)) (*gcppubsub.Broker, *stub) {
	t.Helper()
	s := &stub{answer: answer}
	return makeBroker(t, s, stubTopic, stubSubscription, o), s
}

// of are the calls with that kind of request.
func of[In proto.Message](s *stub) (ins []In, cs []stubCall) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.calls {
		if in, ok := c.in.(In); ok {
			ins, cs = append(ins, in), append(cs, c)
		}
	}
	return ins, cs
}

// deliveries are n messages of a pull's answer.
func deliveries(n int) *pubsubpb.PullResponse {
	out := &pubsubpb.PullResponse{}
	for i := range n {
		out.ReceivedMessages = append(out.ReceivedMessages, &pubsubpb.ReceivedMessage{
			AckId: fmt.Sprint("ack-", i), Message: &pubsubpb.PubsubMessage{Data: []byte{'a' + byte(i)}, MessageId: fmt.Sprint("id-", i)},
		})
	}
	return out
}

// published answers a publish.
func published(in *pubsubpb.PublishRequest) *pubsubpb.PublishResponse {
	out := &pubsubpb.PublishResponse{}
	for _, m := range in.GetMessages() {
		out.MessageIds = append(out.MessageIds, "id-"+string(m.GetData()[:min(8, len(m.GetData()))]))
	}
	return out
}

// idsFailed is how exactly-once subscriptions name ack ids.
func idsFailed(code codes.Code, how map[string]string) error {
	st, err := status.New(code, "Some acknowledgement ids in the request were invalid.").WithDetails(&errdetails.ErrorInfo{
		Reason: "EXACTLY_ONCE_ACKID_FAILURE", Domain: "pubsub.googleapis.com", Metadata: how,
	})
	if err != nil {
		return err
	}
	return st.Err()
}

// silence waits for the caller's end.
func silence(ctx context.Context) error {
	<-ctx.Done()
	return status.FromContextError(ctx.Err()).Err()
}
