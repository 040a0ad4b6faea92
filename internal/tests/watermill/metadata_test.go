package watermill

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/onceq/onceq/adapters/awssqs"
	"github.com/onceq/onceq/adapters/gcppubsub/pubsubfake"
	"github.com/onceq/onceq/adapters/watermillonceq"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/must"
	"github.com/onceq/onceq/sqsfake"
)

// many is metadata of n entries.
func many(n, bytes int) message.Metadata {
	m := make(message.Metadata)
	for i := range n {
		m[fmt.Sprintf("name-%d", i)] = strings.Repeat("é", bytes/2)
	}
	return m
}

// odd is metadata that not every service carries: the cases of watermillonceq's own TestMetadata,
// which says how each travels.
var odd = map[string]message.Metadata{
	"none":           nil,
	"plain":          {"a": "1", "B_c-d.e": "é ", "n": strings.Repeat("x", 1024)},
	"eight":          many(8, 10),
	"nine":           many(9, 10),
	"an empty value": {"a": "", "b": "1"},
	"an empty name":  {"": "1"},
	"a long value":   {"a": strings.Repeat("é", 513)},
	"a long name":    {strings.Repeat("a", 257): "1"},
	"bytes":          {"a": "\xff\x00", "b": "1"},
	"bytes in names": {"\xff": "1", "\xfe": "2"},
	"a space":        {"content type": "x"},
	"dots":           {"a..b": "x"},
	"a dot":          {".a": "x"},
	"control":        {"a\x00": "\x01\x02"},
	"reserved":       {"AWS.trace": "x"},
	"Google's":       {"googclient": "x"},
	"our attributes": {watermillonceq.UUIDAttribute: "x", watermillonceq.MetadataAttribute: "{", "onceqx": "y"},
	"a fence":        {watermillonceq.FenceMetadata: "7"},
	"large":          many(20, 1500),
	"looks like it":  {"a": `[["YQ==","YQ=="]]`},
}

// carrier sends messages to a broker and receives them.
type carrier struct {
	pub *watermillonceq.Publisher
	ms  <-chan *message.Message
	raw map[string]string // the attributes of the last one
}

func newCarrier(t *testing.T, b broker.Broker) *carrier {
	t.Helper()
	c := &carrier{}
	open := func(string) (broker.Broker, error) { return b, nil }
	pub, err := watermillonceq.NewPublisher(open, &watermillonceq.PublisherOptions{
		Prepare: func(_ string, _ *message.Message, out *broker.Outgoing) error {
			c.raw = maps.Clone(out.Attributes)
			return nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	sub := must.Get(watermillonceq.NewSubscriber(open, nil))
	c.pub = pub
	if c.ms, err = sub.Subscribe(t.Context(), "t"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sub.Close() })
	return c
}

// check sends a message and compares what comes.
func (c *carrier) check(t *testing.T, m message.Metadata) {
	t.Helper()
	msg := message.NewMessage("uuid-é", []byte("body"))
	msg.Metadata = maps.Clone(m)
	if err := c.pub.Publish("t", msg); err != nil {
		t.Fatal(err)
	}
	got := <-c.ms
	got.Ack()
	delete(got.Metadata, broker.MetaAttribute)
	if got.UUID != "uuid-é" || string(got.Payload) != "body" || !maps.Equal(got.Metadata, m) {
		t.Errorf("%q %q %q came, of %q", got.UUID, got.Payload, got.Metadata, m)
	}
}

// The same on servers that are as strict as the services.
func TestMetadataOnServers(t *testing.T) {
	s := sqsfake.Start(t, nil)
	url, err := s.CreateQueue("t", nil)
	if err != nil {
		t.Fatal(err)
	}
	q := must.Get(awssqs.New(sqsClient(s), url, &awssqs.Options{ReceiveGrace: -1}))
	f := pubsubfake.New(nil)
	t.Cleanup(f.Close)
	topic, err := pubSubTopic(t.Context(), f, "acme", "t-1")
	if err != nil {
		t.Fatal(err)
	}
	onSQS, onPubSub := newCarrier(t, q), newCarrier(t, topic)
	for _, name := range slices.Sorted(maps.Keys(odd)) {
		t.Run(name, func(t *testing.T) {
			onSQS.check(t, odd[name])
			onPubSub.check(t, odd[name])
			for k, v := range onPubSub.raw {
				if len(v) > 1024 {
					t.Errorf("the attribute %q has %d bytes", k, len(v))
				}
			}
		})
	}
}
