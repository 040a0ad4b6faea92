// Package tablequeue is what drivers of queues in a table have in common, whatever the database:
// what is allowed, how a message becomes a row and a row a message, what a receipt says, and when a
// waiting receive looks.
package tablequeue

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/onceq/onceq/broker"
)

// This file owns the numbers of such a queue, and what may stand in its options and calls. A driver
// completes its Settings once, in New; nothing changes afterwards, so nothing is locked.

// The calls, as errors name them.
const (
	CallSend    = "Send"
	CallReceive = "Receive"
	CallAck     = "Ack"
	CallNack    = "Nack"
	CallExtend  = "Extend"
)

const (
	// ReceiveBatch, SettleBatch and SendBatch are the most entries of a call.
	ReceiveBatch = 100
	SettleBatch  = 100
	SendBatch    = 1000
	// MinHold and MaxHold bound a timeout.
	MinHold, MaxHold = 100 * time.Millisecond, 12 * time.Hour
	// Longest is the longest delay: years, and no overflow.
	Longest = 10 * 365 * 24 * time.Hour
	// MaxCount is where counting stops: a backlog of millions must not cost more than its first
	// part.
	MaxCount = 100_000
	// MaxPeek bounds one answer.
	MaxPeek = 1000

	defaultVisibility = 30 * time.Second
	defaultPoll       = 100 * time.Millisecond
	defaultMaxBody    = 1 << 20

	minPoll, maxPoll = 5 * time.Millisecond, 10 * time.Second
	maxWait          = 20 * time.Second
	maxBody          = 64 << 20
	maxReceives      = 1_000_000
	// maxAttributes is no limit of a database's.
	maxAttributes = 100
	// maxBeside is the most bytes of attributes and metadata, each.
	maxBeside = 1 << 20
	// maxQueue and maxGroup keep an entry of the group's index within the 2,704 bytes that a B-tree
	// of PostgreSQL takes.
	maxQueue, maxGroup = 255, 1024
)

// Settings are what the options of such a queue say, and who says it.
type Settings struct {
	// Driver is what errors begin with, Database whose text it is.
	Driver, Database string

	Visibility, Poll     time.Duration
	MaxBody, MaxReceives int
	DeadLetters          string
}

// Complete fills in the defaults and refuses the rest, for the queue of that name.
func (s Settings) Complete(queue string) (Settings, error) {
	if err := s.checkQueue("New", queue); err != nil {
		return s, err
	}
	s.Visibility = cmp.Or(s.Visibility, defaultVisibility)
	s.Poll = cmp.Or(s.Poll, defaultPoll)
	s.MaxBody = cmp.Or(s.MaxBody, defaultMaxBody)
	var err error
	switch {
	case s.Visibility < MinHold || s.Visibility > MaxHold:
		err = fmt.Errorf("Options.Visibility: %v is not within %v and %v%s", s.Visibility, MinHold, MaxHold, unitHint(s.Visibility, MinHold))
	case s.Poll < minPoll || s.Poll > maxPoll:
		err = fmt.Errorf("Options.Poll: %v is not within %v and %v%s", s.Poll, minPoll, maxPoll, unitHint(s.Poll, minPoll))
	case s.MaxBody < 0 || s.MaxBody > maxBody:
		err = fmt.Errorf("Options.MaxBody: %d is not within 1 and %d", s.MaxBody, maxBody)
	case s.MaxReceives < 0 || s.MaxReceives > maxReceives:
		err = fmt.Errorf("Options.MaxReceives: %d is not within 0 and %d", s.MaxReceives, maxReceives)
	case s.MaxReceives == 0 && s.DeadLetters != "":
		err = fmt.Errorf("Options.MaxReceives: 0, which moves nothing to the queue %q of Options.DeadLetters; set it, to 10 for instance", s.DeadLetters)
	case s.MaxReceives > 0 && s.DeadLetters == "":
		err = errors.New("Options.DeadLetters: empty; it names the queue that takes what was received Options.MaxReceives times")
	case s.MaxReceives > 0 && s.DeadLetters == queue:
		err = fmt.Errorf("Options.DeadLetters: %q is the queue itself", queue)
	}
	if err != nil {
		return s, fmt.Errorf("%s: %w", s.Driver, err)
	}
	if s.MaxReceives > 0 {
		return s, s.checkQueue("Options.DeadLetters", s.DeadLetters)
	}
	return s, nil
}

// unitHint asks about durations that were written without their unit.
func unitHint(d, least time.Duration) string {
	if d > 0 && d < least && d < time.Microsecond {
		return "; is its unit missing?"
	}
	return ""
}

// checkQueue refuses a queue's name that the table cannot hold.
func (s *Settings) checkQueue(field, name string) error {
	switch {
	case name == "":
		return fmt.Errorf("%s: %s: the queue's name is empty", s.Driver, field)
	case len(name) > maxQueue:
		return fmt.Errorf("%s: %s: the queue's name has %d bytes, the limit is %d", s.Driver, field, len(name), maxQueue)
	}
	if why := notText(name); why != "" {
		return fmt.Errorf("%s: %s: the queue's name %q has %s, which %s's text cannot hold", s.Driver, field, name, why, s.Database)
	}
	return nil
}

// notText says what of s a database's text cannot hold; empty when it can.
func notText(s string) string {
	switch {
	case strings.IndexByte(s, 0) >= 0:
		return "a NUL"
	case !utf8.ValidString(s):
		return "bytes that are not UTF-8"
	}
	return ""
}

// Limits says what the queue can do.
func (s *Settings) Limits() broker.Limits {
	return broker.Limits{
		ReceiveBatch: ReceiveBatch, SettleBatch: SettleBatch, SendBatch: SendBatch,
		MinHold: MinHold, MaxHold: MaxHold,
		MaxNack: Longest, MaxDelay: Longest, MaxWait: maxWait,
		MaxBody: s.MaxBody, MaxAttributes: maxAttributes,
		Attempts: true, OrderedGroups: true, Extends: true, Durable: true,
	}
}

// CompleteReceive checks o and puts the defaults in.
func (s *Settings) CompleteReceive(o *broker.ReceiveOptions) error {
	o.Visibility = cmp.Or(o.Visibility, s.Visibility)
	switch {
	case o.Max < 1 || o.Max > ReceiveBatch:
		return Unsupported("a Max of %d; it is within 1 and %d", o.Max, ReceiveBatch)
	case o.Wait > maxWait:
		return Unsupported("a Wait of %v; it is at most %v", o.Wait, maxWait)
	case o.Visibility < MinHold || o.Visibility > MaxHold:
		return Unsupported("a Visibility of %v; it is within %v and %v", o.Visibility, MinHold, MaxHold)
	}
	if o.Wait < 0 {
		o.Wait = maxWait
	}
	return nil
}

// CheckPeek refuses a number of messages that Peek does not show.
func CheckPeek(n int) error {
	if n < 1 || n > MaxPeek {
		return Unsupported("%d messages; it shows 1 to %d", n, MaxPeek)
	}
	return nil
}

// Unsupported is an ErrUnsupported that says what was asked.
func Unsupported(format string, args ...any) error {
	return fmt.Errorf("%w: %s", broker.ErrUnsupported, fmt.Sprintf(format, args...))
}
