package pubsubwire_test

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/letter"
	"github.com/onceq/onceq/internal/letter/lettertest"
	"github.com/onceq/onceq/internal/pubsubwire"
)

var published = time.UnixMilli(1764000000123)

// travel sends a message as Pub/Sub carries it.
func travel(t *testing.T, o *broker.Outgoing) (m *broker.Message, attributes map[string]string) {
	t.Helper()
	data, as, size, err := pubsubwire.Encode(o)
	if err != nil {
		t.Fatal(err)
	}
	carriable(t, data, as)
	count := len(data) + len(o.Group)
	for name, value := range as {
		count += len(name) + len(value)
	}
	if size != count {
		t.Errorf("the size is %d, want %d", size, count)
	}
	m = new(broker.Message)
	pubsubwire.Decode(m, data, as, published)
	return m, as
}

// carriable checks what Pub/Sub asks of a message.
func carriable(t *testing.T, data []byte, as map[string]string) {
	t.Helper()
	if len(data) == 0 && len(as) == 0 {
		t.Error("a message has neither data nor attributes")
	}
	if len(as) > pubsubwire.MaxAttributes {
		t.Errorf("%d attributes", len(as))
	}
	for name, value := range as {
		if name == "" || len(name) > pubsubwire.MaxName || len(value) > pubsubwire.MaxValue || !utf8.ValidString(name) || !utf8.ValidString(value) {
			t.Errorf("attribute %q has %d bytes: %.60q", name, len(value), value)
		}
	}
}

func same(t *testing.T, m *broker.Message, o *broker.Outgoing) {
	t.Helper()
	if m.MetaErr != nil {
		t.Errorf("MetaErr is %v", m.MetaErr)
	}
	if !bytes.Equal(m.Body, o.Body) {
		t.Errorf("the body %.60q came as %.60q", o.Body, m.Body)
	}
	if !maps.Equal(m.Attributes, o.Attributes) || len(m.Attributes) == 0 && m.Attributes != nil {
		t.Errorf("the attributes %q came as %q", o.Attributes, m.Attributes)
	}
	if got, want := broker.EncodeMeta(m.Meta), broker.EncodeMeta(o.Meta); got != want {
		t.Errorf("the metadata\n%s\ncame as\n%s", want, got)
	}
	if !m.Published.Equal(published) {
		t.Errorf("Published is %v", m.Published)
	}
}

func metaOf(n int) *broker.Meta { return &broker.Meta{ID: strings.Repeat("x", n)} }

// overhead is how many bytes metadata has beside its id.
var overhead = len(broker.EncodeMeta(metaOf(1))) - 1

func TestMessagesTravelWhole(t *testing.T) {
	for name, o := range map[string]broker.Outgoing{
		"a body alone":          {Body: []byte("body")},
		"nothing at all":        {},
		"an empty body":         {Body: []byte{}, Attributes: map[string]string{"a": ""}},
		"metadata alone":        {Meta: &broker.Meta{ID: "j-1"}},
		"empty metadata":        {Meta: &broker.Meta{}},
		"any bytes":             {Body: []byte("\x00\xff\xfe"), Meta: &broker.Meta{ID: "j-1"}},
		"a client's attributes": {Body: []byte("b"), Attributes: map[string]string{"googclient_schemaencoding": "JSON", "onceq-unreadable": "x", "onceq.x": "x", "onceqs": "x"}, Meta: &broker.Meta{ID: "j-1"}},
		"metadata's name":       {Body: []byte("b"), Attributes: map[string]string{"onceq.1": "the user's"}},
		"a letter":              letter.Make(lettertest.Message(), lettertest.Key(), lettertest.Dead(), letter.Whole),
		"a folded letter":       letter.Make(lettertest.Message(), lettertest.Key(), lettertest.Dead(), letter.Folded),
	} {
		t.Run(name, func(t *testing.T) {
			m, _ := travel(t, &o)
			same(t, m, &o)
		})
	}
}

func TestMetadataIsCutIntoPieces(t *testing.T) {
	for _, c := range []struct{ bytes, pieces int }{
		{pubsubwire.MaxValue - 1, 1},
		{pubsubwire.MaxValue, 1},
		{pubsubwire.MaxValue + 1, 2},
		{2 * pubsubwire.MaxValue, 2},
		{2*pubsubwire.MaxValue + 1, 3},
		{12*pubsubwire.MaxValue - 5, 12},
		{100 * pubsubwire.MaxValue, 100},
	} {
		o := broker.Outgoing{Body: []byte("body"), Meta: metaOf(c.bytes - overhead)}
		m, as := travel(t, &o)
		same(t, m, &o)
		if len(as) != c.pieces {
			t.Errorf("%d bytes of metadata are %d attributes, want %d", c.bytes, len(as), c.pieces)
		}
		if c.pieces > 2 {
			if _, ok := as["onceq.2"]; !ok {
				t.Errorf("the attributes are %q", slices.Sorted(maps.Keys(as)))
			}
		}
	}
}

