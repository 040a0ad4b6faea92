package onceqpubsub

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/onceq/onceq/adapters/gocloudpubsub/internal/wellknown"
	"github.com/onceq/onceq/broker"
)

// This file owns how gocloud's metadata, any UTF-8 to any UTF-8, travels as a message's attributes,
// both ways. A topic calls pack, and a subscription calls unpack, for each message, from many
// goroutines. A form never changes, so nothing is locked. MoreAttribute has the rule in words.

// Metadata keys that a Topic of OpenTopic reads. They stay in the metadata, so that a subscriber
// sees them as they were sent.
const (
	// KeyMetadata names the job's idempotency key, [broker.Meta].Key. Without it, TopicOptions.Key
	// is asked. It is "onceq-key".
	KeyMetadata = wellknown.Key
	// TypeMetadata names the job's type, [broker.Meta].Type, by which a onceq Mux chooses.
	TypeMetadata = "onceq-type"
	// GroupMetadata names the message group (SQS) or the ordering key (Pub/Sub). A FIFO queue needs
	// one.
	GroupMetadata = "onceq-group"
)

// MoreAttribute is the attribute that carries the metadata that has no attribute of its own: one
// JSON object of texts, in ASCII without spaces. Where it is above 1,024 bytes, Pub/Sub gets it in
// pieces: the next ones are "onceq-more.1", "onceq-more.2" and so on.
//
// A pair of metadata has an attribute of its own, and other readers see it there, unless
//
//   - its key is "onceq" or MoreAttribute, or begins with one of them and a period;
//   - its key is empty or above 256 bytes, or Pub/Sub reserves it ("goog", and what Pub/Sub itself
//     adds to dead letters);
//   - its value is above 1,024 bytes, on Pub/Sub alone;
//   - the broker takes no more attributes. Then the last keys by the alphabet go together, those
//     with escapes first. The keys above and "traceparent" stay.
//
// On SQS, the key's characters other than ASCII letters, digits, '-', '_' and '.' become
// "__0x<hex>__", as gocloud's awssnssqs writes them; "a b" is "a__0x20__b". So does a period at
// either end or behind another one, the first letter of "aws." and "amazon.", and the start of what
// reads like such an escape. A key that would not read back from that goes with the others. On all
// other brokers keys and values travel as they are, as gocloud's gcppubsub has it.
//
// A broker that takes at most ten attributes ([broker.Limits].MaxAttributes) is taken for SQS.
const MoreAttribute = "onceq-more"

const (
	fewAttributes = 10   // a broker that takes no more is taken for SQS
	maxName       = 256  // bytes of an attribute's name, on SQS and Pub/Sub
	maxValue      = 1024 // bytes of an attribute's value on Pub/Sub
	metaPieces    = 4    // attributes that our own metadata may need on Pub/Sub
)

// peerBase64 marks a body in base64 for gocloud's awssnssqs.
const peerBase64 = "base64encoded"

// form is how metadata travels on a broker.
type form struct {
	sqs  bool // its names are SQS's
	peer bool // values and bodies are as gocloud's awssnssqs has them
	most int  // attributes beside our metadata; 0 = any number
}

func formOf(l broker.Limits, peer bool) form {
	f := form{peer: peer, sqs: l.MaxAttributes > 0 && l.MaxAttributes <= fewAttributes}
	switch {
	case f.sqs:
		f.most = max(1, l.MaxAttributes-1)
	case l.MaxAttributes > 0:
		f.most = max(1, l.MaxAttributes-metaPieces)
	}
	return f
}

// pair is a pair of metadata that fits into an attribute of its own.
type pair struct{ key, name, value string }

// order is that in which pairs lose their place: those with escapes first.
func (p *pair) order() int {
	switch {
	case p.key == KeyMetadata, p.key == TypeMetadata, p.key == GroupMetadata, p.key == broker.TraceAttribute:
		return 0
	case p.key == p.name:
		return 1
	}
	return 2
}

