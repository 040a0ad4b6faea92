package gocloudpubsub_test

import (
	"bytes"
	"maps"
	"testing"
	"time"

	"gocloud.dev/pubsub"
	"gocloud.dev/pubsub/awssnssqs"

	"github.com/onceq/onceq/adapters/awssqs"
	"github.com/onceq/onceq/adapters/gcppubsub"
	"github.com/onceq/onceq/adapters/gcppubsub/pubsubfake"
	"github.com/onceq/onceq/adapters/gocloudpubsub"
	"github.com/onceq/onceq/adapters/gocloudpubsub/internal/gocloudtest"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/must"
	"github.com/onceq/onceq/internal/testserver/testaws"
)

// travellers are what one end sends and the other one must get unchanged.
func travellers() []broker.Outgoing {
	var out []broker.Outgoing
	for _, meta := range []*broker.Meta{nil, {ID: "j-1", Key: "100% %41 \x00é", Extra: `"zz":[1,"%7B"]`, Version: 3}} {
		for _, body := range []string{
			"plain", "", "\x00\xff", "a\r\nb", "%41", "{}", `{"Type":"Notification","MessageId":"1","TopicArn":"arn:x","Timestamp":"t","Message":"inner"}`,
		} {
			for _, as := range []map[string]string{
				nil,
				{"a": "1"},
				{"a": "%41 100%", "b": "", "c": "\x01", "d__0x41__e": "x", "base64encoded": "true"},
			} {
				out = append(out, broker.Outgoing{Body: []byte(body), Attributes: as, Meta: meta})
			}
		}
	}
	return out
}

// travel sends with one driver and receives with the other.
func travel(t *testing.T, from broker.Sender, to broker.Receiver) {
	t.Helper()
	for _, o := range travellers() {
		ids, err := from.Send(t.Context(), []broker.Outgoing{o})
		if err != nil {
			t.Fatalf("%q %q: %v", o.Body, o.Attributes, err)
		}
		var ms []*broker.Message
		for len(ms) == 0 {
			if ms, err = to.Receive(t.Context(), broker.ReceiveOptions{Max: 1, Wait: 5 * time.Second}); err != nil {
				t.Fatal(err)
			}
		}
		m := ms[0]
		if m.ID != ids[0] || !bytes.Equal(m.Body, o.Body) || !maps.Equal(m.Attributes, o.Attributes) || m.MetaErr != nil ||
			broker.EncodeMeta(m.Meta) != broker.EncodeMeta(o.Meta) {
			t.Errorf("sent %q %q %s\n came %q %q %s %v", o.Body, o.Attributes, broker.EncodeMeta(o.Meta), m.Body, m.Attributes, broker.EncodeMeta(m.Meta), m.MetaErr)
		}
		if err := to.Ack(t.Context(), []broker.Receipt{m.Receipt}); err != nil {
			t.Fatal(err)
		}
	}
}

// Our own SQS driver is at one end of the queue, gocloud's at the other.
func TestPartnersOnSQS(t *testing.T) {
	for name, between := range map[string]func(t *testing.T, ours, theirs broker.Broker){
		"from ours":   func(t *testing.T, ours, theirs broker.Broker) { travel(t, ours, theirs) },
		"to ours":     func(t *testing.T, ours, theirs broker.Broker) { travel(t, theirs, ours) },
		"both theirs": func(t *testing.T, _, theirs broker.Broker) { travel(t, theirs, theirs) },
	} {
		t.Run(name, func(t *testing.T) {
			gocloudtest.Bubble(t, func(t *testing.T) {
				c := testaws.FakeClient(testaws.FakeSQS(t, nil))
				url := testaws.MakeQueue(t, c, false, nil)
				ours := must.Get(awssqs.New(c, url, nil))
				topic := awssnssqs.OpenSQSTopic(t.Context(), c, url, nil)
				sub := awssnssqs.OpenSubscription(t.Context(), c, url, &awssnssqs.SubscriptionOptions{
					Raw:      name == "from ours", // else gocloud opens what looks like a notification
					WaitTime: time.Second, ReceiveBatcherOptions: gocloudpubsub.NoPrefetch(),
				})
				between(t, ours, makeBroker(t, topic, sub, gocloudpubsub.Options{Queue: url, Reopen: never}))
			})
		})
	}
}

