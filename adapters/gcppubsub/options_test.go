package gcppubsub_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/onceq/onceq/adapters/gcppubsub"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/pubsubwire"
)

func TestNewRefuses(t *testing.T) {
	topic, sub := stubTopic, stubSubscription
	for _, c := range []struct {
		topic, sub string
		o          *gcppubsub.Options
		says       string
	}{
		{"", "", nil, "neither a topic nor a subscription"},
		{"orders", sub, nil, `"orders" is not of the form projects/PROJECT/topics/NAME`},
		{topic, topic, nil, "projects/PROJECT/subscriptions/NAME"},
		{sub, sub, nil, "projects/PROJECT/topics/NAME"},
		{topic + "/x", sub, nil, "other parts"},
		{"projects//topics/orders", sub, nil, "the project's id"},
		{"projects/ACME/topics/orders", sub, nil, "the project's id"},
		{"projects/acme/topics/or", sub, nil, "2 bytes, want 3 to 255"},
		{"projects/acme/topics/" + strings.Repeat("x", 256), sub, nil, "256 bytes"},
		{"projects/acme/topics/1orders", sub, nil, "begins with a letter"},
		{"projects/acme/topics/or ders", sub, nil, "letters, digits"},
		{"projects/acme/topics/goog-orders", sub, nil, "goog"},
		{topic, sub, &gcppubsub.Options{Visibility: 9 * time.Second}, "Options.Visibility: 9s is not within 10s and 10m0s"},
		{topic, sub, &gcppubsub.Options{Visibility: 601 * time.Second}, "Options.Visibility"},
		{topic, sub, &gcppubsub.Options{Visibility: 10*time.Second + 1}, "whole seconds"},
		{topic, sub, &gcppubsub.Options{LongPoll: 10 * time.Second}, "Options.LongPoll: 10s is not within 1s and 9s"},
		{topic, sub, &gcppubsub.Options{LongPoll: 20}, "Options.LongPoll"},
		{topic, sub, &gcppubsub.Options{LongPoll: 1500 * time.Millisecond}, "whole seconds"},
		{topic, sub, &gcppubsub.Options{CallTimeout: -1}, "Options.CallTimeout: -1ns is negative"},
		{topic, sub, &gcppubsub.Options{CallTimeout: 30}, "Options.CallTimeout"},
		{topic, sub, &gcppubsub.Options{CallTimeout: time.Hour}, "Options.CallTimeout: 1h0m0s is above 5m0s"},
	} {
		if _, err := gcppubsub.New(&stub{}, c.topic, c.sub, c.o); err == nil || !strings.Contains(err.Error(), c.says) || !strings.HasPrefix(err.Error(), "gcppubsub: ") {
			t.Errorf("%q, %q, %+v: %v", c.topic, c.sub, c.o, err)
		}
	}
	for _, api := range []gcppubsub.API{nil, (*gcppubsub.Clients)(nil)} {
		if _, err := gcppubsub.New(api, topic, sub, nil); err == nil || !strings.Contains(err.Error(), "the API is nil") {
			t.Errorf("%v", err)
		}
	}
	for _, name := range []string{"projects/acme/topics/Orders-1._~+%", "projects/example.com:acme-1/topics/abc", "projects/a/topics/" + strings.Repeat("x", 255)} {
		if _, err := gcppubsub.New(&stub{}, name, "", nil); err != nil {
			t.Error(err)
		}
	}
}

func TestLimits(t *testing.T) {
	b := makeBroker(t, &stub{}, stubTopic, stubSubscription, &gcppubsub.Options{Ordered: true, Attempts: true, LongPoll: 4 * time.Second})
	want := broker.Limits{
		ReceiveBatch: 1000, SettleBatch: 1000, SendBatch: 1000, MinHold: 10 * time.Second, MaxHold: 10 * time.Minute, MaxNack: 10 * time.Minute,
		MaxWait: 4 * time.Second, MaxBody: 9_998_000, MaxAttributes: 100, Attempts: true, OrderedGroups: true, FansOut: true, Extends: true,
		PerRequestCost: true, Durable: true,
	}
	if got := b.Limits(); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if l := makeBroker(t, &stub{}, stubTopic, "", nil).Limits(); l.OrderedGroups || l.Attempts || l.MaxWait != 9*time.Second || l.MaxBody != pubsubwire.MaxMessage {
		t.Errorf("%+v", l)
	}
}

// TestHalfABroker has no topic, or no subscription.
func TestHalfABroker(t *testing.T) {
	s := &stub{answer: func(context.Context, proto.Message) (proto.Message, error) { return nil, errors.New("called") }}
	sends, receives := makeBroker(t, s, stubTopic, "", nil), makeBroker(t, s, "", stubSubscription, nil)
	if _, err := receives.Send(t.Context(), outs("1")); !errors.Is(err, broker.ErrUnsupported) || !strings.Contains(err.Error(), "no topic") {
		t.Errorf("%v", err)
	}
	_, receive := sends.Receive(t.Context(), asked)
	_, policy := sends.Redrive(t.Context())
	_, _, check := sends.Check(t.Context(), gcppubsub.CheckOptions{})
	for _, err := range []error{
		receive, policy, check, sends.Ack(t.Context(), receipts(1, 1)), sends.Nack(t.Context(), holdsOf(receipts(1, 1), 0)),
		sends.Extend(t.Context(), holdsOf(receipts(1, 1), time.Minute)),
	} {
		if !errors.Is(err, broker.ErrUnsupported) || !strings.Contains(err.Error(), "no subscription") {
			t.Errorf("%v", err)
		}
	}
	if len(s.calls) > 0 {
		t.Errorf("%d calls", len(s.calls))
	}
	if sends.Topic() != stubTopic || sends.Subscription() != "" || receives.Subscription() != stubSubscription {
		t.Error("the names are others")
	}
}

func TestNilAndZeroBrokers(t *testing.T) {
	for _, b := range []*gcppubsub.Broker{nil, {}} {
		_, receive := b.Receive(t.Context(), asked)
		_, send := b.Send(t.Context(), outs("1"))
		_, policy := b.Redrive(t.Context())
		for _, err := range []error{receive, send, policy, b.Ack(t.Context(), receipts(1, 1))} {
			if !errors.Is(err, broker.ErrClosed) {
				t.Errorf("%v", err)
			}
		}
		if err := b.Close(); err != nil || b.Limits() != (broker.Limits{}) || b.Stats() != (gcppubsub.Stats{}) || b.Topic()+b.Subscription() != "" {
			t.Errorf("%v", err)
		}
	}
	for _, c := range []*gcppubsub.Clients{nil, {}} {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
	b := makeBroker(t, &gcppubsub.Clients{}, stubTopic, stubSubscription, nil)
	if _, err := b.Receive(t.Context(), asked); err == nil || !strings.Contains(err.Error(), "no client") {
		t.Errorf("%v", err)
	}
	if _, err := b.Send(t.Context(), outs("1")); err == nil || !strings.Contains(err.Error(), "no client") {
		t.Errorf("%v", err)
	}
	if err := b.Ack(t.Context(), receipts(1, 1)); err == nil || !strings.Contains(err.Error(), "no client") {
		t.Errorf("%v", err)
	}
}