// pack gives the attributes, of which spare more shall find room; nil when there are none.
func (f form) pack(metadata map[string]string, spare int) map[string]string {
	if len(metadata) == 0 {
		return nil
	}
	var more map[string]string
	fit := make([]pair, 0, len(metadata))
	for key, value := range metadata {
		if p, ok := f.fit(key, value); ok {
			fit = append(fit, p)
			continue
		}
		if more == nil {
			more = make(map[string]string)
		}
		more[key] = value
	}
	most := f.most - spare
	if f.most > 0 && len(fit) > most || more != nil {
		slices.SortFunc(fit, func(a, b pair) int {
			if c := a.order() - b.order(); c != 0 {
				return c
			}
			return strings.Compare(a.key, b.key)
		})
	}
	pieces := f.pieces(more)
	for len(fit) > 0 && f.most > 0 && len(fit)+len(pieces) > most {
		last := fit[len(fit)-1]
		fit = fit[:len(fit)-1]
		if more == nil {
			more = make(map[string]string)
		}
		more[last.key] = metadata[last.key]
		pieces = f.pieces(more)
	}
	attributes := make(map[string]string, len(fit)+len(pieces))
	for _, p := range fit {
		attributes[p.name] = p.value
	}
	for i, text := range pieces {
		attributes[pieceName(i)] = text
	}
	return attributes
}

// fit reports whether a pair has an attribute of its own, and which.
func (f form) fit(key, value string) (pair, bool) {
	p := pair{key, key, value}
	switch {
	case isOurs(key), f.peer && key == peerBase64:
		return p, false
	case f.sqs:
		if p.name = escape(key); unescape(p.name) != key {
			return p, false
		}
	case len(value) > maxValue, strings.HasPrefix(key, "CloudPubSubDeadLetterSource"),
		strings.HasPrefix(key, "goog") && !strings.HasPrefix(key, "googclient_"):
		return p, false
	}
	if f.peer {
		p.value = url.PathEscape(value)
	}
	return p, p.name != "" && len(p.name) <= maxName
}

// isOurs reports whether no metadata may have the name for an attribute of its own.
func isOurs(name string) bool {
	for _, ours := range [...]string{broker.MetaAttribute, MoreAttribute} {
		if rest, ok := strings.CutPrefix(name, ours); ok && (rest == "" || rest[0] == '.') {
			return true
		}
	}
	return false
}

// pieces is the text of what has no attribute of its own, as it travels.
func (f form) pieces(more map[string]string) []string {
	if len(more) == 0 {
		return nil
	}
	text := plainJSON(more)
	if f.sqs {
		return []string{text}
	}
	var all []string
	for chunk := range slices.Chunk([]byte(text), maxValue) {
		all = append(all, string(chunk))
	}
	return all
}

// plainJSON has printable ASCII alone and no spaces, so that it can be cut anywhere, and no service
// trims or refuses it.
func plainJSON(texts map[string]string) string {
	raw, err := json.Marshal(texts)
	if err != nil {
		return "{}" // texts are always written
	}
	var b strings.Builder
	for _, r := range string(raw) {
		switch {
		case r > ' ' && r < utf8.RuneSelf-1:
			b.WriteRune(r)
		case r <= 0xffff:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			r -= 0x10000
			fmt.Fprintf(&b, `\u%04x\u%04x`, 0xd800+r>>10, 0xdc00+r&0x3ff)
		}
	}
	return b.String()
}

func pieceName(i int) string {
	if i == 0 {
		return MoreAttribute
	}
	return MoreAttribute + "." + strconv.Itoa(i)
}

