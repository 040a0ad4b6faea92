package pubsubfake_test

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"cloud.google.com/go/iam/apiv1/iampb"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/onceq/onceq/adapters/gcppubsub/pubsubfake"
	"github.com/onceq/onceq/internal/fakeserver/elsewhere"
)

// This file owns the rig: a server, and words for what the behaviours do with it. Behaviours and
// the other tests call it, each with a rig of its own, from the test's goroutine.

// api is what behaviours call: the server itself, or its clients over a wire.
type api interface {
	CreateTopic(context.Context, *pubsubpb.Topic) (*pubsubpb.Topic, error)
	UpdateTopic(context.Context, *pubsubpb.UpdateTopicRequest) (*pubsubpb.Topic, error)
	Publish(context.Context, *pubsubpb.PublishRequest) (*pubsubpb.PublishResponse, error)
	GetTopic(context.Context, *pubsubpb.GetTopicRequest) (*pubsubpb.Topic, error)
	ListTopics(context.Context, *pubsubpb.ListTopicsRequest) (*pubsubpb.ListTopicsResponse, error)
	ListTopicSubscriptions(context.Context, *pubsubpb.ListTopicSubscriptionsRequest) (*pubsubpb.ListTopicSubscriptionsResponse, error)
	DeleteTopic(context.Context, *pubsubpb.DeleteTopicRequest) (*emptypb.Empty, error)
	DetachSubscription(context.Context, *pubsubpb.DetachSubscriptionRequest) (*pubsubpb.DetachSubscriptionResponse, error)
	CreateSubscription(context.Context, *pubsubpb.Subscription) (*pubsubpb.Subscription, error)
	GetSubscription(context.Context, *pubsubpb.GetSubscriptionRequest) (*pubsubpb.Subscription, error)
	UpdateSubscription(context.Context, *pubsubpb.UpdateSubscriptionRequest) (*pubsubpb.Subscription, error)
	ListSubscriptions(context.Context, *pubsubpb.ListSubscriptionsRequest) (*pubsubpb.ListSubscriptionsResponse, error)
	DeleteSubscription(context.Context, *pubsubpb.DeleteSubscriptionRequest) (*emptypb.Empty, error)
	ModifyAckDeadline(context.Context, *pubsubpb.ModifyAckDeadlineRequest) (*emptypb.Empty, error)
	Acknowledge(context.Context, *pubsubpb.AcknowledgeRequest) (*emptypb.Empty, error)
	Pull(context.Context, *pubsubpb.PullRequest) (*pubsubpb.PullResponse, error)
	Seek(context.Context, *pubsubpb.SeekRequest) (*pubsubpb.SeekResponse, error)
	GetIamPolicy(context.Context, *iampb.GetIamPolicyRequest) (*iampb.Policy, error)
	SetIamPolicy(context.Context, *iampb.SetIamPolicyRequest) (*iampb.Policy, error)
}

// rig is a server of Pub/Sub, with a project.
type rig struct {
	elsewhere.Judge
	api
	project string
	// srv is nil when the server is not ours.
	srv *pubsubfake.Server
}

// inBubble runs f in virtual time on a server of its own, which it calls directly.
func inBubble(t *testing.T, o pubsubfake.Options, f func(r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		srv := pubsubfake.New(&o)
		defer srv.Close()
		defer tellSeed(t, srv)
		f(&rig{Judge: t, api: srv, project: "projects/p", srv: srv})
	})
}

// overGRPC is inBubble through gRPC, over a connection in memory.
func overGRPC(t *testing.T, o pubsubfake.Options, f func(r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		srv := pubsubfake.New(&o)
		l := bufconn.Listen(64 << 10)
		served := make(chan error, 1)
		go func() { served <- srv.Serve(l) }()
		conn, err := dial("passthrough:///fake",
			grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) { return l.Dial() }))
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			_ = conn.Close()
			srv.Close()
			if err := <-served; err != nil {
				t.Error(err)
			}
		}()
		defer tellSeed(t, srv)
		f(&rig{Judge: t, api: clients(conn), project: "projects/p", srv: srv})
	})
}

