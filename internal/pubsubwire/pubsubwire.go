// Package pubsubwire has how a message travels through Pub/Sub: what of it goes into the data and
// what into the attributes, and how both are read again. The pull driver and the push entry point
// share it. It knows no client and no server.
//
// # The rule for our metadata
//
// The metadata of a message is one text ([broker.EncodeMeta]). An attribute of Pub/Sub holds 1,024
// bytes. So the text is cut into pieces of at most 1,024 bytes. A piece ends with a whole
// character, and where that is possible not beside a space:
//
//   - The first piece is the attribute "onceq", the next ones are "onceq.1", "onceq.2" and so on.
//     Most metadata is one piece.
//   - Nothing is trimmed here. If the pieces and the user's attributes are more than 100, the
//     message is refused with ErrTooLarge. A dead letter is then cut down by whoever puts it.
//   - A reader joins the pieces, from "onceq" up to the first number that is missing. If one was
//     lost, what is left is the beginning of a JSON object and no more, so it cannot be read, and
//     the message has a MetaErr. Nothing is lost without a word.
//   - In a message with metadata, the user may have no attribute with one of these names: another
//     piece would spoil the text.
//
// # What Pub/Sub adds itself
//
// A message that Pub/Sub has moved to a dead-letter topic has four to five attributes more, whose
// names begin with CloudPubSubDeadLetterSource. They are not the user's. Decode reads the time of
// the first publish from them and leaves them out, so a replay does not carry them on. Otherwise a
// job would not be the same one after the move: signatures and sums cover the user's attributes.
package pubsubwire

import (
	"encoding/base64"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/onceq/onceq/broker"
)

// This file owns the form of a message in Pub/Sub, both ways. The driver's Send calls Encode, and
// Decode is called for each message that a pull or a push brings. Nothing is locked, because the
// functions keep no state. The package comment has the rule for metadata.

// What Pub/Sub allows.
const (
	MaxValue      = 1024 // bytes of an attribute's value
	MaxName       = 256  // bytes of an attribute's name
	MaxAttributes = 100
	MaxGroup      = 1024 // bytes of an ordering key
	MaxRequest    = 10_000_000
	// MaxMessage is the most bytes of body, attributes and group together. Pub/Sub counts the whole
	// request, so room is left for the topic's name and for what frames 100 attributes.
	MaxMessage = MaxRequest - 2_000
)

// encoding marks a body in Meta.BodyEncoding. Pub/Sub carries any bytes, so only two bodies have
// it: one that came from elsewhere, and one that is empty, of a message that has nothing else.
// Pub/Sub takes no message without data and without attributes.
const encoding = "base64"

// markOnly is the metadata of a message that has none, and nothing else either.
var markOnly = broker.EncodeMeta(&broker.Meta{BodyEncoding: encoding})

// deadLetterSource is how the names begin that Pub/Sub gives to what it adds to a dead letter.
const deadLetterSource = "CloudPubSubDeadLetterSource"

// Encode gives the data and the attributes of a message, and how many bytes they are with its
// group. The data is the body itself, not a copy. An error says that Pub/Sub would never take the
// message: it wraps broker.ErrTooLarge, ErrUnsupported or ErrBadMeta.
func Encode(o *broker.Outgoing) (data []byte, attributes map[string]string, size int, err error) {
	if size = len(o.Body) + len(o.Group); size > MaxMessage {
		return nil, nil, 0, tooLarge(size)
	}
	if err := checkGroup(o.Group); err != nil {
		return nil, nil, 0, err
	}
	meta := ""
	switch {
	case o.Meta != nil:
		meta = encodeMeta(o.Meta)
	case len(o.Body) == 0 && len(o.Attributes) == 0:
		meta = markOnly
	}
	n := len(o.Attributes) + pieces(meta)
	if n > MaxAttributes {
		return nil, nil, 0, fmt.Errorf("%w: %d attributes, of which %d are our metadata; at most %d", broker.ErrTooLarge, n, n-len(o.Attributes), MaxAttributes)
	}
	if n > 0 {
		attributes = make(map[string]string, n)
	}
	for name, value := range o.Attributes {
		if meta != "" && isOurs(name) {
			return nil, nil, 0, fmt.Errorf("%w: attribute %q is ours; the message has metadata as well", broker.ErrBadMeta, name)
		}
		if err := checkAttribute(name, value); err != nil {
			return nil, nil, 0, err
		}
		attributes[name] = value
		size += len(name) + len(value)
	}
	for i := 0; meta != ""; i++ {
		name, piece := pieceName(i), cut(meta)
		attributes[name], meta = piece, meta[len(piece):]
		size += len(name) + len(piece)
	}
	if size > MaxMessage {
		return nil, nil, 0, tooLarge(size)
	}
	return o.Body, attributes, size, nil
}

func tooLarge(n int) error {
	return fmt.Errorf("%w: %d bytes with attributes and metadata; at most %d", broker.ErrTooLarge, n, MaxMessage)
}

// encodeMeta writes the metadata without the mark of a body, which says nothing about this one.
func encodeMeta(m *broker.Meta) string {
	if m.BodyEncoding == "" {
		return broker.EncodeMeta(m)
	}
	unmarked := *m
	unmarked.BodyEncoding = ""
	return broker.EncodeMeta(&unmarked)
}

