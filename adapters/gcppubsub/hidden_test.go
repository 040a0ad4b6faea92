package gcppubsub_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/gcppubsub"
	"github.com/onceq/onceq/adapters/gcppubsub/pubsubfake"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/rig"
)

// pulled is a subscription whose pulls take a time.
type pulled struct {
	own  time.Duration // its ack deadline
	err  error         // instead
	took time.Duration
}

func (p *pulled) broker(t *testing.T) (*gcppubsub.Broker, *stub) {
	return stubbed(t, nil, func(_ context.Context, in proto.Message) (proto.Message, error) {
		switch in.(type) {
		case *pubsubpb.GetSubscriptionRequest:
			return &pubsubpb.Subscription{AckDeadlineSeconds: inSeconds(p.own)}, p.err
		case *pubsubpb.PullRequest:
			if p.took > 0 {
				<-time.After(p.took)
			}
			return deliveries(2), nil
		}
		return nil, nil
	})
}

// TestHiddenAlready compares ack deadlines with what a receive asks for.
func TestHiddenAlready(t *testing.T) {
	const s = time.Second
	for _, c := range []struct {
		name       string
		visibility time.Duration
		pulled
		extended bool
		left     time.Duration // at the pull's answer
	}{
		{name: "as long", visibility: 30 * s, pulled: pulled{own: 30 * s}, left: 30 * s},
		{name: "rounded up", visibility: 30*s - 1, pulled: pulled{own: 30 * s}, left: 30 * s},
		{name: "a pull of a moment", visibility: 30 * s, pulled: pulled{own: 30 * s, took: 40 * time.Millisecond}, left: 30*s - 40*time.Millisecond},
		{name: "a pull of 5 s", visibility: 30 * s, pulled: pulled{own: 30 * s, took: 5 * s}, left: 25 * s},
		{name: "a longer pull", visibility: 60 * s, pulled: pulled{own: 60 * s, took: 5*s + 1}, extended: true, left: 60 * s},
		{name: "a quarter of a short one", visibility: 10 * s, pulled: pulled{own: 10 * s, took: 2500 * time.Millisecond}, left: 7500 * time.Millisecond},
		{name: "more than a quarter", visibility: 10 * s, pulled: pulled{own: 10 * s, took: 2500*time.Millisecond + 1}, extended: true, left: 10 * s},
		{name: "three quarters", visibility: 40 * s, pulled: pulled{own: 30 * s}, left: 30 * s},
		{name: "less, by the pull", visibility: 40 * s, pulled: pulled{own: 30 * s, took: 1}, extended: true, left: 40 * s},
		{name: "Pub/Sub's default", visibility: 30 * s, pulled: pulled{}, extended: true, left: 30 * s},
		// A worker that dies would hide its messages for longer than it was told to.
		{name: "longer", visibility: 30 * s, pulled: pulled{own: 31 * s}, extended: true, left: 30 * s},
		{name: "longer, less the pull", visibility: 30 * s, pulled: pulled{own: 31 * s, took: s}, extended: true, left: 30 * s},
		{name: "not told", visibility: 10 * s, pulled: pulled{err: status.Error(codes.PermissionDenied, "x")}, extended: true, left: 10 * s},
		{name: "away", visibility: 10 * s, pulled: pulled{err: status.Error(codes.Unavailable, "x")}, extended: true, left: 10 * s},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, st := c.broker(t)
				ms, err := b.Receive(t.Context(), broker.ReceiveOptions{Max: 2, Wait: -1, Visibility: c.visibility})
				if err != nil || len(ms) != 2 {
					t.Fatalf("%d messages, %v", len(ms), err)
				}
				for _, m := range ms {
					if got := time.Until(m.Deadline); got != c.left {
						t.Errorf("the deadline is %v after the answer, want %v", got, c.left)
					}
				}
				if holds, _ := of[*pubsubpb.ModifyAckDeadlineRequest](st); (len(holds) == 1) != c.extended {
					t.Errorf("%d extensions", len(holds))
				}
			})
		})
	}
}

// TestSettingsAreReadAgain changes the ack deadline while a worker would receive.
func TestSettingsAreReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &pulled{own: 30 * time.Second}
		b, s := p.broker(t)
		receive := func() (extended bool) {
			t.Helper()
			before := b.Stats().Holds
			if _, err := b.Receive(t.Context(), asked); err != nil {
				t.Fatal(err)
			}
			return b.Stats().Holds > before
		}
		questions := func(want int) {
			t.Helper()
			if _, calls := of[*pubsubpb.GetSubscriptionRequest](s); len(calls) != want {
				t.Errorf("the subscription was asked %d times, want %d", len(calls), want)
			}
		}
		// A worker looks at the settings when it starts, and its receives take those.
		if _, err := b.Redrive(t.Context()); err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		p.own = 10 * time.Second
		for time.Since(begun) < 10*time.Minute {
			if receive() {
				t.Fatalf("extended %v after the settings were read", time.Since(begun))
			}
			<-time.After(time.Minute)
		}
		questions(1)
		if !receive() {
			t.Error("not extended after 10 minutes, and the ack deadline is 10 s now")
		}
		questions(2)
		// Without an answer nothing is believed. It is asked for again, a minute later.
		p.own = 30 * time.Second
		<-time.After(10 * time.Minute)
		p.err = status.Error(codes.Unavailable, "x")
		for range 60 {
			if !receive() {
				t.Error("not extended")
			}
			<-time.After(time.Second)
		}
		questions(3)
		p.err = nil
		if receive() {
			t.Error("extended, although the settings were read")
		}
		questions(4)
		// A refusal stays for as long as an answer does.
		<-time.After(10 * time.Minute)
		p.err = status.Error(codes.PermissionDenied, "x")
		for range 9 {
			if !receive() {
				t.Error("not extended")
			}
			<-time.After(time.Minute)
		}
		questions(5)
	})
}

