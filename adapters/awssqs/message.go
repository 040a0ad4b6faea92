package awssqs

import (
	"crypto/md5" //nolint:gosec // what SQS answers; it guards against damage, not against an enemy
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/onceq/onceq/broker"
)

// How what SQS cannot carry as it is travels in an attribute: a custom label behind the type, which SQS
// allows and keeps.
const (
	typeString = "String"
	typeEmpty  = "String.onceq-empty" // SQS takes no empty value
	typeBytes  = "Binary.onceq-text"  // a text that is not XML characters
	emptyValue = "-"
)

// encoding marks a body in Meta.BodyEncoding. An empty body, which SQS takes neither, is one line break, which base64
// passes over.
const (
	encoding  = "base64"
	emptyBody = "\n"
)

// read fills m with what in says.
func (b *Broker) read(m *broker.Message, in *types.Message) {
	m.ID = deref(in.MessageId)
	m.Receipt = broker.Receipt(deref(in.ReceiptHandle))
	m.Body = []byte(deref(in.Body))
	m.Attempt, _ = strconv.Atoi(in.Attributes[string(types.MessageSystemAttributeNameApproximateReceiveCount)])
	if ms, err := strconv.ParseInt(in.Attributes[string(types.MessageSystemAttributeNameSentTimestamp)], 10, 64); err == nil {
		m.Published = time.UnixMilli(ms)
	}
	ours, ok := in.MessageAttributes[broker.MetaAttribute]
	m.Attributes = readAttributes(in.MessageAttributes, ok)
	switch {
	case ok:
		readMeta(m, valueOf(ours))
	case b.o.Unwrap != 0:
		unwrap(m, b.o.Unwrap)
	}
}

// readAttributes gives those of the user, nil when there are none.
func readAttributes(in map[string]types.MessageAttributeValue, ours bool) map[string]string {
	n := len(in)
	if ours {
		n--
	}
	if n == 0 {
		return nil
	}
	as := make(map[string]string, n)
	for name, v := range in {
		if name != broker.MetaAttribute {
			as[name] = valueOf(v)
		}
	}
	return as
}

func valueOf(v types.MessageAttributeValue) string {
	switch {
	case deref(v.DataType) == typeEmpty:
		return ""
	case v.StringValue != nil:
		return *v.StringValue
	}
	return string(v.BinaryValue)
}

// readMeta reads our attribute, and takes the body out of its encoding. What cannot be read is put among the user's, as it came.
func readMeta(m *broker.Message, text string) {
	meta, err := broker.DecodeMeta(text)
	if err == nil {
		err = decodeBody(m, meta.BodyEncoding)
	}
	switch {
	case err != nil:
		m.MetaErr = err
		if m.Attributes == nil {
			m.Attributes = make(map[string]string, 1)
		}
		m.Attributes[broker.MetaAttribute] = text
	case text == markOnly:
		// The message was sent without metadata; the mark came with its body.
	default:
		meta.BodyEncoding = ""
		m.Meta = meta
	}
}

// markOnly is the metadata of a message that has none and whose body is encoded.
var markOnly = broker.EncodeMeta(&broker.Meta{BodyEncoding: encoding})

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

// intact tells whether the body is the one that SQS has sent.
func intact(m *types.Message) bool {
	return m.MD5OfBody == nil || matches(deref(m.Body), *m.MD5OfBody)
}

// matches compares without an allocation.
func matches(body, sum string) bool {
	if len(sum) != 2*md5.Size {
		return false
	}
	have := md5.Sum([]byte(body)) //nolint:gosec // see the import
	var text [2 * md5.Size]byte
	hex.Encode(text[:], have[:])
	return string(text[:]) == sum
}
