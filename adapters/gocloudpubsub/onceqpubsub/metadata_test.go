package onceqpubsub_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/onceq/onceq/adapters/gocloudpubsub/onceqpubsub"
	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker"
)

var (
	sqsLimits    = presetLimits(membroker.SQSStandard)
	pubsubLimits = presetLimits(membroker.PubSub)
	memoryLimits = presetLimits(membroker.Memory)
)

func presetLimits(p membroker.Preset) broker.Limits {
	b, err := membroker.New(&membroker.Options{Preset: p})
	if err != nil {
		panic(err)
	}
	return b.Limits()
}

// A wire says what a pair of metadata is on each broker; "more" = it is in MoreAttribute.
func TestMetadataOnTheWire(t *testing.T) {
	const more = onceqpubsub.MoreAttribute
	long := strings.Repeat("n", 256)
	for _, c := range []struct{ key, sqs, pubsub string }{
		{"order", "order", "order"},
		{"Order-Id_7.x", "Order-Id_7.x", "Order-Id_7.x"},
		{"traceparent", "traceparent", "traceparent"},
		{"onceq-key", "onceq-key", "onceq-key"},
		{"onceqs", "onceqs", "onceqs"},
		{"a b", "a__0x20__b", "a b"},
		{"☺", "__0x263a__", "☺"},
		{"\x00", "__0x0__", "\x00"},
		{".a..b.", "__0x2e__a.__0x2e__b__0x2e__", ".a..b."},
		{"aws.x", "__0x61__ws.x", "aws.x"},
		{"AMAZON.x", "__0x41__MAZON.x", "AMAZON.x"},
		{"awsome", "awsome", "awsome"},
		{"google-id", "google-id", more},
		{"googclient_x", "googclient_x", "googclient_x"},
		{"CloudPubSubDeadLetterSourceX", "CloudPubSubDeadLetterSourceX", more},
		{"__0x20__", "__0x5f___0x20__", "__0x20__"},
		{"__0x", "__0x", "__0x"},
		{"__0x20_ ", more, "__0x20_ "}, // escaped, it would read back as another key
		{"onceq", more, more},
		{"onceq.1", more, more},
		{"onceq-more", more, more},
		{"onceq-more.1", more, more},
		{"", more, more},
		{long, long, long},
		{long + "n", more, more},
		{strings.Repeat(" ", 40), more, strings.Repeat(" ", 40)},
	} {
		metadata := map[string]string{c.key: "value"}
		for name, w := range map[string]struct {
			limits broker.Limits
			want   string
		}{"sqs": {sqsLimits, c.sqs}, "pubsub": {pubsubLimits, c.pubsub}} {
			got := onceqpubsub.Pack(w.limits, false, metadata)
			if _, ok := got[w.want]; !ok || len(got) != 1 {
				t.Errorf("%s: %q travels as %q, want %q", name, c.key, got, w.want)
			}
			if w.want != more && got[w.want] != "value" {
				t.Errorf("%s: %q has another value: %q", name, c.key, got)
			}
			if back := onceqpubsub.Unpack(w.limits, false, got); !maps.Equal(back, metadata) {
				t.Errorf("%s: %q came back as %q", name, metadata, back)
			}
		}
	}
}

func TestMetadataMoreIsASCII(t *testing.T) {
	got := onceqpubsub.Pack(sqsLimits, false, map[string]string{"": "a b\x7f☺\U0001f600\"<"})
	want := `{"":"a\u0020b\u007f\u263a\ud83d\ude00\"\u003c"}`
	if got[onceqpubsub.MoreAttribute] != want {
		t.Errorf("got  %s\nwant %s", got[onceqpubsub.MoreAttribute], want)
	}
}

// The first to lose their place are keys with escapes, then the last by the alphabet.
func TestMetadataWithoutRoom(t *testing.T) {
	metadata := map[string]string{"traceparent": "t", "onceq-type": "x", "z z": "escaped", "☺": "escaped"}
	for c := 'a'; c <= 'g'; c++ {
		metadata[string(c)] = string(c)
	}
	got := onceqpubsub.Pack(sqsLimits, false, metadata)
	want := map[string]string{
		"traceparent": "t", "onceq-type": "x", "a": "a", "b": "b", "c": "c", "d": "d", "e": "e", "f": "f",
		"onceq-more": `{"g":"g","z\u0020z":"escaped","\u263a":"escaped"}`,
	}
	if !maps.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	if back := onceqpubsub.Unpack(sqsLimits, false, got); !maps.Equal(back, metadata) {
		t.Errorf("came back as %q", back)
	}
}

func TestMetadataLongValues(t *testing.T) {
	long := strings.Repeat("0123456789", 500)
	for name, c := range map[string]struct {
		limits broker.Limits
		names  int
	}{"sqs": {sqsLimits, 1}, "pubsub": {pubsubLimits, 5}} {
		metadata := map[string]string{"k": long}
		got := onceqpubsub.Pack(c.limits, false, metadata)
		if len(got) != c.names {
			t.Errorf("%s: %d attributes, want %d", name, len(got), c.names)
		}
		if back := onceqpubsub.Unpack(c.limits, false, got); !maps.Equal(back, metadata) {
			t.Errorf("%s: came back otherwise", name)
		}
	}
}

