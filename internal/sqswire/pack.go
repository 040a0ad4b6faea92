package sqswire

import (
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/digest"
)

// This file owns how the parts of a message are written for SQS, and what SQS would refuse. Drivers
// call it for each message that they send, from any goroutine; it keeps nothing.

const (
	maxName  = 256 // bytes of an attribute's name
	maxToken = 128 // bytes of a group, and of a deduplication id
)

// CheckToken checks what SQS calls alphanumeric characters and punctuation. field is what the token
// is to the caller.
func CheckToken(field, s string) error {
	if len(s) > maxToken {
		return unsupported("a %s of %d bytes; it has at most %d", field, len(s), maxToken)
	}
	for i := range len(s) {
		if c := s[i]; c <= ' ' || c > '~' {
			return unsupported("the %s %q; SQS takes ASCII letters, digits and punctuation, no spaces", field, s)
		}
	}
	return nil
}

// CheckName refuses the attributes' names that SQS would refuse, because here the error can say
// which and why.
func CheckName(name string) error {
	switch {
	case name == "" || len(name) > maxName:
		return unsupported("an attribute's name of %d bytes; SQS takes 1 to %d", len(name), maxName)
	case name[0] == '.' || name[len(name)-1] == '.' || strings.Contains(name, ".."):
		return unsupported("attribute %q; SQS takes no period at either end, and no two in a row", name)
	case hasPrefix(name, "aws.") || hasPrefix(name, "amazon."):
		return unsupported("attribute %q; SQS reserves that prefix", name)
	}
	for i := range len(name) {
		switch c := name[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '_', c == '-', c == '.':
		default:
			return unsupported("attribute %q; SQS takes ASCII letters, digits, '_', '-' and '.' in names", name)
		}
	}
	return nil
}

// hasPrefix ignores case, as SQS does.
func hasPrefix(s, lower string) bool {
	return len(s) >= len(lower) && strings.EqualFold(s[:len(lower)], lower)
}

// DedupID names the send of a job. It is the same when the send is repeated. A dead letter and its
// replay come with an id of their own. A letter that comes without one gets a new id, because under
// the job's id the queue would swallow it.
func DedupID(o *broker.Outgoing) string {
	m := o.Meta
	if m == nil || m.ID == "" || m.Dead != nil {
		return rand.Text()
	}
	return digest.Of(m.ID, m.Type, m.Key, o.Group)
}

// Body gives a body as it travels, and the metadata with its mark. plain says that the body is to
// travel as it is: it must be Carriable then. Metadata that says nothing is "".
func Body(o *broker.Outgoing, plain bool) (body, meta string) {
	switch {
	case plain && o.Meta == nil:
		return string(o.Body), ""
	case plain && o.Meta.BodyEncoding == "":
		return string(o.Body), broker.EncodeMeta(o.Meta)
	}
	var m broker.Meta
	if o.Meta != nil {
		m = *o.Meta
	}
	// The mark is the driver's own. What the sender wrote there says nothing about this body.
	m.BodyEncoding = ""
	if plain {
		return string(o.Body), broker.EncodeMeta(&m)
	}
	m.BodyEncoding = Encoding
	if len(o.Body) == 0 {
		return EmptyBody, broker.EncodeMeta(&m)
	}
	return base64.StdEncoding.EncodeToString(o.Body), broker.EncodeMeta(&m)
}

// Attribute is how an attribute's value travels: as a text, or as bytes. plain says that the value
// is to travel as it is: it must be Carriable then.
func Attribute(v string, plain bool) (typ string, text *string, raw []byte) {
	switch {
	case v == "":
		return TypeEmpty, new(EmptyValue), nil
	case !plain:
		return TypeBytes, nil, []byte(v)
	}
	return TypeString, &v, nil
}

// Carriable reports whether SQS takes the text: it takes the characters of XML 1.0, in UTF-8, and
// nothing that is empty.
func Carriable[T string | []byte](text T) bool {
	for i := 0; i < len(text); {
		c := text[i]
		if c < utf8.RuneSelf {
			if c < ' ' && c != '\t' && c != '\n' && c != '\r' {
				return false
			}
			i++
			continue
		}
		r, n := utf8.DecodeRuneInString(string(text[i:min(len(text), i+utf8.UTFMax)]))
		if r == utf8.RuneError && n == 1 || r == 0xfffe || r == 0xffff {
			return false
		}
		i += n
	}
	return len(text) > 0
}

func unsupported(format string, args ...any) error {
	return fmt.Errorf("%w: %s", broker.ErrUnsupported, fmt.Sprintf(format, args...))
}