func tellSeed(t *testing.T, srv *pubsubfake.Server) {
	if t.Failed() {
		t.Logf("Options.Seed %d", srv.Seed())
	}
}

// name is that of a topic or a subscription.
func (r *rig) name(kind, id string) string { return r.project + "/" + kind + "/" + id }

func (r *rig) topic(id string) string {
	r.Helper()
	name := r.name("topics", id)
	if _, err := r.CreateTopic(r.Context(), &pubsubpb.Topic{Name: name}); err != nil {
		r.Fatal(err)
	}
	return name
}

// sub makes a subscription; set may change its settings.
func (r *rig) sub(topic, id string, set ...func(*pubsubpb.Subscription)) string {
	r.Helper()
	s := &pubsubpb.Subscription{Name: r.name("subscriptions", id), Topic: topic}
	for _, f := range set {
		f(s)
	}
	if _, err := r.CreateSubscription(r.Context(), s); err != nil {
		r.Fatal(err)
	}
	return s.Name
}

// pair makes a topic with one subscription.
func (r *rig) pair(set ...func(*pubsubpb.Subscription)) (topic, sub string) {
	r.Helper()
	topic = r.topic("orders")
	return topic, r.sub(topic, "worker", set...)
}

func ordered(s *pubsubpb.Subscription) { s.EnableMessageOrdering = true }
func once(s *pubsubpb.Subscription)    { s.EnableExactlyOnceDelivery = true }
func retains(s *pubsubpb.Subscription) { s.RetainAckedMessages = true }

func texts(bodies ...string) []*pubsubpb.PubsubMessage {
	var ms []*pubsubpb.PubsubMessage
	for _, b := range bodies {
		ms = append(ms, &pubsubpb.PubsubMessage{Data: []byte(b)})
	}
	return ms
}

func keyed(key string, bodies ...string) []*pubsubpb.PubsubMessage {
	ms := texts(bodies...)
	for _, m := range ms {
		m.OrderingKey = key
	}
	return ms
}

func (r *rig) publish(topic string, ms ...*pubsubpb.PubsubMessage) []string {
	r.Helper()
	out, err := r.Publish(r.Context(), &pubsubpb.PublishRequest{Topic: topic, Messages: ms})
	if err != nil {
		r.Fatal(err)
	}
	return out.MessageIds
}

// pullFor asks once, and waits so long.
func (r *rig) pullFor(sub string, d time.Duration) ([]*pubsubpb.ReceivedMessage, error) {
	ctx, cancel := context.WithTimeout(r.Context(), d)
	defer cancel()
	out, err := r.Pull(ctx, &pubsubpb.PullRequest{Subscription: sub, MaxMessages: 100})
	return out.GetReceivedMessages(), err
}

// pull gets so many messages, within a while.
func (r *rig) pull(sub string, n int) []*pubsubpb.ReceivedMessage {
	r.Helper()
	var got []*pubsubpb.ReceivedMessage
	for range 4 {
		ms, err := r.pullFor(sub, 3*time.Second)
		if err != nil {
			r.Fatal(err)
		}
		if got = append(got, ms...); len(got) >= n {
			break
		}
	}
	if len(got) != n {
		r.Fatalf("pulled %q, want %d messages", bodies(got), n)
	}
	return got
}

func (r *rig) pullOne(sub string) *pubsubpb.ReceivedMessage {
	r.Helper()
	return r.pull(sub, 1)[0]
}

// pullThese gets messages with these bodies, in any order.
func (r *rig) pullThese(sub string, want ...string) []*pubsubpb.ReceivedMessage {
	r.Helper()
	got := r.pull(sub, len(want))
	have := bodies(got)
	slices.Sort(have)
	slices.Sort(want)
	if !slices.Equal(have, want) {
		r.Fatalf("pulled %q, want %q", have, want)
	}
	return got
}

// pullInOrder gets messages with these bodies.
func (r *rig) pullInOrder(sub string, want ...string) []*pubsubpb.ReceivedMessage {
	r.Helper()
	got := r.pull(sub, len(want))
	if have := bodies(got); !slices.Equal(have, want) {
		r.Fatalf("pulled %q, want %q", have, want)
	}
	return got
}

