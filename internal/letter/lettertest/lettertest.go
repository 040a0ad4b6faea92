// Package lettertest has the messages that the tests of letters make letters of. The letters in
// dlq/testdata were made of them, so they stay as they are.
package lettertest

import (
	"errors"
	"time"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/letter"
)

// When the message was published, and when its job failed.
var (
	Published = time.UnixMilli(1764000000000)
	Failed    = time.UnixMilli(1764000060000)
)

// Key is the key of the message's job.
func Key() letter.Key { return letter.Key{Scope: "payments", Key: "order-7"} }

// Dead is how the job ended.
func Dead() broker.Letter {
	return broker.Letter{
		Fence: 41, Class: "permanent", FirstErr: "first", LastErr: "last", Attempts: 3, Source: "payments", At: Failed,
	}
}

// Message has all that a letter may carry.
func Message() *broker.Message {
	return &broker.Message{
		ID: "m-1", Body: []byte("995 cents"), Attributes: map[string]string{"tenant": "acme", "traceparent": "00-1-2-01"},
		Meta: &broker.Meta{
			ID: "j-1", Type: "charge", Key: "order-7", CorrelationID: "r-1", Created: Published, MaxAttempts: 3,
			Version: 2, Extra: `"new":true`,
		},
		Receipt: "r", Attempt: 3, Group: "acme", Published: Published, Deadline: Failed,
	}
}

// Foreign is a message of a producer that does not use onceq.
func Foreign() *broker.Message {
	m := Message()
	m.Meta = nil
	return m
}

// Unreadable is a message whose metadata cannot be read.
func Unreadable() *broker.Message {
	m := Foreign()
	m.MetaErr = errors.New("bad")
	m.Attributes[broker.MetaAttribute] = `{"v":0}`
	return m
}
