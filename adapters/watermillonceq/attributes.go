package watermillonceq

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/onceq/onceq/broker"
)

// This file owns how a Watermill message's UUID and metadata travel in a broker's attributes. The
// publisher calls attributes, the subscriber metadata. Both are pure functions.
//
// The rule: where each entry of the metadata can be an attribute of its own on every broker, each
// is one. Where one of them cannot, all travel together as JSON, in the attribute MetadataAttribute
// and as many more, with -1, -2 and so on behind the name, as keep each of them short.

// UUIDAttribute is the attribute in which a message's UUID travels. Watermill's own SQS and Pub/Sub
// adapters have the same, so they read what a [Publisher] sends.
const UUIDAttribute = "_watermill_message_uuid"

// MetadataAttribute is the attribute in which metadata travels that attributes cannot carry one by
// one. The rule: metadata goes as attributes of the same names where all of these hold, and else
// all of it goes here, as JSON.
//
//   - The broker's Limits.MaxAttributes has room for all, the UUID and onceq's own attribute.
//   - Each name has 1 to 256 of A-Z a-z 0-9 _ - and the dot, neither at its ends nor twice; it does
//     not begin with "aws.", "amazon.", "goog", "onceq" or "_watermill", in any case. FenceMetadata
//     may.
//   - Each value is UTF-8 of 1 to 1,024 bytes.
//
// The JSON is one object. Where a name or a value is not UTF-8 it is an array of pairs in base64.
const MetadataAttribute = "_watermill_metadata"

// mostValue is the longest value that every broker takes (Pub/Sub has 1,024 bytes).
const mostValue = 1024

// ours are metadata that have another way, or none: they are about the job, and not the message.
func ours(name string) bool { return name == broker.MetaAttribute || name == KeyMetadata }

// attributes is how the message's UUID and metadata travel, where most attributes are allowed
// (0 = any number), ours included.
func attributes(msg *message.Message, most int) (map[string]string, error) {
	user := maps.Clone(map[string]string(msg.Metadata))
	maps.DeleteFunc(user, func(k, _ string) bool { return ours(k) })
	out := make(map[string]string, len(user)+1)
	if msg.UUID != "" {
		if !utf8.ValidString(msg.UUID) || len(msg.UUID) > mostValue {
			return nil, fmt.Errorf("the UUID has %d bytes, want UTF-8 of at most %d", len(msg.UUID), mostValue)
		}
		out[UUIDAttribute] = msg.UUID
	}
	room := len(user)
	if most > 0 {
		room = most - 2 // the UUID, and onceq's own
	}
	if len(user) <= room && fits(user) {
		maps.Copy(out, user)
		return out, nil
	}
	if room < 1 {
		return nil, fmt.Errorf("the broker takes %d attributes, and metadata needs 3 or more", most)
	}
	parts, err := pack(user, most > 0, room)
	if err != nil {
		return nil, err
	}
	for i, part := range parts {
		out[partName(i)] = part
	}
	return out, nil
}

func partName(i int) string {
	if i == 0 {
		return MetadataAttribute
	}
	return MetadataAttribute + "-" + strconv.Itoa(i)
}

func fits(m map[string]string) bool {
	for k, v := range m {
		if !fitsName(k) || v == "" || len(v) > mostValue || !utf8.ValidString(v) {
			return false
		}
	}
	return true
}

func fitsName(k string) bool {
	if k == "" || len(k) > 256 || k[0] == '.' || k[len(k)-1] == '.' || strings.Contains(k, "..") {
		return false
	}
	for i := range len(k) {
		c := k[i]
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '_', c == '-', c == '.':
		default:
			return false
		}
	}
	if k == FenceMetadata {
		return true
	}
	low := strings.ToLower(k)
	for _, reserved := range []string{"aws.", "amazon.", "goog", "onceq", "_watermill"} {
		if strings.HasPrefix(low, reserved) {
			return false
		}
	}
	return true
}

// pack is the metadata as JSON, in parts.
func pack(m map[string]string, bounded bool, room int) ([]string, error) {
	var v any = m
	for k, text := range m {
		if !utf8.ValidString(k) || !utf8.ValidString(text) {
			pairs := make([][2][]byte, 0, len(m))
			for _, k := range slices.Sorted(maps.Keys(m)) {
				pairs = append(pairs, [2][]byte{[]byte(k), []byte(m[k])})
			}
			v = pairs
			break
		}
	}
	b, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	size := mostValue
	if bounded && len(b) > room*(mostValue-utf8.UTFMax) {
		size = len(b)/room + utf8.UTFMax + 1 // few attributes, as on SQS, have no limit of their own
	}
	var parts []string
	for rest := string(b); rest != ""; {
		n := min(size, len(rest))
		for n < len(rest) && !utf8.RuneStart(rest[n]) {
			n--
		}
		parts, rest = append(parts, rest[:n]), rest[n:]
	}
	return parts, nil
}

// errMetadata says that MetadataAttribute holds what no publisher of ours wrote.
var errMetadata = errors.New("watermillonceq: the metadata of the message cannot be read")

// metadata is the UUID and the metadata that travelled in the attributes. Where it cannot be read,
// the attributes are the metadata as they came, and err says why.
func metadata(attributes map[string]string) (uuid string, m message.Metadata, err error) {
	m = make(message.Metadata, len(attributes)+1)
	var packed strings.Builder
	for i := 0; ; i++ {
		part, ok := attributes[partName(i)]
		if !ok {
			break
		}
		packed.WriteString(part)
	}
	if packed.Len() > 0 {
		if err = unpack(packed.String(), m); err != nil {
			clear(m)
		}
	}
	for k, v := range attributes {
		switch {
		case k == UUIDAttribute:
			uuid = v
		case err == nil && isPart(k):
		default:
			m[k] = v
		}
	}
	return uuid, m, err
}

func isPart(name string) bool {
	n, ok := strings.CutPrefix(name, MetadataAttribute)
	if !ok || n == "" {
		return ok
	}
	i, err := strconv.Atoi(strings.TrimPrefix(n, "-"))
	return err == nil && partName(i) == name
}

func unpack(text string, m message.Metadata) error {
	var pairs [][2][]byte
	errPairs := json.Unmarshal([]byte(text), &pairs)
	if errPairs == nil {
		for _, p := range pairs {
			m[string(p[0])] = string(p[1])
		}
		return nil
	}
	object := map[string]string(m)
	if err := json.Unmarshal([]byte(text), &object); err != nil {
		return fmt.Errorf("%w: %w", errMetadata, cmp.Or(err, errPairs))
	}
	return nil
}
