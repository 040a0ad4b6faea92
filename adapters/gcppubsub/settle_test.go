package gcppubsub_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/onceq/onceq/broker"
)

func receipts(n int, width int) (rs []broker.Receipt) {
	for i := range n {
		rs = append(rs, broker.Receipt(fmt.Sprintf("ack-%0*d", width, i)))
	}
	return rs
}

func holdsOf(rs []broker.Receipt, d time.Duration) (hs []broker.Hold) {
	for _, r := range rs {
		hs = append(hs, broker.Hold{Receipt: r, For: d})
	}
	return hs
}

func TestCallsWithAckIDsStayBelowTheLimit(t *testing.T) {
	b, s := stubbed(t, nil, func(context.Context, proto.Message) (proto.Message, error) { return nil, nil })
	for _, c := range []struct{ width, calls int }{{20, 1}, {700, 2}, {4000, 8}} {
		s.calls = nil
		rs := receipts(1000, c.width)
		if err := b.Ack(t.Context(), rs); err != nil {
			t.Fatal(err)
		}
		if err := b.Extend(t.Context(), holdsOf(rs, time.Minute)); err != nil {
			t.Fatal(err)
		}
		acks, _ := of[*pubsubpb.AcknowledgeRequest](s)
		holds, _ := of[*pubsubpb.ModifyAckDeadlineRequest](s)
		if len(acks) != c.calls || len(holds) != c.calls {
			t.Errorf("ids of %d bytes: %d and %d calls, want %d", c.width, len(acks), len(holds), c.calls)
		}
		var sent []broker.Receipt
		for i, in := range acks {
			if n := proto.Size(in); n > 512<<10 || proto.Size(holds[i]) > 512<<10 {
				t.Errorf("a call has %d bytes", n)
			}
			for _, id := range in.GetAckIds() {
				sent = append(sent, broker.Receipt(id))
			}
		}
		if !slices.Equal(sent, rs) {
			t.Error("the ids were not sent once each, in order")
		}
	}
	if st := b.Stats(); st.Acked != 3000 || st.Acks != 11 || st.Holds != 11 {
		t.Errorf("%+v", st)
	}
}

func TestNackDelays(t *testing.T) {
	b, s := stubbed(t, nil, func(context.Context, proto.Message) (proto.Message, error) { return nil, nil })
	var hs []broker.Hold
	for i, d := range []time.Duration{0, 1, time.Second, 1500 * time.Millisecond, time.Minute, time.Minute + 1, 61 * time.Second, 10 * time.Minute, 0} {
		hs = append(hs, broker.Hold{Receipt: broker.Receipt(fmt.Sprint("ack-", i)), For: d})
	}
	if err := b.Nack(t.Context(), hs); err != nil {
		t.Fatal(err)
	}
	ins, _ := of[*pubsubpb.ModifyAckDeadlineRequest](s)
	var got []string
	for _, in := range ins {
		got = append(got, fmt.Sprintf("%d%v", in.GetAckDeadlineSeconds(), in.GetAckIds()))
	}
	want := []string{"0[ack-0 ack-8]", "1[ack-1 ack-2]", "2[ack-3]", "60[ack-4]", "70[ack-5 ack-6]", "600[ack-7]"}
	if !slices.Equal(got, want) {
		t.Errorf("the calls are %q, want %q", got, want)
	}
}

func TestHoldsOutOfBounds(t *testing.T) {
	b, s := stubbed(t, nil, func(context.Context, proto.Message) (proto.Message, error) { return nil, nil })
	for _, c := range []struct {
		do  func(context.Context, []broker.Hold) error
		bad []time.Duration
		ok  time.Duration
	}{
		{b.Nack, []time.Duration{-1, 10*time.Minute + 1}, 0},
		{b.Extend, []time.Duration{-1, 0, 10*time.Second - 1, 10*time.Minute + 1}, 10 * time.Second},
	} {
		for _, d := range c.bad {
			s.calls = nil
			err := c.do(t.Context(), []broker.Hold{{Receipt: "a", For: c.ok}, {Receipt: "b", For: d}, {Receipt: "", For: c.ok}, {Receipt: "c", For: c.ok}})
			if !errors.Is(broker.ErrAt(err, 1), broker.ErrUnsupported) || !errors.Is(broker.ErrAt(err, 2), broker.ErrReceiptExpired) ||
				broker.ErrAt(err, 0) != nil || broker.ErrAt(err, 3) != nil {
				t.Errorf("%v was answered %v", d, err)
			}
			if ins, _ := of[*pubsubpb.ModifyAckDeadlineRequest](s); len(ins) != 1 || !slices.Equal(ins[0].GetAckIds(), []string{"a", "c"}) {
				t.Errorf("the calls are %v", ins)
			}
		}
	}
}