// pieces is how many attributes the text takes.
func pieces(text string) (n int) {
	for ; text != ""; n++ {
		text = text[len(cut(text)):]
	}
	return n
}

// cut is the first piece of a text. It ends with a character, because a value must be UTF-8, and
// not beside a space, because an unwrapped push has each attribute as a header, and HTTP takes
// spaces from both ends of a header's value.
func cut(text string) string {
	if len(text) <= MaxValue {
		return text
	}
	n := MaxValue
	for !utf8.RuneStart(text[n]) {
		n--
	}
	for m := n; m > MaxValue/2; m-- {
		if utf8.RuneStart(text[m]) && text[m] != ' ' && text[m-1] != ' ' {
			return text[:m]
		}
	}
	return text[:n] // half a piece without two characters that are together
}

func pieceName(i int) string {
	if i == 0 {
		return broker.MetaAttribute
	}
	return broker.MetaAttribute + "." + strconv.Itoa(i)
}

// isOurs reports whether a piece may have that name.
func isOurs(name string) bool {
	rest, ok := strings.CutPrefix(name, broker.MetaAttribute)
	if !ok || rest == "" {
		return ok
	}
	number, ok := strings.CutPrefix(rest, ".")
	return ok && number != "" && strings.Trim(number, "0123456789") == ""
}

func checkGroup(group string) error {
	switch {
	case len(group) > MaxGroup:
		return unsupported("a Group of %d bytes; an ordering key has at most %d", len(group), MaxGroup)
	case !utf8.ValidString(group):
		return unsupported("the Group %q is not UTF-8", group)
	}
	return nil
}

// checkAttribute refuses what Pub/Sub would refuse, because here the error can say which and why.
func checkAttribute(name, value string) error {
	switch {
	case name == "" || len(name) > MaxName:
		return unsupported("an attribute's name of %d bytes; Pub/Sub takes 1 to %d", len(name), MaxName)
	case !utf8.ValidString(name) || !utf8.ValidString(value):
		return unsupported("attribute %q is not UTF-8", name)
	case strings.HasPrefix(name, "goog") && !strings.HasPrefix(name, "googclient_"):
		return unsupported("attribute %q; Pub/Sub reserves names that begin with goog", name)
	case strings.HasPrefix(name, deadLetterSource):
		return unsupported("attribute %q; Pub/Sub itself sets it when it moves a message to a dead-letter topic", name)
	case len(value) > MaxValue:
		return fmt.Errorf("%w: attribute %q has %d bytes; at most %d", broker.ErrTooLarge, name, len(value), MaxValue)
	}
	return nil
}

func unsupported(format string, args ...any) error {
	return fmt.Errorf("%w: %s", broker.ErrUnsupported, fmt.Sprintf(format, args...))
}

// Decode reads the data and the attributes that a message came with. It sets the message's Body,
// Attributes, Meta and MetaErr. published is when Pub/Sub took the message. Published is set to
// that, or to the time of the first publish where Pub/Sub has moved the message since.
//
// The Body may be data itself. The Attributes are a copy. Where our metadata cannot be read, it is
// left among them, as it came.
func Decode(m *broker.Message, data []byte, attributes map[string]string, published time.Time) {
	m.Body, m.Published = data, published
	text, n := join(attributes)
	if n > 0 {
		meta, err := broker.DecodeMeta(text)
		if err == nil {
			err = decodeBody(m, meta.BodyEncoding)
		}
		switch {
		case err != nil:
			m.MetaErr, n = err, 0
		case text != markOnly:
			meta.BodyEncoding = ""
			m.Meta = meta
		}
	}
	if len(attributes) == n {
		return // most messages have our metadata and nothing else
	}
	m.Attributes = maps.Clone(attributes)
	for i := range n {
		delete(m.Attributes, pieceName(i))
	}
	takeSource(m)
	if len(m.Attributes) == 0 {
		m.Attributes = nil
	}
}

// join puts the n pieces of our metadata together.
func join(attributes map[string]string) (text string, n int) {
	text, ok := attributes[broker.MetaAttribute]
	if !ok {
		return "", 0
	}
	var b strings.Builder
	for n = 1; ; n++ {
		piece, ok := attributes[pieceName(n)]
		switch {
		case !ok && n == 1:
			return text, 1
		case !ok:
			return b.String(), n
		case n == 1:
			b.WriteString(text)
		}
		b.WriteString(piece)
	}
}

// takeSource takes out what Pub/Sub has added to a message that it moved.
func takeSource(m *broker.Message) {
	// Whoever publishes can write any time there, so a later one than Pub/Sub's is not believed.
	first, err := time.Parse(time.RFC3339Nano, m.Attributes[deadLetterSource+"TopicPublishTime"])
	if err == nil && first.Before(m.Published) {
		m.Published = first
	}
	maps.DeleteFunc(m.Attributes, func(name, _ string) bool { return strings.HasPrefix(name, deadLetterSource) })
}

func decodeBody(m *broker.Message, enc string) error {
	switch enc {
	case "":
		return nil
	case encoding:
		body, err := base64.StdEncoding.AppendDecode(nil, m.Body)
		if err != nil {
			return fmt.Errorf("%w: body: %w", broker.ErrBadMeta, err)
		}
		m.Body = body
		return nil
	}
	return fmt.Errorf("%w: unknown body encoding %q", broker.ErrBadMeta, enc)
}
