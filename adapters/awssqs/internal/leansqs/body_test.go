package leansqs

import (
	"reflect"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

// A receive and a batch as the driver sends them are written here. What is unusual is left to the
// SDK.
func TestBodies(t *testing.T) {
	receive := func(set func(*sqs.ReceiveMessageInput)) []byte {
		in := &sqs.ReceiveMessageInput{QueueUrl: new("https://q/1"), MaxNumberOfMessages: 10, VisibilityTimeout: 30}
		set(in)
		return receiveBody(in)
	}
	remove := func(set func(*sqs.DeleteMessageBatchInput)) []byte {
		in := &sqs.DeleteMessageBatchInput{QueueUrl: new("https://q/1"), Entries: []types.DeleteMessageBatchRequestEntry{
			{Id: new("0"), ReceiptHandle: new("AQEB+/=")},
		}}
		set(in)
		return deleteBody(in)
	}
	for name, c := range map[string]struct {
		body []byte
		own  bool
	}{
		"receive":     {receive(func(*sqs.ReceiveMessageInput) {}), true},
		"attempt":     {receive(func(in *sqs.ReceiveMessageInput) { in.ReceiveRequestAttemptId = new("a") }), true},
		"odd attempt": {receive(func(in *sqs.ReceiveMessageInput) { in.ReceiveRequestAttemptId = new("ä") }), false},
		"old names": {receive(func(in *sqs.ReceiveMessageInput) {
			//lint:ignore SA1019 a caller who sets them gets them
			in.AttributeNames = []types.QueueAttributeName{"All"}
		}), false},
		"no maximum":      {receive(func(in *sqs.ReceiveMessageInput) { in.MaxNumberOfMessages = 0 }), false},
		"no visibility":   {receive(func(in *sqs.ReceiveMessageInput) { in.VisibilityTimeout = 0 }), false},
		"no queue":        {receive(func(in *sqs.ReceiveMessageInput) { in.QueueUrl = nil }), false},
		"delete":          {remove(func(*sqs.DeleteMessageBatchInput) {}), true},
		"no entries":      {remove(func(in *sqs.DeleteMessageBatchInput) { in.Entries = nil }), false},
		"no receipt":      {remove(func(in *sqs.DeleteMessageBatchInput) { in.Entries[0].ReceiptHandle = nil }), false},
		"receipt's quote": {remove(func(in *sqs.DeleteMessageBatchInput) { in.Entries[0].ReceiptHandle = new(`"`) }), false},
	} {
		if own := c.body != nil; own != c.own {
			t.Errorf("%s: written here: %v; want %v", name, own, c.own)
		}
	}
}

// An SDK that knows a new field is seen: the bodies have to write it, or to leave it to the SDK.
func TestBodyFields(t *testing.T) {
	for _, c := range []struct {
		of   any
		want int
	}{
		{sqs.ReceiveMessageInput{}, 9},
		{sqs.DeleteMessageBatchInput{}, 3},
		{types.DeleteMessageBatchRequestEntry{}, 3},
		{sqs.ChangeMessageVisibilityBatchInput{}, 3},
		{types.ChangeMessageVisibilityBatchRequestEntry{}, 4},
	} {
		if have := reflect.TypeOf(c.of).NumField(); have != c.want {
			t.Errorf("%T has %d fields; the bodies know %d", c.of, have, c.want)
		}
	}
}
