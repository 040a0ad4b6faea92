package gcppubsub_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/pubsubwire"
)

func accepts(_ context.Context, in proto.Message) (proto.Message, error) {
	return published(in.(*pubsubpb.PublishRequest)), nil
}

// bodiesOf are the bodies of each publish, as text.
func bodiesOf(s *stub) (calls []string) {
	ins, _ := of[*pubsubpb.PublishRequest](s)
	for _, in := range ins {
		var bs []string
		for _, m := range in.GetMessages() {
			bs = append(bs, string(m.GetData()[:min(8, len(m.GetData()))]))
		}
		calls = append(calls, strings.Join(bs, " "))
	}
	return calls
}

func outs(bodies ...string) (os []broker.Outgoing) {
	for _, b := range bodies {
		o := broker.Outgoing{Body: []byte(b)}
		if group, _, ok := strings.Cut(b, "/"); ok {
			o.Group = group
		}
		os = append(os, o)
	}
	return os
}

func TestEachGroupIsAPublish(t *testing.T) {
	b, s := stubbed(t, nil, accepts)
	ids, err := b.Send(t.Context(), outs("1", "a/1", "2", "b/1", "a/2", "3", "b/2"))
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"id-1", "id-a/1", "id-2", "id-b/1", "id-a/2", "id-3", "id-b/2"}; !slices.Equal(ids, want) {
		t.Errorf("the ids are %q", ids)
	}
	if got, want := bodiesOf(s), []string{"1 2 3", "a/1 a/2", "b/1 b/2"}; !slices.Equal(got, want) {
		t.Errorf("the calls are %q, want %q", got, want)
	}
	ins, _ := of[*pubsubpb.PublishRequest](s)
	for _, in := range ins {
		for _, m := range in.GetMessages() {
			if m.GetOrderingKey() != in.GetMessages()[0].GetOrderingKey() || in.GetTopic() != stubTopic {
				t.Errorf("a publish to %s has several keys: %v", in.GetTopic(), in.GetMessages())
			}
		}
	}
	if st := b.Stats(); st.Publishes != 3 || st.Sent != 7 {
		t.Errorf("%+v", st)
	}
}

func TestPublishesStayBelowTheLimit(t *testing.T) {
	for _, group := range []string{"", "g"} {
		b, s := stubbed(t, nil, accepts)
		var os []broker.Outgoing
		var want []string
		for i := range 12 {
			o := broker.Outgoing{Group: group, Body: bytes.Repeat([]byte{'a' + byte(i)}, 3_000_000), Attributes: map[string]string{"a": "x"}, Meta: &broker.Meta{ID: "j"}}
			os = append(os, o)
			want = append(want, "id-"+strings.Repeat(string(rune('a'+i)), 8))
		}
		whole := broker.Outgoing{Group: group, Body: bytes.Repeat([]byte{'z'}, pubsubwire.MaxMessage-len(group)-100*4), Attributes: map[string]string{}}
		for i := range 100 {
			whole.Attributes[fmt.Sprintf("a%02d", i)] = "x"
		}
		os, want = append(os, whole), append(want, "id-zzzzzzzz")
		ids, err := b.Send(t.Context(), os)
		if err != nil || !slices.Equal(ids, want) {
			t.Fatalf("%q, %v", ids, err)
		}
		ins, _ := of[*pubsubpb.PublishRequest](s)
		if len(ins) != 5 {
			t.Errorf("%d calls", len(ins))
		}
		for _, in := range ins {
			if n := proto.Size(in); n > 10_000_000 {
				t.Errorf("a publish has %d bytes", n)
			}
		}
	}
}

// TestGroupStopsAtItsFirstFailure fails the second publish of a group, and then one message of it.
func TestGroupStopsAtItsFirstFailure(t *testing.T) {
	refused := status.Error(codes.Unavailable, "no")
	b, s := stubbed(t, nil, func(ctx context.Context, in proto.Message) (proto.Message, error) {
		p := in.(*pubsubpb.PublishRequest)
		if strings.HasPrefix(string(p.GetMessages()[0].GetData()), "a/2") {
			return nil, refused
		}
		return accepts(ctx, in)
	})
	os := outs("a/1", "b/1", "a/2", "b/2", "a/3", "c/1")
	for i := range os {
		os[i].Body = append(os[i].Body, bytes.Repeat([]byte{'.'}, 6_000_000)...)
	}
	ids, err := b.Send(t.Context(), os)
	for i, sent := range []bool{true, true, false, true, false, true} {
		if at := broker.ErrAt(err, i); (at == nil) != sent || (ids[i] != "") != sent || !sent && !errors.Is(at, refused) {
			t.Errorf("entry %d: %q, %v", i, ids[i], at)
		}
	}
	if got := len(bodiesOf(s)); got != 5 { // a/1 a/2 b/1 b/2 c/1
		t.Errorf("%d calls", got)
	}

	b, s = stubbed(t, nil, accepts)
	os = outs("a/1", "a/2", "x", "a/3", "b/1", "y")
	os[1].Attributes = map[string]string{"long": strings.Repeat("x", 1025)}
	os[2].Attributes = os[1].Attributes
	ids, err = b.Send(t.Context(), os)
	for i, want := range []struct{ sent, large bool }{{sent: true}, {large: true}, {large: true}, {}, {sent: true}, {sent: true}} {
		at := broker.ErrAt(err, i)
		if (at == nil) != want.sent || (ids[i] != "") != want.sent || errors.Is(at, broker.ErrTooLarge) != want.large {
			t.Errorf("entry %d: %q, %v", i, ids[i], at)
		}
	}
	if got, want := bodiesOf(s), []string{"a/1", "y", "b/1"}; !slices.Equal(got, want) {
		t.Errorf("the calls are %q, want %q", got, want)
	}
}

