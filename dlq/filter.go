package dlq

import (
	"cmp"
	"time"

	"github.com/onceq/onceq/broker"
)

// Unexplained is the class, in groups and filters, of letters that do not say why they are dead.
// There are two kinds of them: those that the queue's own redrive has moved, and those that were
// too large for our metadata.
const Unexplained = "unexplained"

// Filter chooses the letters that meet all of its fields. The zero Filter chooses all.
type Filter struct {
	// Class is the failure's class, such as "permanent"; [Unexplained] for letters that do not say.
	Class string
	// Type is the job's type.
	Type string
	// Key is the job's idempotency key, or its id where it has no key of its own.
	Key string
	// Source is the scope of the worker that put the letter and, where its queue has a name, a ':'
	// and that name.
	Source string
	// Since and Until bound when the job failed: at Since or later, and before Until. Where a
	// letter does not say when, the time counts at which the broker took it. Zero = no bound. Since
	// must be before Until.
	Since, Until time.Time
	// Match, when set, is asked last, in the goroutine of the call. It must not change the message.
	Match func(*broker.Message) bool
	// Max is how many letters are chosen at most, copies not counted. 0 = no limit. Only List then
	// stops at [DefaultMaxListed], 1,000, and its error is [ErrIncomplete] when there are more.
	Max int
}

func (f *Filter) check(of string) error {
	switch {
	case !f.Since.IsZero() && !f.Until.IsZero() && !f.Since.Before(f.Until):
		return bad(of+".Since", "%v is not before %s.Until, %v", f.Since, of, f.Until)
	case f.Max < 0:
		return bad(of+".Max", "%d is negative", f.Max)
	}
	return nil
}

// isZero reports whether the filter chooses all.
func (f *Filter) isZero() bool {
	return f.Class == "" && f.Type == "" && f.Key == "" && f.Source == "" && f.Since.IsZero() && f.Until.IsZero() && f.Match == nil
}

func (f *Filter) chooses(m *broker.Message) bool {
	at := failedAt(m)
	switch {
	case f.Class != "" && f.Class != classOf(m):
	case f.Type != "" && f.Type != typeOf(m.Meta):
	case f.Key != "" && f.Key != keyOf(m.Meta):
	case f.Source != "" && f.Source != sourceOf(m.Meta):
	case !f.Since.IsZero() && at.Before(f.Since):
	case !f.Until.IsZero() && !at.Before(f.Until):
	default:
		return f.Match == nil || f.Match(m)
	}
	return false
}

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

func deadOf(m *broker.Meta) *broker.Dead {
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
