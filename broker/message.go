package broker

import (
	"log/slog"
	"maps"
	"strings"
	"time"
)

// This file owns the values that cross the contract: messages, metadata and letters, and the
// options of a receive. Drivers fill a Message and read an Outgoing, and all above them does the
// reverse. Nothing is locked: a value belongs to whoever holds it. broker.go has the interfaces.

// MetaAttribute is the one message attribute in which a driver carries a [Meta].
const MetaAttribute = "onceq"

// TraceAttribute is the message attribute of the W3C trace context. It is one of the
// user's attributes: onceq carries it and never reads it.
const TraceAttribute = "traceparent"

// Receipt settles one delivery of a message: an ack, a nack or an extension names it. It
// is a bearer token, new in each delivery, and is shortened when logged.
type Receipt string

// LogValue shortens the receipt to at most half of it and eight bytes, so that a log never
// holds one that could be used.
func (r Receipt) LogValue() slog.Value {
	shown := string(r[:min(8, len(r)/2)])
	if r != "" {
		shown = strings.ToValidUTF8(shown, "") + "…"
	}
	return slog.StringValue(shown)
}

// Message is one delivery of a message.
type Message struct {
	// ID names the message; it is the same in every delivery. A replay or a redrive by
	// the broker gives the same job a new ID, so it is never an idempotency key.
	ID string
	// Body is the user's own bytes. The receiver owns it.
	Body []byte
	// Attributes are the user's, never ours; nil when there are none. The receiver owns them.
	Attributes map[string]string
	// Meta is the job's metadata. It is nil for a message of a producer that does not use
	// onceq, and when MetaErr is set.
	Meta *Meta
	// MetaErr says why our own metadata could not be read. Such a message is
	// dead-lettered; its metadata attribute is then left among Attributes, as it came.
	MetaErr error
	// Receipt settles this delivery.
	Receipt Receipt
	// Attempt is the broker's count of deliveries, from 1. 0 means that the broker does not
	// count. It is a hint for people; nothing that must be right depends on it.
	Attempt int
	// Group is the message group (SQS) or ordering key (Pub/Sub); empty when there is none.
	Group string
	// Published is when the broker took the message; zero when it does not say.
	Published time.Time
	// Deadline is when the broker will deliver the message again, unless it is settled or
	// extended before. It errs on the early side.
	Deadline time.Time
}

// Meta is the job's metadata, written by onceq's sender and carried beside the body in one
// attribute. See [EncodeMeta] for its form.
type Meta struct {
	// ID names the job. It stays the same when the send is retried and when the job's
	// dead letter is replayed.
	ID string
	// Type picks the handler under a Mux; empty when there is one handler.
	Type string
	// Key is the idempotency key; empty means that ID is.
	Key string
	// CorrelationID is for logs and traces: it joins what one request or job has caused. Where it
	// is empty onceq.Send sets it, unless the message is larger than half of what the queue takes.
	CorrelationID string
	// Created is when the job was made. Times travel in milliseconds.
	Created time.Time
	// NotBefore is when the job may start at the earliest; zero = at once.
	//
	// The message waits in its queue until then, so it cannot wait for longer than the queue keeps
	// messages (SQS: 4 days unless set, 14 at most; Pub/Sub: 7 unless set, 31 at most), nor for
	// more receives than the queue's own redrive allows (SQS one each 12 h, Pub/Sub one each 10
	// min). A Worker that knows these settings, and may, sends such a message anew in time. Where
	// it may not, it refuses a later job at its first receive: a dead letter of class "too-early",
	// which says from when on it can be sent. A batch does not know them. Queues in PostgreSQL and
	// SQLite keep messages for ever.
	NotBefore time.Time
	// Expires is when the job is no longer worth starting; zero = never. An expired job is
	// dead-lettered, not dropped.
	Expires time.Time
	// Postponed is when a job that its handler has postponed goes on. A worker sets it in a message
	// that it has sent anew, because its queue could not delay the first one for as long. It bounds
	// nothing: a worker may start the job earlier, and the handler then says again how long it
	// waits. A replay of a dead letter drops it.
	Postponed time.Time
	// MaxAttempts is how often the handler may start: 0 = the worker's setting, 1 = never
	// retried, < 0 = unlimited.
	MaxAttempts int
	// Timeout bounds one run of the handler; 0 = the worker's setting, else at least 1 ms. It
	// travels in milliseconds, rounded up.
	Timeout time.Duration
	// BodyEncoding is "base64" while a body that the service cannot carry travels encoded. A
	// driver sets and undoes it; it is empty in every message that a driver hands out.
	BodyEncoding string
	// Dead is set on a dead letter and on its replay.
	Dead *Letter
	// Version is the version of the form that a newer onceq wrote; 0 = this one's own. It
	// is kept, with Extra, so that a replay loses nothing.
	Version int
	// Extra holds the members that a newer version of onceq wrote and this one does not
	// know: a run of JSON members without the braces, as they came.
	Extra string
}

