package awssqs

import (
	"crypto/md5" //nolint:gosec // what SQS answers; it guards against damage, not against an enemy
	"encoding/hex"

	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/sqswire"
)

// read fills m with what in says, but for the body.
func (b *Broker) read(m *broker.Message, in *types.Message) {
	m.ID = deref(in.MessageId)
	m.Receipt = broker.Receipt(deref(in.ReceiptHandle))
	sqswire.ReadSystem(m, in.Attributes)
	ours, ok := in.MessageAttributes[broker.MetaAttribute]
	m.Attributes = readAttributes(in.MessageAttributes, ok)
	b.opener.Read(m, valueOf(ours), ok)
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
	return sqswire.Value(deref(v.DataType), v.StringValue, v.BinaryValue)
}

// intact reports whether the body is the one that SQS has sent.
func intact(m *types.Message, body []byte) bool {
	return m.MD5OfBody == nil || matches(body, *m.MD5OfBody)
}

func matches(body []byte, sum string) bool {
	if len(sum) != 2*md5.Size {
		return false
	}
	have := md5.Sum(body) //nolint:gosec // see the import
	var text [2 * md5.Size]byte
	hex.Encode(text[:], have[:])
	return string(text[:]) == sum
}
