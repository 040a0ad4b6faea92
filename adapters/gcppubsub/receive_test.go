package gcppubsub_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/onceq/onceq/adapters/gcppubsub"
	"github.com/onceq/onceq/broker"
)

var asked = broker.ReceiveOptions{Max: 10, Wait: -1, Visibility: 30 * time.Second}

func TestPullCarriesItsDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, s := stubbed(t, nil, func(context.Context, proto.Message) (proto.Message, error) { return nil, nil })
		for _, c := range []struct {
			wait, left time.Duration
			at         bool // once
		}{
			{-1, 10 * time.Second, false},
			{9 * time.Second, 10 * time.Second, false},
			{3 * time.Second, 4 * time.Second, false},
			{0, 5 * time.Second, true},
		} {
			// The caller's own deadline does not travel.
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			if ms, err := b.Receive(ctx, broker.ReceiveOptions{Max: 7, Wait: c.wait, Visibility: 30 * time.Second}); len(ms) > 0 || err != nil {
				t.Fatalf("an empty answer gave %v, %v", ms, err)
			}
			cancel()
			ins, calls := of[*pubsubpb.PullRequest](s)
			in, call := ins[len(ins)-1], calls[len(calls)-1]
			if call.left != c.left || atOnce(in) != c.at || in.GetMaxMessages() != 7 || in.GetSubscription() != stubSubscription {
				t.Errorf("Wait %v: %v until the deadline, %v", c.wait, call.left, in)
			}
		}
		if st := b.Stats(); st.Pulls != 4 || st.Empty != 4 || st.Unanswered != 0 {
			t.Errorf("%+v", st)
		}
	})
}

func TestPullOutlivesItsCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, s := stubbed(t, nil, func(ctx context.Context, in proto.Message) (proto.Message, error) {
			if _, ok := in.(*pubsubpb.PullRequest); !ok {
				return nil, nil
			}
			select {
			case <-time.After(5 * time.Second):
				return deliveries(2), nil
			case <-ctx.Done():
				return nil, errors.New("the pull was cut off")
			}
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		ms, err := b.Receive(ctx, asked)
		if err != nil || len(ms) != 2 {
			t.Fatalf("%d messages, %v", len(ms), err)
		}
		if holds, _ := of[*pubsubpb.ModifyAckDeadlineRequest](s); len(holds) != 1 || len(holds[0].GetAckIds()) != 2 {
			t.Errorf("the extensions are %v", holds)
		}
		// Without messages it is the context's error.
		s.answer = func(ctx context.Context, _ proto.Message) (proto.Message, error) {
			<-time.After(time.Second)
			return nil, nil
		}
		ctx, cancel = context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if _, err := b.Receive(ctx, asked); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
		// An error of the service's comes with the context's.
		s.answer = func(ctx context.Context, _ proto.Message) (proto.Message, error) {
			<-time.After(time.Second)
			return nil, status.Error(codes.NotFound, "gone")
		}
		ctx, cancel = context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if _, err := b.Receive(ctx, asked); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, broker.ErrNotFound) {
			t.Errorf("%v", err)
		}
	})
}