// On Pub/Sub our own metadata may need several attributes.
func TestMetadataLeavesRoom(t *testing.T) {
	metadata := map[string]string{}
	for i := range 150 {
		metadata[fmt.Sprint("key", i)] = fmt.Sprint(i)
	}
	got := onceqpubsub.Pack(pubsubLimits, false, metadata)
	if len(got) > pubsubLimits.MaxAttributes-4 || len(got) < 90 {
		t.Errorf("%d attributes", len(got))
	}
	if back := onceqpubsub.Unpack(pubsubLimits, false, got); !maps.Equal(back, metadata) {
		t.Errorf("came back as %q", back)
	}
}

// Any metadata comes back, from every broker, and keeps to its limits.
func TestMetadataRoundTrip(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	parts := []string{
		"a", "b", "Z", "7", "_", "__", "__0x", "20__", "0x", ".", "..", "-", " ", "%", "%20", "aws.", "amazon.", "goog", "onceq", "onceq-more", ".1",
		"☺", "\U0001f600", "\x00", "\x1f", "\x7f", "\ufffe", "\ufffd", "\"", "\\", "CloudPubSubDeadLetterSource", "base64encoded", strings.Repeat("x", 250), strings.Repeat("y", 1020),
	}
	text := func(most int) string {
		var b strings.Builder
		for range r.IntN(most + 1) {
			b.WriteString(parts[r.IntN(len(parts))])
		}
		return b.String()
	}
	for round := range 4_000 {
		metadata := map[string]string{}
		for range r.IntN(14) {
			metadata[text(4)] = text(6)
		}
		for name, l := range map[string]broker.Limits{"sqs": sqsLimits, "pubsub": pubsubLimits, "memory": memoryLimits, "none": {}} {
			for _, peer := range []bool{false, true} {
				if peer && name != "sqs" {
					continue
				}
				got := onceqpubsub.Pack(l, peer, metadata)
				back := onceqpubsub.Unpack(l, peer, got)
				if len(metadata) == 0 && back == nil {
					continue
				}
				if !maps.Equal(back, metadata) {
					t.Fatalf("round %d, %s: %q came back as %q, by %q", round, name, metadata, back, got)
				}
				if bad := misfit(name, l, got); bad != "" {
					t.Fatalf("round %d, %s: %s: %q", round, name, bad, got)
				}
			}
		}
	}
}

// misfit says what a service would refuse.
func misfit(name string, l broker.Limits, attributes map[string]string) string {
	if _, ok := attributes[broker.MetaAttribute]; ok || l.MaxAttributes > 0 && len(attributes)+1 > l.MaxAttributes {
		return "our own attribute has no place"
	}
	for k, v := range attributes {
		switch {
		case k == "", len(k) > 256, !utf8.ValidString(k):
			return fmt.Sprintf("the name %q", k)
		case name == "pubsub" && (len(v) > 1024 || strings.HasPrefix(k, "goog")):
			return fmt.Sprintf("the attribute %q", k)
		case name == "sqs" && (strings.Trim(k, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.") != "" ||
			k[0] == '.' || k[len(k)-1] == '.' || strings.Contains(k, "..") || strings.HasPrefix(strings.ToLower(k), "aws.") || strings.HasPrefix(strings.ToLower(k), "amazon.")):
			return fmt.Sprintf("the name %q", k)
		}
	}
	return ""
}

// What others have written is never lost, and never read as something else than they wrote.
func TestMetadataOfOthers(t *testing.T) {
	for name, c := range map[string]struct {
		limits   broker.Limits
		in, want map[string]string
	}{
		"not ours":            {sqsLimits, map[string]string{"onceq-more": "hello", "onceq-more.1": "x"}, map[string]string{"onceq-more": "hello", "onceq-more.1": "x"}},
		"a piece is missing":  {pubsubLimits, map[string]string{"onceq-more": `{"a":"b`, "onceq-more.2": `"}`}, map[string]string{"onceq-more": `{"a":"b`, "onceq-more.2": `"}`}},
		"another number":      {pubsubLimits, map[string]string{"onceq-more": `{"a":"b"}`, "onceq-more.01": "x", "onceq-more.x": "y"}, map[string]string{"a": "b", "onceq-more.01": "x", "onceq-more.x": "y"}},
		"no second reading":   {sqsLimits, map[string]string{"a__0x20__b": "1", "a b": "2"}, map[string]string{"a__0x20__b": "1", "a b": "2"}},
		"plain before more":   {sqsLimits, map[string]string{"a": "1", "onceq-more": `{"a":"2"}`}, map[string]string{"a": "1"}},
		"no rune":             {sqsLimits, map[string]string{"__0xd800__": "1", "__0x-1__": "2"}, map[string]string{"__0xd800__": "1", "__0x-1__": "2"}},
		"no escape elsewhere": {pubsubLimits, map[string]string{"a__0x20__b": "1"}, map[string]string{"a__0x20__b": "1"}},
		"as gocloud":          {sqsLimits, map[string]string{"onceq": "%41", "a": "%41", "b": "%4"}, map[string]string{"onceq": "%41", "a": "A", "b": "%4"}},
		"unreadable metadata": {sqsLimits, map[string]string{"onceq": "{"}, map[string]string{"onceq": "{"}},
	} {
		if got := onceqpubsub.Unpack(c.limits, name == "as gocloud", c.in); !maps.Equal(got, c.want) {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}