// unpack gives the metadata of a received message's attributes; nil when there is none.
func (f form) unpack(attributes map[string]string) map[string]string {
	if len(attributes) == 0 {
		return nil
	}
	more, pieces := readMore(attributes)
	metadata := make(map[string]string, len(attributes)-pieces+len(more))
	maps.Copy(metadata, more)
	var escaped []string
	for name, value := range attributes {
		switch {
		case pieces > 0 && isPiece(name, pieces), f.peer && name == peerBase64:
			continue
		case f.sqs && unescape(name) != name:
			escaped = append(escaped, name)
			continue
		}
		metadata[name] = f.value(name, value)
	}
	// What stands there under its own name is what all other readers see, so it comes first.
	slices.Sort(escaped)
	for _, name := range escaped {
		key := unescape(name)
		if _, taken := attributes[key]; taken {
			key = name
		}
		metadata[key] = f.value(name, attributes[name])
	}
	return metadata
}

func (f form) value(name, value string) string {
	if !f.peer || isOurs(name) {
		return value
	}
	if text, err := url.PathUnescape(value); err == nil {
		return text
	}
	return value
}

// readMore reads what has no attribute of its own, and in how many pieces it came. Where it cannot
// be read, it has no piece: the attributes are shown as they came.
func readMore(attributes map[string]string) (more map[string]string, pieces int) {
	text, ok := attributes[MoreAttribute]
	if !ok {
		return nil, 0
	}
	for pieces = 1; ; pieces++ {
		next, ok := attributes[pieceName(pieces)]
		if !ok {
			break
		}
		text += next
	}
	if json.Unmarshal([]byte(text), &more) != nil {
		return nil, 0
	}
	return more, pieces
}

func isPiece(name string, pieces int) bool {
	rest, ok := strings.CutPrefix(name, MoreAttribute)
	if !ok || rest == "" {
		return ok
	}
	n, err := strconv.Atoi(rest[1:])
	return err == nil && n < pieces && name == pieceName(n)
}

// escape writes a key with the characters that SQS takes.
func escape(key string) string {
	if plainName(key) {
		return key
	}
	var b strings.Builder
	reserved := reservedPrefix(key)
	var before rune
	for i, r := range key {
		_, reads := readEscape(key[i:])
		switch {
		case reads > 0 || i == 0 && reserved || !isName(r),
			r == '.' && (i == 0 || before == '.' || i == len(key)-1):
			fmt.Fprintf(&b, "__%#x__", r)
		default:
			b.WriteRune(r)
		}
		before = r
	}
	return b.String()
}

// plainName reports that escape leaves the key as it is, which is the rule.
func plainName(key string) bool {
	for i := range len(key) {
		if c := key[i]; !isName(rune(c)) || c == '.' {
			return false
		}
	}
	return !strings.Contains(key, "__0x")
}

func isName(r rune) bool {
	return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || r == '_' || r == '-' || r == '.'
}

func reservedPrefix(key string) bool {
	for _, p := range [...]string{"aws.", "amazon."} {
		if len(key) >= len(p) && strings.EqualFold(key[:len(p)], p) {
			return true
		}
	}
	return false
}

// unescape reads what escape, or gocloud's awssnssqs, has written.
func unescape(name string) string {
	if !strings.Contains(name, "__0x") {
		return name
	}
	var b strings.Builder
	for i := 0; i < len(name); {
		if r, n := readEscape(name[i:]); n > 0 {
			b.WriteRune(r)
			i += n
			continue
		}
		b.WriteByte(name[i])
		i++
	}
	return b.String()
}

// readEscape reads the escape that s begins with, and tells its length; 0 = there is none.
func readEscape(s string) (rune, int) {
	const open, end = "__0x", "__"
	rest, ok := strings.CutPrefix(s, open)
	if !ok {
		return 0, 0
	}
	digits, rest, ok := strings.Cut(rest, "_")
	if !ok || !strings.HasPrefix(rest, "_") {
		return 0, 0
	}
	n, err := strconv.ParseUint(digits, 16, 32)
	if err != nil || !utf8.ValidRune(rune(n)) {
		return 0, 0
	}
	return rune(n), len(open) + len(digits) + len(end)
}
