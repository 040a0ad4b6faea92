package onceqpubsub_test

import (
	"bytes"
	"maps"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"gocloud.dev/pubsub"

	"github.com/onceq/onceq/adapters/awssqs"
	"github.com/onceq/onceq/adapters/gcppubsub"
	"github.com/onceq/onceq/adapters/gcppubsub/pubsubfake"
	"github.com/onceq/onceq/adapters/gocloudpubsub/internal/gocloudtest"
	"github.com/onceq/onceq/adapters/gocloudpubsub/onceqpubsub"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/must"
	"github.com/onceq/onceq/internal/testserver/testaws"
)

// randomMessage is one that a program may send: any UTF-8, and what looks like our own.
func randomMessage(r *rand.Rand) *pubsub.Message {
	parts := []string{
		"", "a", "B", "é", "\x00", "\x1f", "\r\n", " ", ".", "..", "__0x", "__0x41__", "__", "_", "%", "%41", "+", "\"", "\\", "\u2028",
		"\U0010ffff", "\ufffe", "\x7f", "aws.", "AMAZON.", "goog", "googclient_", "onceq", "onceq-more", "onceq-more.1", "onceq.x", "base64encoded",
		"true", "CloudPubSubDeadLetterSource", "traceparent", "-", "{", "}", "null", strings.Repeat("k", 250), strings.Repeat("é", 600),
	}
	text := func() string {
		var b strings.Builder
		for range r.IntN(4) {
			b.WriteString(parts[r.IntN(len(parts))])
		}
		return b.String()
	}
	m := &pubsub.Message{Body: []byte(text())}
	if r.IntN(3) == 0 {
		m.Body = append(m.Body, 0xff, 0x00)
	}
	if n := r.IntN(25); n > 0 {
		m.Metadata = make(map[string]string, n)
		for i := range n {
			key := text()
			if r.IntN(4) == 0 {
				key += strconv.Itoa(i)
			}
			m.Metadata[key] = text()
		}
	}
	return m
}

// What a program sends comes as it was sent, on both services and in both forms.
func TestRandomMessages(t *testing.T) {
	const rounds = 150
	run := func(t *testing.T, b broker.Broker, peer bool) {
		t.Helper()
		topic := must.Get(onceqpubsub.OpenTopic(b, &onceqpubsub.TopicOptions{GoCloudSQS: peer}))
		sub := must.Get(onceqpubsub.OpenSubscription(b, &onceqpubsub.SubscriptionOptions{GoCloudSQS: peer}))
		r := rand.New(rand.NewPCG(3, 4))
		for range rounds {
			m := randomMessage(r)
			if err := topic.Send(t.Context(), &pubsub.Message{Body: m.Body, Metadata: m.Metadata}); err != nil {
				t.Fatalf("%q %q: %v", m.Body, m.Metadata, err)
			}
			got, err := sub.Receive(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got.Body, m.Body) || !maps.Equal(got.Metadata, m.Metadata) {
				t.Errorf("sent %q %q\n came %q %q", m.Body, m.Metadata, got.Body, got.Metadata)
			}
			got.Ack()
		}
		if err := topic.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		if err := sub.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		<-time.After(time.Minute)
		if ms, err := b.Receive(t.Context(), broker.ReceiveOptions{Max: 1, Wait: time.Second}); err != nil || len(ms) > 0 {
			t.Errorf("after all acks %d messages are left, %v", len(ms), err)
		}
	}
	for name, peer := range map[string]bool{"sqs": false, "sqs as gocloud": true} {
		t.Run(name, func(t *testing.T) {
			gocloudtest.Bubble(t, func(t *testing.T) {
				c := testaws.FakeClient(testaws.FakeSQS(t, nil))
				b := must.Get(awssqs.New(c, testaws.MakeQueue(t, c, false, nil), nil))
				run(t, b, peer)
				b.Close()
			})
		})
	}
	t.Run("pubsub", func(t *testing.T) {
		gocloudtest.Bubble(t, func(t *testing.T) {
			server := pubsubfake.New(nil)
			defer server.Close()
			const topic, sub = "projects/shop/topics/orders", "projects/shop/subscriptions/orders"
			if _, err := server.CreateTopic(t.Context(), &pubsubpb.Topic{Name: topic}); err != nil {
				t.Fatal(err)
			}
			if _, err := server.CreateSubscription(t.Context(), &pubsubpb.Subscription{Name: sub, Topic: topic}); err != nil {
				t.Fatal(err)
			}
			b := must.Get(gcppubsub.New(server, topic, sub, nil))
			run(t, b, false)
			b.Close()
		})
	})
}
