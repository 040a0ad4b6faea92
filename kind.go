package onceq

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/values"
)

// Kind declares a kind of job in one place: its type, its payload T, which travels as JSON, its key
// and its options. Producers send with it, and workers handle with it, so that the two cannot
// disagree:
//
//	var Mail = onceq.Kind[mail]{Type: "mail", Key: func(m mail) string { return m.ID }}
//
//	err := Mail.Send(ctx, queue, mail{ID: "7", To: "ada@example.com"}) // the producer
//
//	var mux onceq.Mux // the worker
//	Mail.On(&mux, func(ctx context.Context, j *onceq.Job, m mail) error { … })
//
// A Kind is a value without state: it may be copied, and used by many goroutines.
type Kind[T any] struct {
	// Type is the name of the kind. It travels as Meta.Type, and picks the handler. Required; at
	// most some 190 bytes, because the scope of its keys is the worker's Scope, a ':' and Type, and
	// a scope has at most 255 bytes.
	Type string
	// Key makes the idempotency key of a payload: what the job is about, such as an order's number.
	// Payloads with one key are one job, whoever sends them and how often. At most 512 bytes of
	// UTF-8, and not empty. nil = each message is a job of its own; [Kind.Send] refuses that.
	Key func(v T) string
	// Options say how jobs of this kind are run. The zero value = the worker's Defaults. A kind
	// that takes the place of a single handler, or of a type with another name, needs Options.Was,
	// or its jobs may be done again: see [Mux].
	Options JobOptions
}

// Message makes the message of one job, with all that [Send] would fill in. Send it with [Send], or
// store it in an outbox. Sent once more, it is the same job. What the Kind does not say may be set
// in it: Group, Delay, Attributes, Meta.NotBefore, Meta.Expires. Message fails where Type is empty,
// where Key answers no key or one that no store takes, and where v does not encode.
func (k Kind[T]) Message(v T) (broker.Outgoing, error) {
	m, err := k.message(v)
	if err != nil {
		return m, err
	}
	one := [1]broker.Outgoing{m}
	if err := Fill(one[:]); err != nil {
		return broker.Outgoing{}, fmt.Errorf("%w (of Kind %q)", err, k.Type)
	}
	return one[0], nil
}

func (k Kind[T]) message(v T) (m broker.Outgoing, err error) {
	if k.Type == "" {
		return m, badConfig("Kind.Type", "is empty")
	}
	key := ""
	if k.Key != nil {
		if key = k.Key(v); key == "" {
			return m, badConfig("Kind.Key", "answers no key for a payload of kind %q; where each message is a job of its own, leave it nil, and send with Kind.Message and Send", k.Type)
		}
	}
	body, err := json.Marshal(v)
	if err != nil {
		return m, fmt.Errorf("onceq: a payload of kind %q does not encode: %w", k.Type, err)
	}
	return Message(k.Type, key, body), nil
}

// Send sends a job for each payload, as the function [Send] does. Its error answers by position, as
// a [*broker.BatchError]. After any other error nothing was sent: that one tells of a mistake in
// the Kind or in a payload.
//
// Send needs Key, so that the same payloads, sent again after an error, are the same jobs. Without
// Key they would be new jobs. Make messages with [Kind.Message] then, and send the same messages
// again.
func (k Kind[T]) Send(ctx context.Context, s broker.Sender, vs ...T) error {
	return k.SendAt(ctx, s, time.Time{}, vs...)
}

// SendAt is Send for jobs that may not start before a time: their Meta.NotBefore. The zero time is
// at once. Not every queue can keep a job for as long as one likes: see [broker.Meta].NotBefore. A
// second SendAt with another time sends the same jobs, because their keys are the same. The one
// that is received first when it is due runs.
func (k Kind[T]) SendAt(ctx context.Context, s broker.Sender, at time.Time, vs ...T) error {
	if k.Key == nil {
		return badConfig("Kind.Key", "is nil: a second Send after an error would send other jobs; set it, or use Kind.Message and Send")
	}
	ms := make([]broker.Outgoing, len(vs))
	for i, v := range vs {
		var err error
		if ms[i], err = k.message(v); err != nil {
			return fmt.Errorf("%w (payload %d)", err, i)
		}
		if at.IsZero() || values.IsNil(s) {
			continue
		}
		ms[i].Meta.NotBefore = at
		// What the queue hides by itself costs no receive.
		ms[i].Delay = max(0, min(time.Until(at), s.Limits().MaxDelay, plainDelay))
	}
	return Send(ctx, s, ms)
}

// On makes f the Mux's handler of this kind, with Options. f is called as the function of a [JSON]
// handler is: a body that does not decode into a T fails the job for good, class "decode".
// NewProcessor answers mistakes, as it does those of [Mux.On].
//
// For a handler whose result is to be kept, use Mux.On(k.Type, JSONResult(f), &k.Options).
func (k Kind[T]) On(m *Mux, f func(ctx context.Context, j *Job, v T) error) {
	o := k.Options
	m.On(k.Type, JSON(f), &o)
}
