package pubsubfake_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/onceq/onceq/adapters/gcppubsub/pubsubfake"
)

// stream opens a streaming pull.
func (r *rig) stream(ctx context.Context, in *pubsubpb.StreamingPullRequest) pubsubpb.Subscriber_StreamingPullClient {
	r.Helper()
	s, err := r.api.(remote).s.StreamingPull(ctx)
	if err == nil {
		err = s.Send(in)
	}
	if err != nil {
		r.Fatal(err)
	}
	return s
}

func (r *rig) recv(s pubsubpb.Subscriber_StreamingPullClient) *pubsubpb.StreamingPullResponse {
	r.Helper()
	out, err := s.Recv()
	if err != nil {
		r.Fatal(err)
	}
	return out
}

// A stream has no more out than it allows, and acks, nacks and extends what it got.
func TestStream(t *testing.T) {
	overGRPC(t, pubsubfake.Options{}, func(r *rig) {
		topic, sub := r.pair()
		r.publish(topic, texts("a", "b", "c")...)
		s := r.stream(r.Context(), &pubsubpb.StreamingPullRequest{Subscription: sub, StreamAckDeadlineSeconds: 20, MaxOutstandingMessages: 2})
		first := r.recv(s)
		if got := bodies(first.ReceivedMessages); !slices.Equal(got, []string{"a", "b"}) || first.SubscriptionProperties.ExactlyOnceDeliveryEnabled {
			r.Fatalf("received %q, %v", got, first.SubscriptionProperties)
		}
		ids := ackIDs(first.ReceivedMessages)
		r.wait(12 * time.Second)
		if err := s.Send(&pubsubpb.StreamingPullRequest{
			AckIds: ids[:1], ModifyDeadlineAckIds: ids[1:], ModifyDeadlineSeconds: []int32{30}, StreamAckDeadlineSeconds: 40,
		}); err != nil {
			r.Fatal(err)
		}
		r.wantBodies(bodies(r.recv(s).ReceivedMessages), "c")
		began := time.Now()
		again := r.recv(s) // b, at the end of its extension
		if took := time.Since(began); took != 30*time.Second || len(again.ReceivedMessages) != 1 || string(again.ReceivedMessages[0].Message.Data) != "b" {
			r.Fatalf("received %q after %v", bodies(again.ReceivedMessages), took)
		}
		if err := s.CloseSend(); err != nil {
			r.Fatal(err)
		}
		if out, err := s.Recv(); err == nil {
			r.Fatalf("received %v after the end", out)
		}
		if got := r.srv.Stats(sub); got != (pubsubfake.Stats{Held: 2}) {
			r.Fatalf("the subscription has %+v", got)
		}
	})
}

// A client that asks for it gets an answer to each request that asks for nothing: so it knows that
// the stream is alive.
func TestStreamPing(t *testing.T) {
	overGRPC(t, pubsubfake.Options{}, func(r *rig) {
		_, sub := r.pair()
		s := r.stream(r.Context(), &pubsubpb.StreamingPullRequest{Subscription: sub, StreamAckDeadlineSeconds: 10, ProtocolVersion: 1})
		r.wait(time.Second)
		if err := s.Send(&pubsubpb.StreamingPullRequest{}); err != nil {
			r.Fatal(err)
		}
		if got := r.recv(s); len(got.ReceivedMessages) != 0 || got.SubscriptionProperties == nil {
			r.Fatalf("received %v", got)
		}
	})
}

