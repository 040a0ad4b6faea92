package awssqs

import (
	"crypto/md5"
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
	m.Attributes = readAttributes(in.MessageAttributes)
	readMeta(m)
	if m.Meta == nil && m.MetaErr == nil && b.o.Unwrap != 0 {
		unwrap(m, b.o.Unwrap)
	}
}

func readAttributes(in map[string]types.MessageAttributeValue) map[string]string {
	if len(in) == 0 {
		return nil
	}
	as := make(map[string]string, len(in))
	for name, v := range in {
		switch {
		case deref(v.DataType) == typeEmpty:
			as[name] = ""
		case v.StringValue != nil:
			as[name] = *v.StringValue
		default:
			as[name] = string(v.BinaryValue)
		}
	}
	return as
}

// readMeta takes our attribute out of the user's, and the body out of its encoding. What cannot be read is left as it came.
func readMeta(m *broker.Message) {
	text, ok := m.Attributes[broker.MetaAttribute]
	if !ok {
		return
	}
	meta, err := broker.DecodeMeta(text)
	if err == nil {
		err = decodeBody(m, meta.BodyEncoding)
	}
	if err != nil {
		m.MetaErr = err
		return
	}
	delete(m.Attributes, broker.MetaAttribute)
	if len(m.Attributes) == 0 {
		m.Attributes = nil
	}
	if text == markOnly {
		// The message was sent without metadata; the mark came with its body.
		return
	}
	meta.BodyEncoding = ""
	m.Meta = meta
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

// matches compares without an allocation; the checksum guards against damage, not against an enemy.
func matches(body, sum string) bool {
	if len(sum) != 2*md5.Size {
		return false
	}
	have := md5.Sum([]byte(body))
	var text [2 * md5.Size]byte
	hex.Encode(text[:], have[:])
	return string(text[:]) == sum
}
