package watermillonceq_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/adapters/watermillonceq"
	"github.com/onceq/onceq/broker"
)

// many is metadata of n entries.
func many(n, bytes int) message.Metadata {
	m := make(message.Metadata)
	for i := range n {
		m[fmt.Sprintf("name-%d", i)] = strings.Repeat("é", bytes/2)
	}
	return m
}

// odd is metadata that not every service carries. internal/tests/watermill sends the same cases
// through servers.
var odd = map[string]struct {
	m      message.Metadata
	packed bool // it travels as JSON on a service with ten attributes
}{
	"none":           {nil, false},
	"plain":          {message.Metadata{"a": "1", "B_c-d.e": "é ", "n": strings.Repeat("x", 1024)}, false},
	"eight":          {many(8, 10), false},
	"nine":           {many(9, 10), true},
	"an empty value": {message.Metadata{"a": "", "b": "1"}, true},
	"an empty name":  {message.Metadata{"": "1"}, true},
	"a long value":   {message.Metadata{"a": strings.Repeat("é", 513)}, true},
	"a long name":    {message.Metadata{strings.Repeat("a", 257): "1"}, true},
	"bytes":          {message.Metadata{"a": "\xff\x00", "b": "1"}, true},
	"bytes in names": {message.Metadata{"\xff": "1", "\xfe": "2"}, true},
	"a space":        {message.Metadata{"content type": "x"}, true},
	"dots":           {message.Metadata{"a..b": "x"}, true},
	"a dot":          {message.Metadata{".a": "x"}, true},
	"control":        {message.Metadata{"a\x00": "\x01\x02"}, true},
	"reserved":       {message.Metadata{"AWS.trace": "x"}, true},
	"Google's":       {message.Metadata{"googclient": "x"}, true},
	"our attributes": {message.Metadata{watermillonceq.UUIDAttribute: "x", watermillonceq.MetadataAttribute: "{", "onceqx": "y"}, true},
	"a fence":        {message.Metadata{watermillonceq.FenceMetadata: "7"}, false},
	"large":          {many(20, 1500), true},
	"looks like it":  {message.Metadata{"a": `[["YQ==","YQ=="]]`}, false},
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
	sub, err := watermillonceq.NewSubscriber(open, nil)
	if err != nil {
		t.Fatal(err)
	}
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

// Metadata of any bytes comes as it was sent, and the rule decides how it travels.
func TestMetadata(t *testing.T) {
	for name, c := range odd {
		t.Run(name, func(t *testing.T) {
			b, err := membroker.New(&membroker.Options{Preset: membroker.SQSStandard})
			if err != nil {
				t.Fatal(err)
			}
			on := newCarrier(t, b)
			on.check(t, c.m)
			if _, packed := on.raw[watermillonceq.MetadataAttribute]; packed != c.packed {
				t.Errorf("it travels as %q", on.raw)
			}
			if len(on.raw) > 9 {
				t.Errorf("it has %d attributes", len(on.raw))
			}
		})
	}
}

// What no publisher of ours wrote is handed on as it came.
func TestMetadataOfOthers(t *testing.T) {
	for name, c := range map[string]struct{ sent, want map[string]string }{
		"plain":    {map[string]string{"a": "1"}, map[string]string{"a": "1"}},
		"broken":   {map[string]string{watermillonceq.MetadataAttribute: "{", "a": "1"}, map[string]string{watermillonceq.MetadataAttribute: "{", "a": "1"}},
		"a number": {map[string]string{watermillonceq.MetadataAttribute: "7"}, map[string]string{watermillonceq.MetadataAttribute: "7"}},
		"bad meta": {map[string]string{broker.MetaAttribute: "{"}, map[string]string{broker.MetaAttribute: "{"}},
	} {
		t.Run(name, func(t *testing.T) {
			b, err := membroker.New(nil)
			if err != nil {
				t.Fatal(err)
			}
			if err := b.SendRaw(t.Context(), []byte("x"), c.sent); err != nil {
				t.Fatal(err)
			}
			sub, err := watermillonceq.NewSubscriber(func(string) (broker.Broker, error) { return b, nil }, nil)
			if err != nil {
				t.Fatal(err)
			}
			ms, err := sub.Subscribe(t.Context(), "t")
			if err != nil {
				t.Fatal(err)
			}
			got := <-ms
			got.Ack()
			if err := sub.Close(); err != nil {
				t.Error(err)
			}
			if got.UUID == "" || !maps.Equal(got.Metadata, c.want) {
				t.Errorf("%q %q came", got.UUID, got.Metadata)
			}
		})
	}
}

func FuzzMetadata(f *testing.F) {
	f.Add("a", "1", "b", "2")
	f.Add("", "\xff", "\x00", "é")
	f.Add(strings.Repeat("n", 300), strings.Repeat("é", 5000), "AWS.x", "")
	b, err := membroker.New(&membroker.Options{Preset: membroker.SQSStandard})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, k1, v1, k2, v2 string) {
		for _, k := range []string{k1, k2} {
			if k == broker.MetaAttribute || k == watermillonceq.KeyMetadata {
				return // these are about the job
			}
		}
		newCarrier(t, b).check(t, message.Metadata{k1: v1, k2: v2})
	})
}