func TestStreamBytes(t *testing.T) {
	overGRPC(t, pubsubfake.Options{}, func(r *rig) {
		topic, sub := r.pair(once, ordered)
		r.publish(topic, texts("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "bbbbbbbbbbbbbbbbbbbbbbbbbbbbb")...)
		s := r.stream(r.Context(), &pubsubpb.StreamingPullRequest{Subscription: sub, StreamAckDeadlineSeconds: 10, MaxOutstandingBytes: 80})
		first := r.recv(s)
		if len(first.ReceivedMessages) != 1 || !first.SubscriptionProperties.ExactlyOnceDeliveryEnabled || !first.SubscriptionProperties.MessageOrderingEnabled {
			r.Fatalf("received %v", first)
		}
		r.ack(sub, first.ReceivedMessages...)
		if got := r.recv(s); len(got.ReceivedMessages) != 1 {
			r.Fatalf("received %v", got)
		}
	})
}

// What ends a stream, and with what.
func TestStreamEnds(t *testing.T) {
	good := func(sub string) *pubsubpb.StreamingPullRequest {
		return &pubsubpb.StreamingPullRequest{Subscription: sub, StreamAckDeadlineSeconds: 10}
	}
	for name, c := range map[string]struct {
		first func(sub string) *pubsubpb.StreamingPullRequest
		then  func(r *rig, sub string, s pubsubpb.Subscriber_StreamingPullClient)
		want  codes.Code
	}{
		"another subscription": {first: func(sub string) *pubsubpb.StreamingPullRequest { return good(sub + "s") }, want: codes.NotFound},
		"a short deadline": {first: func(sub string) *pubsubpb.StreamingPullRequest {
			in := good(sub)
			in.StreamAckDeadlineSeconds = 9
			return in
		}, want: codes.InvalidArgument},
		"a second subscription": {first: good, then: func(r *rig, sub string, s pubsubpb.Subscriber_StreamingPullClient) {
			_ = s.Send(&pubsubpb.StreamingPullRequest{Subscription: sub})
		}, want: codes.InvalidArgument},
		"deadlines without ids": {first: good, then: func(r *rig, sub string, s pubsubpb.Subscriber_StreamingPullClient) {
			_ = s.Send(&pubsubpb.StreamingPullRequest{ModifyDeadlineSeconds: []int32{10}})
		}, want: codes.InvalidArgument},
		"no ack id": {first: good, then: func(r *rig, sub string, s pubsubpb.Subscriber_StreamingPullClient) {
			_ = s.Send(&pubsubpb.StreamingPullRequest{AckIds: []string{"x"}})
		}, want: codes.InvalidArgument},
		"deleted": {first: good, then: func(r *rig, sub string, _ pubsubpb.Subscriber_StreamingPullClient) { r.deleteSub(sub) }, want: codes.NotFound},
		"detached": {first: good, then: func(r *rig, sub string, _ pubsubpb.Subscriber_StreamingPullClient) {
			if _, err := r.DetachSubscription(r.Context(), &pubsubpb.DetachSubscriptionRequest{Subscription: sub}); err != nil {
				r.Fatal(err)
			}
		}, want: codes.FailedPrecondition},
		"drained": {first: good, then: func(r *rig, _ string, _ pubsubpb.Subscriber_StreamingPullClient) { r.srv.Drain() }, want: codes.Unavailable},
	} {
		t.Run(name, func(t *testing.T) {
			overGRPC(t, pubsubfake.Options{}, func(r *rig) {
				_, sub := r.pair()
				s := r.stream(r.Context(), c.first(sub))
				r.wait(time.Second)
				if c.then != nil {
					c.then(r, sub, s)
				}
				_, err := s.Recv()
				if got := status.Code(err); got != c.want {
					r.Fatalf("ended with %v, want %v", err, c.want)
				}
			})
		})
	}
}

// A client that goes away ends its stream at once, and takes nothing more.
func TestStreamCancelled(t *testing.T) {
	overGRPC(t, pubsubfake.Options{}, func(r *rig) {
		topic, sub := r.pair()
		ctx, cancel := context.WithCancel(r.Context())
		s := r.stream(ctx, &pubsubpb.StreamingPullRequest{Subscription: sub, StreamAckDeadlineSeconds: 10})
		r.wait(time.Second)
		cancel()
		if _, err := s.Recv(); status.Code(err) != codes.Canceled && !errors.Is(err, context.Canceled) {
			r.Fatal(err)
		}
		r.wait(time.Second)
		r.publish(topic, texts("a")...)
		r.pullThese(sub, "a")
	})
}
