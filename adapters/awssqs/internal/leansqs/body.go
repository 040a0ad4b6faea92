package leansqs

import (
	"strconv"

	"github.com/aws/aws-sdk-go-v2/service/sqs"
)

// This file owns the bodies of receives, deletes and changes of visibility. They are what the SDK's
// serializer writes. A call uses it in its own goroutine. It knows plain texts only: at any other
// it gives up, and the SDK writes the body. makePlan compares one body with the SDK's.

// writer appends a body. Once odd it stays odd.
type writer struct {
	b   []byte
	odd bool
}

// plain is the body, nil where the SDK has to write it.
func (w *writer) plain() []byte {
	if w.odd {
		return nil
	}
	return w.b
}

func (w *writer) put(s string) { w.b = append(w.b, s...) }

func (w *writer) number(n int32) { w.b = strconv.AppendInt(w.b, int64(n), 10) }

// text appends a text that nobody escapes.
func (w *writer) text(s *string) {
	if s == nil {
		w.odd = true
		return
	}
	for i := range len(*s) {
		switch c := (*s)[i]; {
		case c < ' ', c > '~', c == '"', c == '\\', c == '<', c == '>', c == '&':
			w.odd = true
			return
		}
	}
	w.b = append(w.b, '"')
	w.b = append(w.b, *s...)
	w.b = append(w.b, '"')
}

// texts appends a member that is a list, none where the list is nil.
func texts[T ~string](w *writer, name string, list []T) {
	if list == nil {
		return
	}
	w.put(`,"` + name + `":[`)
	for i, t := range list {
		if i > 0 {
			w.put(",")
		}
		s := string(t)
		w.text(&s)
	}
	w.put("]")
}

// receiveBody writes a wait of 0 as well: see ZeroWait.
func receiveBody(in *sqs.ReceiveMessageInput) []byte {
	w := &writer{b: make([]byte, 0, 512)}
	//lint:ignore SA1019 a caller who sets the old one gets it
	w.odd = in.AttributeNames != nil || in.MaxNumberOfMessages == 0 || in.VisibilityTimeout == 0
	w.put(`{"MaxNumberOfMessages":`)
	w.number(in.MaxNumberOfMessages)
	texts(w, "MessageAttributeNames", in.MessageAttributeNames)
	texts(w, "MessageSystemAttributeNames", in.MessageSystemAttributeNames)
	w.put(`,"QueueUrl":`)
	w.text(in.QueueUrl)
	if in.ReceiveRequestAttemptId != nil {
		w.put(`,"ReceiveRequestAttemptId":`)
		w.text(in.ReceiveRequestAttemptId)
	}
	w.put(`,"VisibilityTimeout":`)
	w.number(in.VisibilityTimeout)
	w.put(`,"WaitTimeSeconds":`)
	w.number(in.WaitTimeSeconds)
	w.put("}")
	return w.plain()
}

func deleteBody(in *sqs.DeleteMessageBatchInput) []byte {
	w := batchWriter(len(in.Entries), func(i int) *string { return in.Entries[i].ReceiptHandle })
	for i := range in.Entries {
		e := &in.Entries[i]
		w.entry(i, e.Id, e.ReceiptHandle)
		w.put("}")
	}
	return w.batch(in.QueueUrl)
}

func changeBody(in *sqs.ChangeMessageVisibilityBatchInput) []byte {
	w := batchWriter(len(in.Entries), func(i int) *string { return in.Entries[i].ReceiptHandle })
	for i := range in.Entries {
		e := &in.Entries[i]
		w.entry(i, e.Id, e.ReceiptHandle)
		w.put(`,"VisibilityTimeout":`)
		w.number(e.VisibilityTimeout)
		w.put("}")
	}
	return w.batch(in.QueueUrl)
}

// batchWriter begins a batch's body, with room for all of it.
func batchWriter(n int, receipt func(i int) *string) *writer {
	room := 256
	for i := range n {
		if r := receipt(i); r != nil {
			room += len(*r) + 64
		}
	}
	w := &writer{b: make([]byte, 0, room), odd: n == 0}
	w.put(`{"Entries":[`)
	return w
}

// entry begins an entry.
func (w *writer) entry(i int, id, receipt *string) {
	if i > 0 {
		w.put(",")
	}
	w.put(`{"Id":`)
	w.text(id)
	w.put(`,"ReceiptHandle":`)
	w.text(receipt)
}

// batch ends a batch's body.
func (w *writer) batch(queue *string) []byte {
	w.put(`],"QueueUrl":`)
	w.text(queue)
	w.put("}")
	return w.plain()
}