// TestOnePollerAsks while others receive, and a question that hangs ends.
func TestOnePollerAsks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, s := stubbed(t, nil, func(ctx context.Context, in proto.Message) (proto.Message, error) {
			if _, ok := in.(*pubsubpb.GetSubscriptionRequest); ok {
				return nil, silence(ctx)
			}
			return nil, nil
		})
		var mu sync.Mutex
		var took []time.Duration
		var pollers sync.WaitGroup
		begun := time.Now()
		for range 4 {
			pollers.Go(func() {
				if _, err := b.Receive(t.Context(), asked); err != nil {
					t.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				took = append(took, time.Since(begun))
			})
		}
		pollers.Wait()
		if took[2] != 0 || took[3] != 3*time.Second {
			t.Errorf("the receives took %v", took)
		}
		if _, calls := of[*pubsubpb.GetSubscriptionRequest](s); len(calls) != 1 {
			t.Errorf("the subscription was asked %d times", len(calls))
		}
	})
}

// TestDrainAmidTheQuestion makes no pull after it, because a pull goes on without its caller.
func TestDrainAmidTheQuestion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, s := stubbed(t, nil, func(ctx context.Context, in proto.Message) (proto.Message, error) {
			if _, ok := in.(*pubsubpb.GetSubscriptionRequest); ok {
				return nil, silence(ctx)
			}
			return nil, nil
		})
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		begun := time.Now()
		if _, err := b.Receive(ctx, asked); !errors.Is(err, context.Canceled) || time.Since(begun) != time.Second {
			t.Errorf("%v, after %v", err, time.Since(begun))
		}
		if pulls, _ := of[*pubsubpb.PullRequest](s); len(pulls) > 0 {
			t.Errorf("%d pulls", len(pulls))
		}
	})
}

// asLong is a subscription whose ack deadline is the workers' Visibility.
func asLong(s *pubsubpb.Subscription) { s.AckDeadlineSeconds = inSeconds(onceq.DefaultVisibility) }

// TestShortJobsCostNoExtension counts the calls of jobs that end before a beat.
func TestShortJobsCostNoExtension(t *testing.T) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			inWorldOf(t, k, asLong, func(w *world) {
				w.Put("", numbers(500)...)
				p := w.Work(rig.Works(time.Second), concurrency(100))
				w.Until(time.Minute, "every job done", w.AllDone(500))
				p.Drain()
				w.once(500)
				w.deliveredOnce(500)
				for _, r := range w.srv.Requests() {
					if r.Method == "ModifyAckDeadline" {
						t.Fatalf("an extension: %+v", r)
					}
				}
			})
		})
	}
}

// TestHeldFromTheirFirstDeadline has jobs that outlast the ack deadline, and others that wait for
// them, while extensions, or the store's renewals, hang for a while.
func TestHeldFromTheirFirstDeadline(t *testing.T) {
	for _, k := range kinds {
		for name, fault := range map[string]pubsubfake.Fault{
			"well":        {Method: "GetTopic", Count: 1},
			"silence":     {Method: "ModifyAckDeadline", Silence: true, For: 15 * time.Second},
			"unavailable": {Method: "ModifyAckDeadline", Code: codes.Unavailable, For: 20 * time.Second},
			"late pulls":  {Method: "Pull", ReplyDelay: 4 * time.Second},
		} {
			t.Run(k.name+"/"+name, func(t *testing.T) {
				inWorldOf(t, k, asLong, func(w *world) {
					w.srv.SetFaults(fault)
					w.Put("", numbers(30)...)
					p := w.Work(rig.Works(50*time.Second), func(c *rig.Config) { c.Concurrency, c.Prefetch = 10, 20 })
					w.Until(10*time.Minute, "every job done", w.AllDone(30))
					p.Drain()
					w.once(30)
					w.deliveredOnce(30)
				})
			})
		}
	}
}

// TestKilledBeforeItsFirstBeat shows when its message comes again.
func TestKilledBeforeItsFirstBeat(t *testing.T) {
	inWorldOf(t, kinds[0], asLong, func(w *world) {
		begun := time.Now()
		w.Put("", "a")
		p := w.Work(rig.Works(time.Hour), nil)
		<-time.After(5 * time.Second)
		p.Kill()
		w.Until(time.Minute, "it is there again", func() bool { return w.srv.Stats(w.sub).Held == 0 })
		if after := time.Since(begun); after > onceq.DefaultVisibility+time.Second {
			w.Errorf("the message was hidden for %v", after)
		}
		p = w.Work(rig.Works(time.Second), nil)
		w.Until(2*time.Minute, "the job is done", w.AllDone(1))
		p.Drain()
		w.once(1)
	})
}