// Clone returns a copy of m that shares nothing with it that can change; nil for nil.
func (m *Meta) Clone() *Meta {
	if m == nil {
		return nil
	}
	c := *m
	if m.Dead != nil {
		d := *m.Dead
		d.Attributes = maps.Clone(d.Attributes)
		c.Dead = &d
	}
	return &c
}

// Letter says why a message became a dead letter.
type Letter struct {
	// Fence is the claim that failed. A replay may reopen exactly that failure, once. 0 never
	// reopens.
	Fence uint64
	// Class is the failure's class, such as "permanent" or "attempts".
	Class string
	// FirstErr and LastErr are the texts of the job's first and last failure.
	FirstErr, LastErr string
	// Attempts is how often the handler had been started.
	Attempts int
	// Saved is the name of the step that the job had saved last, as far as its last run has told;
	// empty = none.
	Saved string
	// Source is the scope of the worker that put the letter and, where the worker's queue has a
	// name, a ':' and that name.
	Source string
	// Scope and Key name the record of the job in the worker's store, as the worker claimed it, or
	// would have. Key differs from the message's Meta.Key where the worker takes its keys from
	// elsewhere, and Scope from Source under a Mux. Both are empty in a letter of a message whose
	// key the worker could not tell, and in letters of older versions.
	Scope, Key string
	// At is when the job failed.
	At time.Time
	// Attributes are the user's, where the dead-letter queue had no room for them beside our
	// own; a replay gives them back their places.
	Attributes map[string]string
	// Signature tells that a worker put the letter, where workers have keys for that; empty = not
	// signed.
	Signature string
	// Extra holds the members that a newer version wrote, as in [Meta].
	Extra string
}

// Outgoing is a message to send.
type Outgoing struct {
	Body       []byte
	Attributes map[string]string // the user's
	Meta       *Meta
	// Group orders messages where the broker can; see [Limits].
	Group string
	// DedupID is the broker's own deduplication id (SQS FIFO). Drivers without one ignore it.
	DedupID string
	// Delay hides the message at first, at most [Limits].MaxDelay. A longer one is
	// [Meta].NotBefore's business.
	Delay time.Duration
}

// Hold is an entry of Nack, where the message is hidden For and then delivered again, and
// of Extend, where it is hidden For from now.
type Hold struct {
	Receipt Receipt
	For     time.Duration
}

// ReceiveOptions bound one receive.
type ReceiveOptions struct {
	// Max is how many messages to bring at most, 1..[Limits].ReceiveBatch.
	Max int
	// Wait is how long to wait for the first message: 0 = do not wait, < 0 = the driver's
	// longest.
	Wait time.Duration
	// Visibility is how long the messages stay hidden at first: 0 = the queue's own setting.
	// A driver that cannot choose ignores it; Deadline tells what holds.
	Visibility time.Duration
}
