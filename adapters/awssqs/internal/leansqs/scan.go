package leansqs

import (
	"encoding/base64"
	"strings"
	"unicode/utf8"

	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

// This file owns the scanner of the answers that SQS commonly gives. A call uses it in its own
// goroutine. It knows no more than those answers. At anything else it gives up, and the SDK reads
// the answer from its beginning. So it never has to decide what an odd answer means.

// scanner walks over an answer. Once bad it stays bad.
type scanner struct {
	text string
	at   int
	bad  bool
	room []byte // for texts with escapes
}

func newScanner(text string) *scanner {
	return &scanner{text: text, bad: !utf8.ValidString(text)}
}

// next passes over white space and gives the byte behind it, 0 at the end.
func (s *scanner) next() byte {
	for s.at < len(s.text) {
		switch c := s.text[s.at]; c {
		case ' ', '\t', '\n', '\r':
			s.at++
		default:
			return c
		}
	}
	return 0
}

// take takes the byte c, or the answer is odd.
func (s *scanner) take(c byte) {
	if s.bad || s.next() != c {
		s.bad = true
		return
	}
	s.at++
}

// list calls item for each of a list's, up to the closing byte.
func (s *scanner) list(open, end byte, item func()) {
	s.take(open)
	if !s.bad && s.next() == end {
		s.at++
		return
	}
	for !s.bad {
		item()
		switch {
		case s.bad:
		case s.next() == ',':
			s.at++
		default:
			s.take(end)
			return
		}
	}
}

// object calls field with each name, in front of its value.
func (s *scanner) object(field func(name string)) {
	s.list('{', '}', func() {
		name := s.str()
		s.take(':')
		if !s.bad {
			field(name)
		}
	})
}

// ended reports whether the answer was whole and nothing follows it.
func (s *scanner) ended() bool { return !s.bad && s.next() == 0 && s.at == len(s.text) }

// str reads a string. Without an escape it is a part of the answer's text.
func (s *scanner) str() string {
	s.take('"')
	if s.bad {
		return ""
	}
	from := s.at
	for ; s.at < len(s.text); s.at++ {
		switch c := s.text[s.at]; {
		case c == '"':
			s.at++
			return s.text[from : s.at-1]
		case c == '\\':
			return s.escaped(from)
		case c < ' ':
			s.bad = true
			return ""
		}
	}
	s.bad = true
	return ""
}

// escapes are those of one letter.
const escapes, escaped = `"\/bfnrt`, "\"\\/\b\f\n\r\t"

// escaped is str from the first escape on.
func (s *scanner) escaped(from int) string {
	b := append(s.room[:0], s.text[from:s.at]...)
	for s.at < len(s.text) {
		c := s.text[s.at]
		s.at++
		switch {
		case c == '"':
			s.room = b
			return string(b)
		case c < ' ' || c == '\\' && s.at == len(s.text):
			s.bad = true
			return ""
		case c != '\\':
			b = append(b, c)
			continue
		}
		e := s.text[s.at]
		s.at++
		if i := strings.IndexByte(escapes, e); i >= 0 {
			b = append(b, escaped[i])
			continue
		}
		r, ok := s.unit()
		if e != 'u' || !ok {
			s.bad = true
			return ""
		}
		b = utf8.AppendRune(b, r)
	}
	s.bad = true
	return ""
}

// unit reads the four digits of \u. Halves of a pair are left to the SDK.
func (s *scanner) unit() (r rune, ok bool) {
	if len(s.text)-s.at < 4 {
		return 0, false
	}
	for range 4 {
		c := s.text[s.at]
		s.at++
		switch {
		case c >= '0' && c <= '9':
			r = r<<4 | rune(c-'0')
		case c >= 'a' && c <= 'f':
			r = r<<4 | rune(c-'a'+10)
		case c >= 'A' && c <= 'F':
			r = r<<4 | rune(c-'A'+10)
		default:
			return 0, false
		}
	}
	return r, utf8.ValidRune(r)
}

// once sets a field that is there once.
func (s *scanner) once(to **string, at *string, v string) {
	if *to != nil {
		s.bad = true
	}
	*at = v
	*to = at
}

// scanReceived reads a receive's answer. A message's Body is a part of the whole answer's text: who
// keeps it keeps its nine neighbours. So it is with what is read as a number. The rest stands by
// itself.
func scanReceived(text string, out *sqs.ReceiveMessageOutput) bool {
	s := newScanner(text)
	s.object(func(name string) {
		if name != "Messages" || out.Messages != nil {
			s.bad = true
			return
		}
		out.Messages = make([]types.Message, 0, 10)
		s.list('[', ']', func() {
			out.Messages = append(out.Messages, types.Message{})
			s.message(&out.Messages[len(out.Messages)-1])
		})
	})
	return s.ended()
}

func (s *scanner) message(m *types.Message) {
	texts := new([5]string)
	s.object(func(name string) {
		switch name {
		case "MessageId":
			s.once(&m.MessageId, &texts[0], strings.Clone(s.str()))
		case "ReceiptHandle":
			s.once(&m.ReceiptHandle, &texts[1], strings.Clone(s.str()))
		case "MD5OfBody":
			s.once(&m.MD5OfBody, &texts[2], s.str())
		case "Body":
			s.once(&m.Body, &texts[3], s.str())
		case "MD5OfMessageAttributes":
			s.once(&m.MD5OfMessageAttributes, &texts[4], s.str())
		case "Attributes":
			s.attributes(m)
		case "MessageAttributes":
			s.messageAttributes(m)
		default:
			s.bad = true
		}
	})
}

func (s *scanner) attributes(m *types.Message) {
	if m.Attributes != nil {
		s.bad = true
		return
	}
	m.Attributes = make(map[string]string, 4)
	s.object(func(name string) {
		v := s.str()
		switch name {
		case "ApproximateReceiveCount", "SentTimestamp": // numbers, which nobody keeps as texts
		default:
			name, v = attributeName(name), strings.Clone(v)
		}
		if _, twice := m.Attributes[name]; twice {
			s.bad = true
			return
		}
		m.Attributes[name] = v
	})
}

// systemAttributes are the names that SQS has for its own attributes.
var systemAttributes = types.MessageSystemAttributeName("").Values()

// attributeName is that name, apart from the answer's text.
func attributeName(name string) string {
	for _, known := range systemAttributes {
		if string(known) == name {
			return string(known)
		}
	}
	return strings.Clone(name)
}

func (s *scanner) messageAttributes(m *types.Message) {
	if m.MessageAttributes != nil {
		s.bad = true
		return
	}
	m.MessageAttributes = make(map[string]types.MessageAttributeValue, 1)
	s.object(func(name string) {
		if _, twice := m.MessageAttributes[name]; twice {
			s.bad = true
			return
		}
		var v types.MessageAttributeValue
		texts := new([2]string)
		s.object(func(part string) {
			switch part {
			case "DataType":
				s.once(&v.DataType, &texts[0], strings.Clone(s.str()))
			case "StringValue":
				s.once(&v.StringValue, &texts[1], strings.Clone(s.str()))
			case "BinaryValue":
				raw, err := base64.StdEncoding.DecodeString(s.str())
				s.bad = s.bad || err != nil || v.BinaryValue != nil
				v.BinaryValue = raw
			default:
				s.bad = true
			}
		})
		m.MessageAttributes[strings.Clone(name)] = v
	})
}

// scanDeleted reads the answer of a delete that names no failure.
func scanDeleted(text string, out *sqs.DeleteMessageBatchOutput) bool {
	ids, failed, ok := scanSuccessful(text)
	if !ok {
		return false
	}
	out.Failed = failed
	out.Successful = make([]types.DeleteMessageBatchResultEntry, len(ids))
	for i := range ids {
		out.Successful[i].Id = &ids[i]
	}
	return true
}

// scanChanged reads the answer of a change of visibilities that names no failure.
func scanChanged(text string, out *sqs.ChangeMessageVisibilityBatchOutput) bool {
	ids, failed, ok := scanSuccessful(text)
	if !ok {
		return false
	}
	out.Failed = failed
	out.Successful = make([]types.ChangeMessageVisibilityBatchResultEntry, len(ids))
	for i := range ids {
		out.Successful[i].Id = &ids[i]
	}
	return true
}

// scanSuccessful reads a batch's answer. One that names a failure is not common, so the SDK reads
// it.
func scanSuccessful(text string) (ids []string, failed []types.BatchResultErrorEntry, ok bool) {
	s := newScanner(text)
	s.object(func(name string) {
		switch {
		case name == "Successful" && ids == nil:
			ids = make([]string, 0, 10)
			s.list('[', ']', func() {
				n := len(ids)
				s.object(func(name string) {
					if name != "Id" || len(ids) > n {
						s.bad = true
						return
					}
					ids = append(ids, s.str())
				})
				s.bad = s.bad || len(ids) == n // an entry without its id
			})
		case name == "Failed" && failed == nil:
			failed = []types.BatchResultErrorEntry{}
			s.take('[')
			s.take(']')
		default:
			s.bad = true
		}
	})
	return ids, failed, s.ended() && ids != nil
}