// TestRefusedMessageIsFound sends what a topic's schema never takes, which Pub/Sub answers for the
// whole publish.
func TestRefusedMessageIsFound(t *testing.T) {
	for _, c := range []struct {
		text  string
		is    error
		group string
	}{
		{"Invalid data in message: JSON object with type string where a number is expected.", broker.ErrUnsupported, ""},
		{"The value for request_size is too large. You passed 10000135 in the request, but the maximum value is 10000000.", broker.ErrTooLarge, ""},
		{"Invalid data in message.", broker.ErrUnsupported, "g"},
	} {
		b, s := stubbed(t, nil, func(ctx context.Context, in proto.Message) (proto.Message, error) {
			for _, m := range in.(*pubsubpb.PublishRequest).GetMessages() {
				if string(m.GetData()) == "bad" {
					return nil, status.Error(codes.InvalidArgument, c.text)
				}
			}
			return accepts(ctx, in)
		})
		os := make([]broker.Outgoing, 64)
		for i := range os {
			os[i] = broker.Outgoing{Body: fmt.Append(nil, i), Group: c.group}
		}
		os[20].Body = []byte("bad")
		ids, err := b.Send(t.Context(), os)
		for i := range os {
			at := broker.ErrAt(err, i)
			sent := i != 20 && (c.group == "" || i < 20)
			if (at == nil) != sent || (ids[i] != "") != sent || errors.Is(at, c.is) != (i == 20) {
				t.Errorf("entry %d: %q, %v", i, ids[i], at)
			}
		}
		if got := len(bodiesOf(s)); got > 14 {
			t.Errorf("%d calls", got)
		}
	}
}

// TestGroupTellsItsFirstFailure has a message that is not packed behind a publish that failed: what
// follows both hears of the failure.
func TestGroupTellsItsFirstFailure(t *testing.T) {
	refused := status.Error(codes.Unavailable, "no")
	b, _ := stubbed(t, nil, func(context.Context, proto.Message) (proto.Message, error) { return nil, refused })
	os := outs("a/1", "a/2", "a/3")
	os[1].Delay = time.Second
	_, err := b.Send(t.Context(), os)
	for i, unfit := range []bool{false, true, false} {
		if at := broker.ErrAt(err, i); errors.Is(at, broker.ErrUnsupported) != unfit || errors.Is(at, refused) == unfit {
			t.Errorf("entry %d: %v", i, at)
		}
	}
}

// TestTooMuchIsNoQuota has one code for a publish of too many bytes and for a quota.
func TestTooMuchIsNoQuota(t *testing.T) {
	b, _ := stubbed(t, nil, func(context.Context, proto.Message) (proto.Message, error) {
		return nil, status.Error(codes.ResourceExhausted, "grpc: received message larger than max (20000000 vs. 10485760)")
	})
	if _, err := b.Send(t.Context(), outs("1")); !errors.Is(broker.ErrAt(err, 0), broker.ErrTooLarge) {
		t.Errorf("it was answered %v", err)
	}
}

func TestSendFails(t *testing.T) {
	for _, c := range []struct {
		code codes.Code
		is   error
		says string
	}{
		{codes.Unavailable, nil, "Unavailable"},
		{codes.FailedPrecondition, nil, "gcppubsub: send orders: rpc error"},
		{codes.NotFound, broker.ErrNotFound, "gcppubsub: send orders: "},
		{codes.ResourceExhausted, broker.ErrThrottled, "Quota exceeded"},
		{codes.PermissionDenied, nil, "it needs roles/pubsub.publisher on the topic"},
	} {
		b, s := stubbed(t, nil, func(context.Context, proto.Message) (proto.Message, error) {
			return nil, status.Error(c.code, "Quota exceeded")
		})
		ids, err := b.Send(t.Context(), outs("1", "2"))
		var batch *broker.BatchError
		if ids != nil || errors.As(err, &batch) || c.is != nil && !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%v: %q, %v", c.code, ids, err)
		}
		if got := len(bodiesOf(s)); got != 1 {
			t.Errorf("%v: %d calls: the driver repeats none", c.code, got)
		}
	}
	b, _ := stubbed(t, nil, func(context.Context, proto.Message) (proto.Message, error) {
		return &pubsubpb.PublishResponse{MessageIds: []string{"one"}}, nil
	})
	if _, err := b.Send(t.Context(), outs("1", "2")); err == nil {
		t.Error("an answer with too few ids is success")
	}
	b, s := stubbed(t, nil, accepts)
	os := outs("1", "2")
	os[1].Delay = time.Second
	if _, err := b.Send(t.Context(), os); !errors.Is(broker.ErrAt(err, 1), broker.ErrUnsupported) || broker.ErrAt(err, 0) != nil || len(bodiesOf(s)) != 1 {
		t.Errorf("a delay was answered %v", err)
	}
}