// TestPiecesEndWithACharacter moves a border of pieces through characters of each length.
func TestPiecesEndWithACharacter(t *testing.T) {
	for shift := range 8 {
		o := broker.Outgoing{Meta: &broker.Meta{ID: strings.Repeat("x", shift) + strings.Repeat("aé€😀", 500)}}
		m, as := travel(t, &o)
		same(t, m, &o)
		for i := range len(as) - 1 {
			name := "onceq"
			if i > 0 {
				name = fmt.Sprintf("onceq.%d", i)
			}
			if n := len(as[name]); n <= pubsubwire.MaxValue-utf8.UTFMax {
				t.Errorf("piece %q has %d bytes", name, n)
			}
		}
	}
}

func TestLostPieceIsAnError(t *testing.T) {
	o := broker.Outgoing{Body: []byte("body"), Meta: metaOf(5000), Attributes: map[string]string{"a": "1"}}
	_, whole := travel(t, &o)
	pieces := slices.DeleteFunc(slices.Sorted(maps.Keys(whole)), func(name string) bool { return name == "a" })
	if len(pieces) != 5 {
		t.Fatalf("the pieces are %q", pieces)
	}
	for _, lost := range pieces[1:] {
		as := maps.Clone(whole)
		delete(as, lost)
		unreadable(t, as)
	}
	// Without the first piece nothing says that there was metadata. No service loses an attribute.
	as := maps.Clone(whole)
	as["onceq.5"] = "one piece too many"
	unreadable(t, as)
	as["onceq.5"] = ""
	m := new(broker.Message)
	pubsubwire.Decode(m, o.Body, as, published)
	same(t, m, &o)
}

func unreadable(t *testing.T, as map[string]string) {
	t.Helper()
	m := new(broker.Message)
	pubsubwire.Decode(m, []byte("a body"), as, published)
	if m.Meta != nil || !errors.Is(m.MetaErr, broker.ErrBadMeta) {
		t.Errorf("with the pieces %q Meta is %v and MetaErr %v", slices.Sorted(maps.Keys(as)), m.Meta, m.MetaErr)
	}
	if !maps.Equal(m.Attributes, as) {
		t.Errorf("the attributes %q came as %q", as, m.Attributes)
	}
}

func TestUnreadableMetadataStaysAsItCame(t *testing.T) {
	for _, text := range []string{"", "not metadata", `{"v":1`, `{"v":1,"id":7}`, `{"v":1,"be":"rot13"}`, `{"v":1,"be":"base64"}`} {
		unreadable(t, map[string]string{broker.MetaAttribute: text})
		unreadable(t, map[string]string{broker.MetaAttribute: text, "a": "1"})
	}
}

// TestUnreadableLetterIsFolded puts a letter of a message whose metadata has pieces that nobody can
// read, and of one whose own attribute has the name of a piece.
func TestUnreadableLetterIsFolded(t *testing.T) {
	broken := lettertest.Foreign()
	broken.Attributes = map[string]string{"onceq": strings.Repeat("x", 1024), "onceq.1": "y", "a": "1"}
	broken.MetaErr = broker.ErrBadMeta
	named := lettertest.Foreign()
	named.Attributes = map[string]string{"onceq.7": "the user's"}
	for _, m := range []*broker.Message{broken, named} {
		whole := letter.Make(m, lettertest.Key(), lettertest.Dead(), letter.Whole)
		if _, _, _, err := pubsubwire.Encode(&whole); !letter.IsUnfit(err) {
			t.Errorf("a letter with an attribute of a piece's name was answered %v", err)
		}
		folded := letter.Make(m, lettertest.Key(), lettertest.Dead(), letter.Folded)
		got, _ := travel(t, &folded)
		same(t, got, &folded)
		for name, value := range m.Attributes {
			if name == broker.MetaAttribute {
				name = letter.UnreadableAttribute
			}
			if got.Meta.Dead.Attributes[name] != value {
				t.Errorf("attribute %q came as %q", name, got.Meta.Dead.Attributes[name])
			}
		}
		bare := letter.Make(m, lettertest.Key(), lettertest.Dead(), letter.Bare)
		if _, as, _, err := pubsubwire.Encode(&bare); err != nil || !maps.Equal(as, m.Attributes) {
			t.Errorf("a bare letter has the attributes %q, %v", as, err)
		}
	}
}

