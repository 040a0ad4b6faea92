package verdict

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// This file owns three lists: error marks (Permanent, RetryAfter, Unknown), causes with which a run
// is cut off, and recorded texts. onceq's exported functions wrap them. It has no state, and no
// lock.

// The classes that the table and the engine give. Package onceq exports them under its own names.
// TestTexts in internal/arch compares the two lists, and that of package dlq.
const (
	Attempts     = "attempts"
	BadKey       = "bad-key"
	ClaimRefused = "claim-refused"
	Duplicate    = "duplicate"
	Expired      = "expired"
	Mismatch     = "mismatch"
	Result       = "result"
	Unproven     = "unproven"
	Plain        = "error"
	Final        = "permanent"
	Panicked     = "panic"
	TimedOut     = "timeout"
	Unconfirmed  = "lease"
	Interrupted  = "interrupted"
	NotCommitted = "tx-not-committed"
	Postponed    = "postponed"
	Cancelled    = "cancelled"
)

// The causes with which a handler's context ends. The last three are a lost lease. Only ErrTaken
// leaves nothing to settle, because the store has said that the key is another's.
var (
	ErrLeaseLost    = errors.New("onceq: lease lost")
	ErrTimeout      = errors.New("onceq: job timeout")
	ErrDraining     = errors.New("onceq: worker is draining")
	ErrTaken        = fmt.Errorf("%w: the key was claimed by another", ErrLeaseLost)
	ErrUnanswered   = fmt.Errorf("%w: not confirmed before its deadline", ErrLeaseLost)
	ErrDeliveryLost = fmt.Errorf("%w: the message is delivered again", ErrLeaseLost)
)

// ErrCancelled is ErrTaken where the record says that an operator has cancelled the job.
var ErrCancelled error = cancelledError{}

type cancelledError struct{}

func (cancelledError) Error() string { return ErrLeaseLost.Error() + ": the job was cancelled" }
func (cancelledError) Unwrap() error { return ErrTaken }

// ErrNotCommitted is the error where a handler returned nil, but its transaction did not commit.
var ErrNotCommitted = Classed(NotCommitted, "onceq: CompleteTx was called, but the transaction did not commit")

// PermanentError marks an error: repeating the job cannot help.
type PermanentError struct{ Err error }

// Error is the text of the error that is marked.
func (e *PermanentError) Error() string { return e.Err.Error() }

// Unwrap is the error that is marked.
func (e *PermanentError) Unwrap() error { return e.Err }

// RetryError marks an error: the job is tried again after After.
type RetryError struct {
	Err   error
	After time.Duration
}

// Error is the text of the error that is marked.
func (e *RetryError) Error() string { return e.Err.Error() }

// Unwrap is the error that is marked.
func (e *RetryError) Unwrap() error { return e.Err }

// PostponeError marks an error: the job goes on after After, and this run is no attempt.
type PostponeError struct {
	Err   error
	After time.Duration
}

// Error is the text of the error that is marked.
func (e *PostponeError) Error() string { return e.Err.Error() }

// Unwrap is the error that is marked.
func (e *PostponeError) Unwrap() error { return e.Err }

// UnknownError marks an error: the effect may have happened.
type UnknownError struct{ Err error }

// Error is the text of the error that is marked.
func (e *UnknownError) Error() string { return e.Err.Error() }

// Unwrap is the error that is marked.
func (e *UnknownError) Unwrap() error { return e.Err }

// NotBegunError marks an error: what the job is for has not begun. An adapter whose handler waits
// for somebody else to begin answers with it.
type NotBegunError struct {
	Err error
	// IfCut leaves the verdict to Err, unless the handler was cut off, be it in the moment in which
	// it returned. Then nothing is in doubt.
	IfCut bool
}

// Holds reports whether the word counts, where cause has cut the handler off; nil = nothing has.
func (e *NotBegunError) Holds(cause error) bool { return cause != nil || !e.IfCut }

// Error is the text of the error that is marked.
func (e *NotBegunError) Error() string { return e.Err.Error() }

// Unwrap is the error that is marked.
func (e *NotBegunError) Unwrap() error { return e.Err }

// ClassError gives a failure of our own its class.
type ClassError struct {
	Class string
	Err   error
}

// Error is the text of the error that has the class.
func (e *ClassError) Error() string { return e.Err.Error() }

// Unwrap is the error that has the class.
func (e *ClassError) Unwrap() error { return e.Err }

// ErrorClass is the class.
func (e *ClassError) ErrorClass() string { return e.Class }

// Classed makes an error with a class.
func Classed(class, format string, args ...any) error {
	return &ClassError{class, fmt.Errorf(format, args...)}
}

// ClassOf is the class under which err is recorded. The first error in its chain with a method
// ErrorClass() string names it. Otherwise it is "permanent" or "error", and "" for nil. Cancelled
// is an operator's word, by which a message is acked without a letter: no error may say it.
func ClassOf(err error) string {
	if err == nil {
		return ""
	}
	var c interface{ ErrorClass() string }
	if errors.As(err, &c) {
		if class := c.ErrorClass(); class != "" && class != Cancelled {
			return Clip(class, MaxClass)
		}
	}
	var p *PermanentError
	if errors.As(err, &p) {
		return Final
	}
	return Plain
}

// What a store's columns hold of a class and of a text, in bytes.
const (
	MaxClass = 64
	MaxText  = 2048
)

// Clip cuts s at n bytes, at a rune's border, and makes it valid UTF-8 without NUL, because a
// store's text column takes nothing else.
func Clip(s string, n int) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	s = strings.ReplaceAll(s, "\x00", "\uFFFD")
	if len(s) <= n {
		return s
	}
	for n > 0 && s[n]&0xC0 == 0x80 {
		n--
	}
	return s[:n]
}

// LimiterOf is the name of the limiter that has made err, as its method LimitedBy answers; "" = no
// limiter has, or the method panics.
func LimiterOf(err error) (name string) {
	defer func() { _ = recover() }()
	var by interface{ LimitedBy() string }
	if errors.As(err, &by) {
		name = Clip(by.LimitedBy(), MaxClass)
	}
	return name
}

// SafeText is err's text, also where its Error method panics.
func SafeText(err error) (s string) {
	defer func() {
		if v := recover(); v != nil {
			s = fmt.Sprintf("%T: its Error method panicked", err)
		}
	}()
	return err.Error()
}

// Text is err's text as it is recorded.
func Text(err error) string { return Clip(SafeText(err), MaxText) }
