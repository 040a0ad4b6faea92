package onceqpubsub_test

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"strings"
	"testing"
	"time"

	"gocloud.dev/gcerrors"
	"gocloud.dev/pubsub"
	"gocloud.dev/pubsub/batcher"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/gocloudpubsub/internal/gocloudtest"
	"github.com/onceq/onceq/adapters/gocloudpubsub/onceqpubsub"
	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe/memstore"
	"github.com/onceq/onceq/internal/must"
)

// openPair is a topic and a subscription on one queue in memory.
func openPair(t *testing.T, p membroker.Preset, o *onceqpubsub.TopicOptions) (*membroker.Broker, *pubsub.Topic, *pubsub.Subscription) {
	t.Helper()
	b := must.Get(membroker.New(&membroker.Options{Preset: p}))
	topic := must.Get(onceqpubsub.OpenTopic(b, o))
	sub := must.Get(onceqpubsub.OpenSubscription(b, nil))
	t.Cleanup(func() { sub.Shutdown(context.Background()); topic.Shutdown(context.Background()) })
	return b, topic, sub
}

func TestTopicKey(t *testing.T) {
	_, topic, sub := openPair(t, membroker.SQSFIFO, &onceqpubsub.TopicOptions{Key: func(m *pubsub.Message) (string, error) {
		if len(m.Body) == 0 {
			return "", errNoOrder
		}
		return "option/" + string(m.Body) + m.Metadata["n"], nil
	}})
	for _, c := range []struct {
		send *pubsub.Message
		want broker.Message
	}{
		{
			&pubsub.Message{Body: []byte("a"), Metadata: map[string]string{"n": "1", "onceq-group": "g"}},
			broker.Message{Meta: &broker.Meta{Key: "option/a1"}, Group: "g"},
		},
		{
			&pubsub.Message{Body: []byte("b"), Metadata: map[string]string{"onceq-key": "k", "onceq-type": "mail", "onceq-group": "g"}},
			broker.Message{Meta: &broker.Meta{Key: "k", Type: "mail"}, Group: "g"},
		},
		{
			&pubsub.Message{Body: []byte("c"), Metadata: map[string]string{"onceq-key": "k"}, BeforeSend: func(as func(any) bool) error {
				var o *broker.Outgoing
				as(&o)
				o.Meta.Key, o.Group = "last word", "h"
				return nil
			}},
			broker.Message{Meta: &broker.Meta{Key: "last word"}, Group: "h"},
		},
	} {
		if err := topic.Send(t.Context(), c.send); err != nil {
			t.Fatal(err)
		}
		m, err := sub.Receive(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		m.Ack()
		var got *broker.Message
		if !m.As(&got) || got.Meta.Key != c.want.Meta.Key || got.Meta.Type != c.want.Meta.Type || got.Group != c.want.Group || got.Meta.ID == "" {
			t.Errorf("%s: got %+v with %+v", m.Body, got, got.Meta)
		}
		if !maps.Equal(m.Metadata, c.send.Metadata) || m.LoggableID != got.ID {
			t.Errorf("%s: metadata %q, id %q", m.Body, m.Metadata, m.LoggableID)
		}
	}
	err := topic.Send(t.Context(), &pubsub.Message{})
	if gcerrors.Code(err) != gcerrors.InvalidArgument || !errors.Is(err, errNoOrder) {
		t.Errorf("got %v", err)
	}
	if err := topic.Send(t.Context(), &pubsub.Message{Body: []byte("no group")}); gcerrors.Code(err) != gcerrors.InvalidArgument || !strings.Contains(err.Error(), "no Group") {
		t.Errorf("got %v", err)
	}
}

var errNoOrder = errors.New("no order")

// Our own attribute is neither shown nor lost where a producer of ours has set it, where it cannot
// be read, and where gocloud's publisher has metadata of that name.
func TestOurOwnAttribute(t *testing.T) {
	b, topic, sub := openPair(t, membroker.SQSStandard, nil)
	meta := broker.EncodeMeta(&broker.Meta{ID: "1", Key: "k"})
	for _, c := range []struct {
		o       broker.Outgoing
		want    map[string]string
		metaErr bool
	}{
		{broker.Outgoing{Body: []byte("ours"), Meta: &broker.Meta{ID: "1", Key: "k"}, Attributes: map[string]string{"a": "b"}}, map[string]string{"a": "b"}, false},
		{broker.Outgoing{Body: []byte("bare"), Meta: &broker.Meta{ID: "1"}}, nil, false},
		{broker.Outgoing{Body: []byte("raw"), Attributes: map[string]string{"onceq": meta}}, nil, false},
		{broker.Outgoing{Body: []byte("bad"), Attributes: map[string]string{"onceq": "{", "a": "b"}}, map[string]string{"onceq": "{", "a": "b"}, true},
		{broker.Outgoing{Body: []byte("letter"), Meta: &broker.Meta{ID: "1", Dead: &broker.Letter{Attributes: map[string]string{"a__0x20__b": "c"}}}}, map[string]string{"a b": "c"}, false},
		{broker.Outgoing{Body: []byte("twice"), Attributes: map[string]string{"a": "b"}, Meta: &broker.Meta{ID: "1", Dead: &broker.Letter{Attributes: map[string]string{"a": "c"}}}}, map[string]string{"a": "b"}, false},
	} {
		if _, err := b.Send(t.Context(), []broker.Outgoing{c.o}); err != nil {
			t.Fatal(err)
		}
		m, err := sub.Receive(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		m.Ack()
		var ours *broker.Message
		if m.As(&ours); (ours.MetaErr != nil) != c.metaErr || !maps.Equal(m.Metadata, c.want) {
			t.Errorf("%s: metadata %q, MetaErr %v", c.o.Body, m.Metadata, ours.MetaErr)
		}
	}
	metadata := map[string]string{"onceq": meta, "onceq-more": "{}"}
	if err := topic.Send(t.Context(), &pubsub.Message{Metadata: metadata}); err != nil {
		t.Fatal(err)
	}
	m, err := sub.Receive(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	m.Ack()
	var ours *broker.Message
	if m.As(&ours); !maps.Equal(m.Metadata, metadata) || ours.Meta.ID == "1" {
		t.Errorf("metadata %q, Meta %+v", m.Metadata, ours.Meta)
	}
}

// As gocloud's awssnssqs: its mark is no metadata, and has room.
func TestBodiesAsGoCloud(t *testing.T) {
	b := must.Get(membroker.New(&membroker.Options{Preset: membroker.SQSStandard}))
	topic := must.Get(onceqpubsub.OpenTopic(b, &onceqpubsub.TopicOptions{GoCloudSQS: true}))
	sub := must.Get(onceqpubsub.OpenSubscription(b, &onceqpubsub.SubscriptionOptions{GoCloudSQS: true}))
	t.Cleanup(func() { sub.Shutdown(context.Background()); topic.Shutdown(context.Background()) })
	many := map[string]string{}
	for c := 'a'; c <= 'k'; c++ {
		many[string(c)] = "%"
	}
	for _, want := range []*pubsub.Message{
		{Body: []byte("aGk="), Metadata: map[string]string{"base64encoded": "true"}},
		{Body: []byte("\xff"), Metadata: map[string]string{"base64encoded": "x"}},
		{Body: []byte("\xff"), Metadata: many},
		{Body: []byte("\xff")},
	} {
		if err := topic.Send(t.Context(), want); err != nil {
			t.Fatal(err)
		}
		m, err := sub.Receive(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		m.Ack()
		if string(m.Body) != string(want.Body) || !maps.Equal(m.Metadata, want.Metadata) {
			t.Errorf("sent %q with %q, got %q with %q", want.Body, want.Metadata, m.Body, m.Metadata)
		}
	}
}

// A onceq Worker does what a gocloud program sent twice once, and its handler sees what was sent.
func TestWorkerConsumesTopic(t *testing.T) {
	gocloudtest.Bubble(t, func(t *testing.T) {
		b := must.Get(membroker.New(nil))
		topic := must.Get(onceqpubsub.OpenTopic(b, nil))
		st := must.Get(memstore.New(nil))
		done := map[string]int{}
		p := must.Get(onceq.NewProcessor(onceq.ProcessorConfig{
			Store: st, Scope: "orders", Logger: slog.New(slog.DiscardHandler),
			Handler: onceq.HandlerFunc(func(_ context.Context, j *onceq.Job) error {
				done[j.Key().Key+" "+string(j.Message.Body)+" "+j.Message.Attributes["from"]]++
				return nil
			}),
		}))
		w := must.Get(p.Worker(b, onceq.WorkerConfig{DeadLetter: onceq.KeepInQueue, Concurrency: 1}))
		for range 3 {
			if err := topic.Send(t.Context(), &pubsub.Message{Body: []byte("ship"), Metadata: map[string]string{"onceq-key": "order-7", "from": "shop"}}); err != nil {
				t.Fatal(err)
			}
		}
		if err := topic.Shutdown(t.Context()); err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		if err := w.Run(ctx); err != nil {
			t.Error(err)
		}
		if len(done) != 1 || done["order-7 ship shop"] != 1 {
			t.Errorf("done: %v", done)
		}
	})
}

// What the broker throttles is offered again under the same id, and BeforeSend is called once.
func TestTopicThrottled(t *testing.T) {
	gocloudtest.Bubble(t, func(t *testing.T) {
		b := must.Get(membroker.New(nil))
		s := &throttled{Broker: b, left: 2}
		topic, err := onceqpubsub.OpenTopic(s, nil)
		if err != nil {
			t.Fatal(err)
		}
		before, after := 0, 0
		err = topic.Send(t.Context(), &pubsub.Message{
			BeforeSend: func(func(any) bool) error { before++; return nil },
			AfterSend:  func(func(any) bool) error { after++; return nil },
		})
		if err != nil || before != 1 || after != 1 {
			t.Errorf("%v, %d before and %d after", err, before, after)
		}
		if len(s.ids) != 3 || s.ids[0] == "" || s.ids[0] != s.ids[2] {
			t.Errorf("ids %q", s.ids)
		}
		s.left = 100
		err = topic.Send(t.Context(), &pubsub.Message{AfterSend: func(func(any) bool) error { after++; return nil }})
		if gcerrors.Code(err) != gcerrors.ResourceExhausted || after != 1 {
			t.Errorf("%v, %d after", err, after)
		}
		if err := topic.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

type throttled struct {
	broker.Broker
	left int
	ids  []string
}

func (s *throttled) Send(ctx context.Context, ms []broker.Outgoing) ([]string, error) {
	s.ids = append(s.ids, ms[0].Meta.ID)
	if s.left--; s.left >= 0 {
		return nil, broker.ErrThrottled
	}
	return s.Broker.Send(ctx, ms)
}

func TestOptionsRefused(t *testing.T) {
	b := must.Get(membroker.New(&membroker.Options{Preset: membroker.SQSStandard}))
	memory := must.Get(membroker.New(nil))
	type options = onceqpubsub.SubscriptionOptions
	for want, o := range map[string]options{
		"SubscriptionOptions.Visibility: 1ms is below":           {Visibility: time.Millisecond},
		"SubscriptionOptions.Visibility: 500ms is below the bro": {Visibility: 500 * time.Millisecond},
		"SubscriptionOptions.Visibility: 13h0m0s is above":       {Visibility: 13 * time.Hour},
		"SubscriptionOptions.MaxHold: 29s is below Visibility":   {MaxHold: 29 * time.Second},
		"SubscriptionOptions.Wait: -1s is negative":              {Wait: -time.Second},
		"SubscriptionOptions.Wait: 3ns is below":                 {Wait: 3},
		"SubscriptionOptions.Wait: 21s is above":                 {Wait: 21 * time.Second},
		"SubscriptionOptions.NackDelay: -1s is negative":         {NackDelay: -time.Second},
		"SubscriptionOptions.NackDelay: 3ns is below":            {NackDelay: 3},
		"SubscriptionOptions.NackDelay: 13h0m0s is above":        {NackDelay: 13 * time.Hour},
		"SubscriptionOptions.ReceiveBatcherOptions: a number":    {ReceiveBatcherOptions: batcher.Options{MaxHandlers: -1}},
		"SubscriptionOptions.AckBatcherOptions: a number":        {AckBatcherOptions: batcher.Options{MaxBatchSize: -1}},
	} {
		if _, err := onceqpubsub.OpenSubscription(b, &o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	_, sub := onceqpubsub.OpenSubscription(memory, &options{GoCloudSQS: true})
	_, topic := onceqpubsub.OpenTopic(memory, &onceqpubsub.TopicOptions{GoCloudSQS: true})
	_, batch := onceqpubsub.OpenTopic(memory, &onceqpubsub.TopicOptions{BatcherOptions: batcher.Options{MinBatchSize: -1}})
	var none *membroker.Broker
	_, noSender := onceqpubsub.OpenTopic(none, nil)
	_, noReceiver := onceqpubsub.OpenSubscription(none, nil)
	for want, err := range map[string]error{
		"SubscriptionOptions.GoCloudSQS: ": sub, "TopicOptions.GoCloudSQS: ": topic, "TopicOptions.BatcherOptions: a number": batch,
		"the sender is nil": noSender, "the receiver is nil": noReceiver,
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	// The longest hold of SQS leaves room for the last beat.
	for _, long := range []time.Duration{7 * time.Hour, 12 * time.Hour} {
		if _, err := onceqpubsub.OpenSubscription(b, &options{Visibility: long}); err != nil {
			t.Error(err)
		}
	}
}

func TestClose(t *testing.T) {
	b := must.Get(membroker.New(nil))
	failed := errors.New("cannot close")
	topic := must.Get(onceqpubsub.OpenTopic(b, &onceqpubsub.TopicOptions{Close: func() error { return failed }}))
	if err := topic.Shutdown(t.Context()); !errors.Is(err, failed) {
		t.Errorf("got %v", err)
	}
	sub := must.Get(onceqpubsub.OpenSubscription(b, &onceqpubsub.SubscriptionOptions{Close: func() error { return failed }}))
	if err := sub.Shutdown(t.Context()); !errors.Is(err, failed) {
		t.Errorf("got %v", err)
	}
}