// Our own driver of Pub/Sub is at one end, gocloud's at the other.
func TestPartnersOnPubSub(t *testing.T) {
	server, address := pubsubfake.Start(t, nil)
	g := dial(t, address, "shop")
	topic := g.makeTopic(t)
	sub := g.makeSubscription(t, topic, nil)
	ours := must.Get(gcppubsub.New(server, topic, sub, nil))
	theirs := brokerOnPubSub(t, g, topic, sub, gocloudpubsub.Options{})
	travel(t, ours, theirs)
	// gocloud's last receive is still under way, and would take what is sent now.
	if err := theirs.Close(); err != nil {
		t.Fatal(err)
	}
	theirs = must.Get(gocloudpubsub.New(theirsTopic(t, g, topic), nil, gocloudpubsub.Options{}))
	travel(t, theirs, ours)
}

// What gocloud's own Topic writes on SQS is read as gocloud reads it: its escapes and its base64
// are undone.
func TestGocloudProducerOnSQS(t *testing.T) {
	gocloudtest.Bubble(t, func(t *testing.T) {
		c := testaws.FakeClient(testaws.FakeSQS(t, nil))
		url := testaws.MakeQueue(t, c, false, nil)
		topic := awssnssqs.OpenSQSTopic(t.Context(), c, url, nil)
		b := brokerOnSQS(t, c, url, gocloudpubsub.Options{Queue: url})
		for _, want := range []*pubsub.Message{
			{Body: []byte("plain")},
			{Body: []byte{0xff, 0xfe}, Metadata: map[string]string{"a name": "é %41"}},
			{Body: []byte("body"), Metadata: map[string]string{broker.MetaAttribute: `{"v":1,"id":"j-1","k":"100%"}`}},
		} {
			if err := topic.Send(t.Context(), &pubsub.Message{Body: want.Body, Metadata: want.Metadata}); err != nil {
				t.Fatal(err)
			}
			ms, err := b.Receive(t.Context(), broker.ReceiveOptions{Max: 1, Wait: 5 * time.Second})
			if err != nil || len(ms) != 1 {
				t.Fatalf("Receive was answered %d messages, %v", len(ms), err)
			}
			m := ms[0]
			if meta := want.Metadata[broker.MetaAttribute]; meta != "" {
				if broker.EncodeMeta(m.Meta) != meta || m.Attributes != nil {
					t.Errorf("%s came as %s, %q, %v", meta, broker.EncodeMeta(m.Meta), m.Attributes, m.MetaErr)
				}
			} else if !maps.Equal(m.Attributes, want.Metadata) {
				t.Errorf("%q came as %q", want.Metadata, m.Attributes)
			}
			if !bytes.Equal(m.Body, want.Body) {
				t.Errorf("%q came as %q", want.Body, m.Body)
			}
			if err := b.Ack(t.Context(), []broker.Receipt{m.Receipt}); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// A message that has waited in gocloud for longer than its timeout is somebody else's by then.
func TestWaitedTooLong(t *testing.T) {
	gocloudtest.Bubble(t, func(t *testing.T) {
		c := testaws.FakeClient(testaws.FakeSQS(t, nil))
		url := testaws.MakeQueue(t, c, false, nil)
		b := brokerOnSQS(t, c, url, gocloudpubsub.Options{Queue: url})
		// gocloud's receive goes on when nobody waits any more, and brings the message.
		if ms, err := b.Receive(t.Context(), broker.ReceiveOptions{Max: 1, Wait: 1500 * time.Millisecond}); err != nil || len(ms) > 0 {
			t.Fatalf("Receive was answered %d messages, %v", len(ms), err)
		}
		send(t, b, 1)
		<-time.After(40 * time.Second) // the timeout is 30 s
		ms, err := b.Receive(t.Context(), broker.ReceiveOptions{Max: 1, Wait: 5 * time.Second, Visibility: time.Minute})
		if err != nil || len(ms) != 1 {
			t.Fatalf("Receive was answered %d messages, %v", len(ms), err)
		}
		if m := ms[0]; m.Attempt != 2 || time.Until(m.Deadline) != time.Minute {
			t.Errorf("the message came with Attempt %d and a deadline in %v", m.Attempt, time.Until(m.Deadline))
		}
		if n := b.Stats().Late; n != 1 {
			t.Errorf("Stats tell of %d late messages", n)
		}
	})
}