// TestSilenceIsNoEmptyQueue stalls all pulls, and only them, and then those alone that wait.
func TestSilenceIsNoEmptyQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, s := stubbed(t, nil, func(ctx context.Context, in proto.Message) (proto.Message, error) {
			if _, ok := in.(*pubsubpb.PullRequest); !ok {
				return nil, nil
			}
			return nil, silence(ctx)
		})
		receive := func() error {
			t.Helper()
			ms, err := b.Receive(t.Context(), asked)
			if len(ms) > 0 {
				t.Fatalf("%d messages", len(ms))
			}
			return err
		}
		started := time.Now()
		for range 3 {
			err := receive()
			if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "pulls in a row") {
				t.Fatalf("%v", err)
			}
		}
		if took := time.Since(started); took != 45*time.Second {
			t.Errorf("it took %v", took)
		}
		// Who has gone does not wait for another answer.
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		started = time.Now()
		if _, err := b.Receive(ctx, asked); !errors.Is(err, context.Canceled) || time.Since(started) != 10*time.Second {
			t.Errorf("%v, after %v", err, time.Since(started))
		}
		// An idle server that ends pulls by their deadline alone is no silent one.
		s.answer = func(ctx context.Context, in proto.Message) (proto.Message, error) {
			if in, ok := in.(*pubsubpb.PullRequest); !ok || atOnce(in) {
				return nil, nil
			}
			return nil, silence(ctx)
		}
		s.calls = nil
		for range 20 {
			if err := receive(); err != nil {
				t.Fatal(err)
			}
		}
		ins, _ := of[*pubsubpb.PullRequest](s)
		questions := 0
		for _, in := range ins {
			if atOnce(in) {
				questions++
			}
		}
		if questions != 20 {
			t.Errorf("in 20 receives it was asked %d times for an answer at once", questions)
		}
		// What the question brings is handed out.
		s.answer = func(ctx context.Context, in proto.Message) (proto.Message, error) {
			switch in := in.(type) {
			case *pubsubpb.PullRequest:
				if atOnce(in) {
					return deliveries(1), nil
				}
				return nil, silence(ctx)
			}
			return nil, nil
		}
		came := 0
		for range 4 {
			ms, err := b.Receive(t.Context(), asked)
			if err != nil {
				t.Fatal(err)
			}
			came += len(ms)
		}
		if came == 0 {
			t.Error("nothing came")
		}
		if st := b.Stats(); st.Unanswered < 20 || st.Received != int64(came) {
			t.Errorf("%+v", st)
		}
	})
}

// TestFirstExtension follows a pull whose messages are not hidden for long enough. What it is
// answered decides over the Deadline.
func TestFirstExtension(t *testing.T) {
	for _, c := range []struct {
		name   string
		answer error
		silent bool
		// want is how long after the pull's answer each Deadline is; took is how long the call was.
		want [3]time.Duration
		took time.Duration
	}{
		{name: "works", want: [3]time.Duration{30 * time.Second, 30 * time.Second, 30 * time.Second}, took: 2 * time.Second},
		{name: "fails", answer: status.Error(codes.Unavailable, "x"), want: [3]time.Duration{8 * time.Second, 8 * time.Second, 8 * time.Second}, took: 2 * time.Second},
		{name: "has no answer", silent: true, want: [3]time.Duration{8 * time.Second, 8 * time.Second, 8 * time.Second}, took: 3 * time.Second},
		{
			name:   "fails in part",
			answer: idsFailed(codes.InvalidArgument, map[string]string{"ack-0": "PERMANENT_FAILURE_INVALID_ACK_ID", "ack-2": "TRANSIENT_FAILURE_SERVICE_UNAVAILABLE"}),
			want:   [3]time.Duration{0, 30 * time.Second, 8 * time.Second}, took: 2 * time.Second,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, s := stubbed(t, nil, func(ctx context.Context, in proto.Message) (proto.Message, error) {
					if _, ok := in.(*pubsubpb.GetSubscriptionRequest); ok {
						return nil, nil // 10 s
					}
					<-time.After(2 * time.Second)
					switch in.(type) {
					case *pubsubpb.PullRequest:
						return deliveries(3), nil
					default:
						if c.silent {
							return nil, silence(ctx)
						}
						return nil, c.answer
					}
				})
				started := time.Now()
				ms, err := b.Receive(t.Context(), broker.ReceiveOptions{Max: 3, Wait: -1, Visibility: 29*time.Second + 1})
				if err != nil || len(ms) != 3 {
					t.Fatalf("%d messages, %v", len(ms), err)
				}
				if took := time.Since(started); took != 2*time.Second+c.took {
					t.Errorf("it took %v", took)
				}
				for i, m := range ms {
					if got := m.Deadline.Sub(started.Add(2 * time.Second)); got != c.want[i] {
						t.Errorf("message %d: the deadline is %v after the pull's answer, want %v", i, got, c.want[i])
					}
				}
				holds, _ := of[*pubsubpb.ModifyAckDeadlineRequest](s)
				if len(holds) != 1 || holds[0].GetAckDeadlineSeconds() != 30 {
					t.Errorf("the extensions are %v", holds)
				}
			})
		})
	}
}

