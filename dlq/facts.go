package dlq

import (
	"cmp"
	"time"

	"github.com/onceq/onceq/broker"
)

// This file owns what a letter says of its job, whatever is missing in it. The other files ask it;
// nothing is kept here.

// Unexplained is the class, in groups and filters, of letters that do not say why they are dead.
// There are two kinds of them: those that the queue's own redrive has moved, and those that were
// too large for our metadata.
const Unexplained = "unexplained"

// RecordKey names the record of a job in a store. It can be converted into a dedupe.Key.
type RecordKey struct{ Scope, Key string }

// failedAt is when the job failed, or, where the letter does not say, when the broker took it.
func failedAt(m *broker.Message) time.Time {
	if d := deadOf(m.Meta); d != nil && !d.At.IsZero() {
		return d.At
	}
	return m.Published
}

func classOf(m *broker.Message) string {
	if d := deadOf(m.Meta); d != nil {
		return cmp.Or(d.Class, Unexplained)
	}
	return Unexplained
}

// groupOf is the fingerprint of the letter's failure.
func groupOf(m *broker.Message) string { return Fingerprint(classOf(m), lastErrOf(m.Meta)) }

func lastErrOf(m *broker.Meta) string {
	if d := deadOf(m); d != nil {
		return d.LastErr
	}
	return ""
}

func recordOf(m *broker.Meta) RecordKey {
	if d := deadOf(m); d != nil {
		return RecordKey{d.Scope, d.Key}
	}
	return RecordKey{}
}

func refOf(m *broker.Message) Ref {
	return Ref{
		MessageID: m.ID, Source: sourceOf(m.Meta), Type: typeOf(m.Meta), Key: keyOf(m.Meta),
		Class: classOf(m), Fence: fenceOf(m.Meta), Record: recordOf(m.Meta),
	}
}

func deadOf(m *broker.Meta) *broker.Letter {
	if m == nil {
		return nil
	}
	return m.Dead
}

func fenceOf(m *broker.Meta) uint64 {
	if d := deadOf(m); d != nil {
		return d.Fence
	}
	return 0
}

func sourceOf(m *broker.Meta) string {
	if d := deadOf(m); d != nil {
		return d.Source
	}
	return ""
}

func typeOf(m *broker.Meta) string {
	if m == nil {
		return ""
	}
	return m.Type
}

// keyOf is the key that a worker would claim, unless its ProcessorConfig.Key says otherwise.
func keyOf(m *broker.Meta) string {
	if m == nil {
		return ""
	}
	return cmp.Or(m.Key, m.ID)
}
