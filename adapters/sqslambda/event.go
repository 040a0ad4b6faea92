package sqslambda

import (
	"errors"
	"fmt"
	"strings"

	"github.com/aws/aws-lambda-go/events"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/sqswire"
)

// check refuses what is no event of an SQS queue, because it would be lost if it were answered as
// done. Some services' events, such as Firehose's, have records with nothing that fits, and no
// source.
func check(rs []events.SQSMessage) error {
	if len(rs) == 0 {
		return errors.New("sqslambda: the event has no records; the function is to be called by an event source mapping of an SQS queue")
	}
	for i := range rs {
		switch s := rs[i].EventSource; {
		case s != "" && s != "aws:sqs":
			return fmt.Errorf("sqslambda: the event comes from %s, not from SQS", s)
		case s == "" && rs[i].MessageId == "" && rs[i].ReceiptHandle == "":
			return fmt.Errorf("sqslambda: record %d of the event is no message of an SQS queue", i)
		}
	}
	return nil
}

// ordered reports whether the order of the records' groups counts. A group on a standard queue is
// the tenant of a fair queue.
func ordered(rs []events.SQSMessage) bool {
	for i := range rs {
		arn := rs[i].EventSourceARN
		if strings.HasSuffix(arn, ".fifo") || arn == "" && rs[i].Attributes["SequenceNumber"] != "" {
			return true
		}
	}
	return false
}

// message makes the contract's message of a record. What cannot be read of the record is said in
// its message, and concerns no other.
func message(r *events.SQSMessage, opener *sqswire.Opener) *broker.Message {
	m := &broker.Message{
		ID: r.MessageId, Receipt: broker.Receipt(r.ReceiptHandle), Body: []byte(r.Body),
		Group: r.Attributes["MessageGroupId"],
	}
	sqswire.ReadSystem(m, r.Attributes)
	ours, ok := r.MessageAttributes[broker.MetaAttribute]
	for name, v := range r.MessageAttributes {
		if name == broker.MetaAttribute {
			continue
		}
		if m.Attributes == nil {
			m.Attributes = make(map[string]string, len(r.MessageAttributes))
		}
		m.Attributes[name] = valueOf(&v)
	}
	opener.Read(m, valueOf(&ours), ok)
	return m
}

func valueOf(v *events.SQSMessageAttribute) string {
	return sqswire.Value(v.DataType, v.StringValue, v.BinaryValue)
}