// TestVisibilityOfTheSubscription is what counts where a receive names none.
func TestVisibilityOfTheSubscription(t *testing.T) {
	for _, c := range []struct {
		name     string
		o        *gcppubsub.Options
		own      int32
		err      error
		want     time.Duration // that messages are hidden
		calls    int           // for the settings
		extended int           // receives
		fails    error
	}{
		{name: "its own", own: 45, want: 45 * time.Second, calls: 1},
		{name: "none", want: 10 * time.Second, calls: 1},
		{name: "not to be asked for", err: status.Error(codes.PermissionDenied, "x"), want: 10 * time.Second, calls: 1, extended: 2},
		{name: "away", err: status.Error(codes.Unavailable, "x"), calls: 2, fails: status.Error(codes.Unavailable, "x")},
		{name: "the options'", o: &gcppubsub.Options{Visibility: time.Minute}, want: time.Minute, calls: 1, extended: 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, s := stubbed(t, c.o, func(_ context.Context, in proto.Message) (proto.Message, error) {
					switch in.(type) {
					case *pubsubpb.GetSubscriptionRequest:
						return &pubsubpb.Subscription{AckDeadlineSeconds: c.own}, c.err
					case *pubsubpb.PullRequest:
						return deliveries(1), nil
					}
					return nil, nil
				})
				for range 2 {
					ms, err := b.Receive(t.Context(), broker.ReceiveOptions{Max: 1, Wait: -1})
					if !errors.Is(err, c.fails) {
						t.Fatal(err)
					}
					for _, m := range ms {
						if got := time.Until(m.Deadline); got != c.want {
							t.Errorf("hidden for %v, want %v", got, c.want)
						}
					}
				}
				if _, calls := of[*pubsubpb.GetSubscriptionRequest](s); len(calls) != c.calls {
					t.Errorf("the subscription was asked %d times", len(calls))
				}
				holds, _ := of[*pubsubpb.ModifyAckDeadlineRequest](s)
				if len(holds) != c.extended {
					t.Errorf("%d extensions", len(holds))
				}
				for _, h := range holds {
					if h.GetAckDeadlineSeconds() != inSeconds(c.want) {
						t.Errorf("extended by %d s, want %v", h.GetAckDeadlineSeconds(), c.want)
					}
				}
			})
		})
	}
}

func TestReceiveRefuses(t *testing.T) {
	b, s := stubbed(t, &gcppubsub.Options{LongPoll: 5 * time.Second}, func(context.Context, proto.Message) (proto.Message, error) { return nil, nil })
	for _, o := range []broker.ReceiveOptions{
		{Max: 0},
		{Max: 1001},
		{Max: 1, Wait: 6 * time.Second},
		{Max: 1, Visibility: 9 * time.Second},
		{Max: 1, Visibility: 601 * time.Second},
		{Max: 1, Visibility: -1},
	} {
		if _, err := b.Receive(t.Context(), o); !errors.Is(err, broker.ErrUnsupported) {
			t.Errorf("%+v was answered %v", o, err)
		}
	}
	if len(s.calls) > 0 {
		t.Errorf("%d calls", len(s.calls))
	}
}

func TestCloseEndsAPull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, _ := stubbed(t, nil, func(ctx context.Context, _ proto.Message) (proto.Message, error) { return nil, silence(ctx) })
		time.AfterFunc(time.Second, func() { b.Close() })
		started := time.Now()
		_, err := b.Receive(t.Context(), asked)
		if !errors.Is(err, broker.ErrClosed) || time.Since(started) != time.Second {
			t.Errorf("%v after %v", err, time.Since(started))
		}
	})
}

// atOnce reports whether a pull asks for an answer at once.
func atOnce(in *pubsubpb.PullRequest) bool {
	//lint:ignore SA1019 see receive.go
	return in.GetReturnImmediately() //nolint:staticcheck // see above
}