// TestIDsFailByPosition is what an exactly-once subscription answers.
func TestIDsFailByPosition(t *testing.T) {
	how := map[string]string{
		"b": "PERMANENT_FAILURE_INVALID_ACK_ID", "c": "TRANSIENT_FAILURE_SERVICE_UNAVAILABLE", "d": "PERMANENT_FAILURE_OTHER", "x": "TRANSIENT_OF_NOBODY",
	}
	for _, code := range []codes.Code{codes.InvalidArgument, codes.FailedPrecondition, codes.Unavailable} {
		b, s := stubbed(t, nil, func(context.Context, proto.Message) (proto.Message, error) { return nil, idsFailed(code, how) })
		err := b.Ack(t.Context(), []broker.Receipt{"a", "b", "c", "d", "a"})
		for i, want := range []struct{ ok, expired bool }{{ok: true}, {expired: true}, {}, {}, {ok: true}} {
			at := broker.ErrAt(err, i)
			if code == codes.Unavailable && want.ok {
				// It says nothing of those that it does not name.
				want.ok = false
			}
			if (at == nil) != want.ok || errors.Is(at, broker.ErrReceiptExpired) != want.expired {
				t.Errorf("%v: entry %d was answered %v", code, i, at)
			}
			if st, ok := errors.AsType[interface {
				error
				GRPCStatus() *status.Status
			}](at); at != nil && (!ok || st.GRPCStatus().Code() != code) {
				t.Errorf("%v: entry %d does not reach gRPC's error: %v", code, i, at)
			}
		}
		if ins, _ := of[*pubsubpb.AcknowledgeRequest](s); len(ins) != 1 || !slices.Equal(ins[0].GetAckIds(), []string{"a", "b", "c", "d"}) {
			t.Errorf("the calls are %v", ins)
		}
	}
}

// TestStrangeIDIsFound is what other subscriptions answer to an id that was never given out: the
// whole call is refused, and nothing says which one it was.
func TestStrangeIDIsFound(t *testing.T) {
	var acked []string
	b, s := stubbed(t, nil, func(_ context.Context, in proto.Message) (proto.Message, error) {
		ids := in.(*pubsubpb.AcknowledgeRequest).GetAckIds()
		if slices.Contains(ids, "strange") {
			return nil, status.Error(codes.InvalidArgument, "You have passed an invalid ack ID to the service (ack_id=strange).")
		}
		acked = append(acked, ids...)
		return nil, nil
	})
	rs := receipts(100, 3)
	rs[37] = "strange"
	err := b.Ack(t.Context(), rs)
	for i := range rs {
		if at := broker.ErrAt(err, i); (at != nil) != (i == 37) || i == 37 && !errors.Is(at, broker.ErrReceiptExpired) {
			t.Errorf("entry %d was answered %v", i, at)
		}
	}
	if _, calls := of[*pubsubpb.AcknowledgeRequest](s); len(acked) != 99 || len(calls) > 16 {
		t.Errorf("%d ids were acked in %d calls", len(acked), len(calls))
	}
}

func TestWholeCallFails(t *testing.T) {
	for _, c := range []struct {
		code codes.Code
		is   error
		says string
	}{
		{codes.Unavailable, nil, "Unavailable"},
		{codes.NotFound, broker.ErrNotFound, "orders-workers"},
		{codes.ResourceExhausted, broker.ErrThrottled, ""},
		{codes.PermissionDenied, nil, "access denied; it needs roles/pubsub.subscriber on the subscription"},
		{codes.Unauthenticated, nil, "access denied"},
		{codes.FailedPrecondition, nil, "detached"},
		{codes.Internal, nil, ""},
	} {
		b, _ := stubbed(t, nil, func(context.Context, proto.Message) (proto.Message, error) {
			return nil, status.Error(c.code, "because")
		})
		for name, err := range map[string]error{
			"ack": b.Ack(t.Context(), receipts(3, 3)), "nack": b.Nack(t.Context(), holdsOf(receipts(3, 3), 0)),
			"extend": b.Extend(t.Context(), holdsOf(receipts(3, 3), time.Minute)),
		} {
			var batch *broker.BatchError
			if errors.As(err, &batch) {
				t.Errorf("%v: %s answers by position, and nothing is known of any: %v", c.code, name, err)
			}
			if c.is != nil && !errors.Is(err, c.is) || errors.Is(err, broker.ErrReceiptExpired) || !strings.Contains(err.Error(), c.says) ||
				!strings.HasPrefix(err.Error(), "gcppubsub: "+name+" orders-workers: ") {
				t.Errorf("%v: %s was answered %v", c.code, name, err)
			}
		}
		_, err := b.Receive(t.Context(), asked)
		if c.is != nil && !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%v: receive was answered %v", c.code, err)
		}
	}
}

func TestCallsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, _ := stubbed(t, nil, func(ctx context.Context, _ proto.Message) (proto.Message, error) { return nil, silence(ctx) })
		started := time.Now()
		err := b.Ack(t.Context(), receipts(2, 3))
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "no answer within 10s") || time.Since(started) != 10*time.Second {
			t.Errorf("%v after %v", err, time.Since(started))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := b.Ack(ctx, receipts(2, 3)); !errors.Is(err, context.DeadlineExceeded) || strings.Contains(err.Error(), "CallTimeout") {
			t.Errorf("%v", err)
		}
	})
}