// pullNone looks whether something is there, for about a second.
func (r *rig) pullNone(sub string) {
	r.Helper()
	got, err := r.pullFor(sub, 2*time.Second)
	// A busy server may answer too late; that it answers in time has a behaviour of its own.
	if err != nil && status.Code(err) != codes.DeadlineExceeded || len(got) > 0 {
		r.Fatalf("pulled %q, %v, want nothing", bodies(got), err)
	}
}

func bodies(ms []*pubsubpb.ReceivedMessage) []string {
	var out []string
	for _, m := range ms {
		out = append(out, string(m.Message.Data))
	}
	return out
}

func ackIDs(ms []*pubsubpb.ReceivedMessage) []string {
	var out []string
	for _, m := range ms {
		out = append(out, m.AckId)
	}
	return out
}

func (r *rig) tryAck(sub string, ids ...string) error {
	_, err := r.Acknowledge(r.Context(), &pubsubpb.AcknowledgeRequest{Subscription: sub, AckIds: ids})
	return err
}

func (r *rig) ack(sub string, ms ...*pubsubpb.ReceivedMessage) {
	r.Helper()
	if err := r.tryAck(sub, ackIDs(ms)...); err != nil {
		r.Fatal(err)
	}
}

func (r *rig) tryExtend(sub string, seconds int32, ids ...string) error {
	_, err := r.ModifyAckDeadline(r.Context(), &pubsubpb.ModifyAckDeadlineRequest{Subscription: sub, AckIds: ids, AckDeadlineSeconds: seconds})
	return err
}

func (r *rig) extend(sub string, seconds int32, ms ...*pubsubpb.ReceivedMessage) {
	r.Helper()
	if err := r.tryExtend(sub, seconds, ackIDs(ms)...); err != nil {
		r.Fatal(err)
	}
}

func (r *rig) nack(sub string, ms ...*pubsubpb.ReceivedMessage) {
	r.Helper()
	r.extend(sub, 0, ms...)
}

// wait lets time pass.
func (r *rig) wait(d time.Duration) {
	r.Helper()
	select {
	case <-time.After(d):
	case <-r.Context().Done():
		r.Fatal(r.Context().Err())
	}
}

func (r *rig) wantCode(err error, want codes.Code) {
	r.Helper()
	if got := status.Code(err); got != want {
		r.Fatalf("answered %v (%v), want %v", got, err, want)
	}
}

// wantRefused wants InvalidArgument, with the name of the field in its text.
func (r *rig) wantRefused(err error, field string) {
	r.Helper()
	r.wantCode(err, codes.InvalidArgument)
	if text := status.Convert(err).Message(); !strings.Contains(text, field) {
		r.Fatalf("answered %q, want the field %s in it", text, field)
	}
}

// failedIDs are the ack ids that an error names, each with its failure.
func failedIDs(err error) map[string]string {
	for _, d := range status.Convert(err).Details() {
		if info, ok := d.(*errdetails.ErrorInfo); ok && info.Reason == "EXACTLY_ONCE_ACKID_FAILURE" {
			return info.Metadata
		}
	}
	return nil
}

// wantFailed wants an error that names these ids, and no other, with this failure.
func (r *rig) wantFailed(err error, how string, ids ...string) {
	r.Helper()
	r.wantCode(err, codes.InvalidArgument)
	got := failedIDs(err)
	want := map[string]string{}
	for _, id := range ids {
		want[id] = how
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		r.Fatalf("the error names %v, want %v", got, want)
	}
}

// clients are an api over a connection.
func clients(conn *grpc.ClientConn) api {
	return remote{pubsubpb.NewPublisherClient(conn), pubsubpb.NewSubscriberClient(conn), iampb.NewIAMPolicyClient(conn), conn}
}

// dial makes a connection that takes the largest messages.
func dial(address string, more ...grpc.DialOption) (*grpc.ClientConn, error) {
	return grpc.NewClient(address, append(more, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64<<20)))...)
}