func TestBodyEncodedElsewhere(t *testing.T) {
	m := new(broker.Message)
	pubsubwire.Decode(m, []byte("AP8K"), map[string]string{"onceq": `{"v":1,"id":"j-1","be":"base64"}`}, published)
	same(t, m, &broker.Outgoing{Body: []byte("\x00\xff\n"), Meta: &broker.Meta{ID: "j-1"}})
	// What a sender wrote there says nothing of this body.
	o := broker.Outgoing{Body: []byte("plain"), Meta: &broker.Meta{ID: "j-1", BodyEncoding: "base64"}}
	m, _ = travel(t, &o)
	same(t, m, &broker.Outgoing{Body: o.Body, Meta: &broker.Meta{ID: "j-1"}})
	if o.Meta.BodyEncoding != "base64" {
		t.Error("Encode changed the sender's metadata")
	}
}

func TestDeadLetterSourceIsRead(t *testing.T) {
	meta := &broker.Meta{ID: "j-1", Key: "k"}
	for _, c := range []struct {
		name, at string
		want     time.Time
	}{
		{"Google's own", "2025-11-20T16:12:25.153+00:00", time.Date(2025, 11, 20, 16, 12, 25, 153e6, time.UTC)},
		{"not a time", "yesterday", published},
		{"none", "", published},
		{"the future", "2125-11-20T16:12:25.153Z", published},
	} {
		for _, users := range []map[string]string{nil, {"a": "1"}} {
			o := broker.Outgoing{Body: []byte("body"), Attributes: users, Meta: meta}
			_, as := travel(t, &o)
			as["CloudPubSubDeadLetterSourceDeliveryCount"] = "5"
			as["CloudPubSubDeadLetterSourceSubscription"] = "orders"
			as["CloudPubSubDeadLetterSourceSubscriptionProject"] = "acme"
			as["CloudPubSubDeadLetterSourceTopicPublishTime"] = c.at
			before := maps.Clone(as)
			m := new(broker.Message)
			pubsubwire.Decode(m, o.Body, as, published)
			if !m.Published.Equal(c.want) {
				t.Errorf("%s: Published is %v, want %v", c.name, m.Published, c.want)
			}
			m.Published = published
			same(t, m, &o)
			if !maps.Equal(as, before) {
				t.Errorf("Decode changed what it was given")
			}
			// So a replay carries none of them.
			again := broker.Outgoing{Body: m.Body, Attributes: m.Attributes, Meta: m.Meta}
			m, _ = travel(t, &again)
			same(t, m, &o)
		}
	}
}

