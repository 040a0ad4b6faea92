package dlq

import (
	"strings"
	"time"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/letter"
)

// Filter chooses the letters that meet all of its fields. The zero Filter chooses all.
type Filter struct {
	// Class is the failure's class, such as "permanent"; [Unexplained] for letters that do not say.
	Class string
	// Group is the fingerprint of the failure, as [Group].Group has it: 8 hex digits, such as
	// "a41f09c2". See [Fingerprint].
	Group string
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
	case f.Group != "" && !isGroup(f.Group):
		return bad(of+".Group", "%q is not a group, which is 8 hex digits in lower case, such as a41f09c2", letter.Cut(f.Group, 40))
	case !f.Since.IsZero() && !f.Until.IsZero() && !f.Since.Before(f.Until):
		return bad(of+".Since", "%v is not before %s.Until, %v", f.Since, of, f.Until)
	case f.Max < 0:
		return bad(of+".Max", "%d is negative", f.Max)
	}
	return nil
}

// isZero reports whether the filter chooses all.
func (f *Filter) isZero() bool {
	return f.Class == "" && f.Group == "" && f.Type == "" && f.Key == "" && f.Source == "" && f.Since.IsZero() && f.Until.IsZero() && f.Match == nil
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
	case f.Group != "" && f.Group != groupOf(m):
	default:
		return f.Match == nil || f.Match(m)
	}
	return false
}

// isGroup reports whether s could be a Fingerprint.
func isGroup(s string) bool {
	return len(s) == 8 && hexRun(s) == 8 && strings.ToLower(s) == s
}