func TestRefused(t *testing.T) {
	numbered := func(n int) map[string]string {
		as := make(map[string]string, n)
		for i := range n {
			as[fmt.Sprintf("a%d", i)] = "x"
		}
		return as
	}
	meta := &broker.Meta{ID: "j-1"}
	for _, c := range []struct {
		name string
		o    broker.Outgoing
		want error
	}{
		{"a long value", broker.Outgoing{Attributes: map[string]string{"a": strings.Repeat("x", 1025)}}, broker.ErrTooLarge},
		{"a large body", broker.Outgoing{Body: make([]byte, pubsubwire.MaxMessage+1)}, broker.ErrTooLarge},
		{"a large body with attributes", broker.Outgoing{Body: make([]byte, pubsubwire.MaxMessage), Attributes: map[string]string{"a": ""}}, broker.ErrTooLarge},
		{"a large body with metadata", broker.Outgoing{Body: make([]byte, pubsubwire.MaxMessage), Meta: meta}, broker.ErrTooLarge},
		{"a large body with a group", broker.Outgoing{Body: make([]byte, pubsubwire.MaxMessage), Group: "g"}, broker.ErrTooLarge},
		{"101 attributes", broker.Outgoing{Attributes: numbered(101)}, broker.ErrTooLarge},
		{"100 attributes and metadata", broker.Outgoing{Attributes: numbered(100), Meta: meta}, broker.ErrTooLarge},
		{"99 attributes and two pieces", broker.Outgoing{Attributes: numbered(99), Meta: metaOf(1024)}, broker.ErrTooLarge},
		{"101 pieces", broker.Outgoing{Meta: metaOf(100*1024 - overhead + 1)}, broker.ErrTooLarge},
		{"metadata's name", broker.Outgoing{Attributes: map[string]string{"onceq": "x"}, Meta: meta}, broker.ErrBadMeta},
		{"a piece's name", broker.Outgoing{Attributes: map[string]string{"onceq.1": "x"}, Meta: meta}, broker.ErrBadMeta},
		{"a later piece's name", broker.Outgoing{Attributes: map[string]string{"onceq.07": "x"}, Meta: meta}, broker.ErrBadMeta},
		{"no name", broker.Outgoing{Attributes: map[string]string{"": "x"}}, broker.ErrUnsupported},
		{"a long name", broker.Outgoing{Attributes: map[string]string{strings.Repeat("n", 257): "x"}}, broker.ErrUnsupported},
		{"Google's name", broker.Outgoing{Attributes: map[string]string{"google": "x"}}, broker.ErrUnsupported},
		{"a source's name", broker.Outgoing{Attributes: map[string]string{"CloudPubSubDeadLetterSourceX": "x"}}, broker.ErrUnsupported},
		{"a name that is not UTF-8", broker.Outgoing{Attributes: map[string]string{"\xff": "x"}}, broker.ErrUnsupported},
		{"a value that is not UTF-8", broker.Outgoing{Attributes: map[string]string{"a": "\xff"}}, broker.ErrUnsupported},
		{"a long group", broker.Outgoing{Body: []byte("b"), Group: strings.Repeat("g", 1025)}, broker.ErrUnsupported},
		{"a group that is not UTF-8", broker.Outgoing{Body: []byte("b"), Group: "\xff"}, broker.ErrUnsupported},
	} {
		t.Run(c.name, func(t *testing.T) {
			data, as, size, err := pubsubwire.Encode(&c.o)
			if !errors.Is(err, c.want) || data != nil || as != nil || size != 0 {
				t.Errorf("%d bytes, attributes %q, size %d, %v; want %v", len(data), as, size, err, c.want)
			}
		})
	}
	for _, o := range []broker.Outgoing{
		{Body: make([]byte, pubsubwire.MaxMessage)},
		{Attributes: numbered(100)},
		{Attributes: numbered(99), Meta: meta},
		{Attributes: map[string]string{strings.Repeat("n", 256): strings.Repeat("x", 1024)}},
		{Body: []byte("b"), Group: strings.Repeat("g", 1024)},
	} {
		m, _ := travel(t, &o)
		same(t, m, &o)
	}
}

// FuzzDecode feeds what a stranger may publish: nothing panics, and what cannot be read is left.
func FuzzDecode(f *testing.F) {
	f.Add([]byte("body"), `{"v":1,"id":"j-1"}`, "", "a", "1")
	f.Add([]byte("AP8K"), `{"v":1,"be":"base64"`, "}", "CloudPubSubDeadLetterSourceTopicPublishTime", "2025-11-20T16:12:25Z")
	f.Fuzz(func(t *testing.T, data []byte, first, second, name, value string) {
		as := map[string]string{"onceq": first, "onceq.1": second, name: value}
		m := new(broker.Message)
		pubsubwire.Decode(m, data, as, published)
		switch {
		case m.MetaErr != nil && (m.Meta != nil || m.Attributes["onceq"] != as["onceq"]):
			t.Errorf("MetaErr %v, Meta %v, attributes %q", m.MetaErr, m.Meta, m.Attributes)
		case m.MetaErr == nil && m.Attributes["onceq"] != "":
			t.Errorf("our metadata is among the attributes: %q", m.Attributes)
		}
	})
}

// TestPiecesDoNotEndWithASpace moves a border of pieces through words: HTTP takes spaces from both
// ends of a header, and an unwrapped push has each piece as one.
func TestPiecesDoNotEndWithASpace(t *testing.T) {
	for shift := range 8 {
		for _, word := range []string{"a ", " é", "a   b", "   "} {
			o := broker.Outgoing{Meta: &broker.Meta{ID: "j", CorrelationID: strings.Repeat("x", 900+shift) + strings.Repeat(word, 60) + strings.Repeat("yes ", 1000)}}
			m, as := travel(t, &o)
			same(t, m, &o)
			for name, piece := range as {
				if strings.Trim(piece, " ") != piece {
					t.Errorf("%d, %q: %s is %.10q…%q", shift, word, name, piece, piece[len(piece)-10:])
				}
			}
		}
	}
	o := broker.Outgoing{Meta: &broker.Meta{ID: strings.Repeat(" ", 5000)}} // no border is better
	m, _ := travel(t, &o)
	same(t, m, &o)
}
