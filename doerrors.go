package onceq

import (
	"fmt"
	"time"

	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/verdict"
)

// InProgressError answers a [Do] whose key another run holds. Repeating is safe, and is what to do.
type InProgressError struct {
	Key dedupe.Key
	// RetryAfter is when to ask again: 1 s or more, longer for a run that has taken long.
	RetryAfter time.Duration
	// Age is how long that run has held the key.
	Age time.Duration
}

// Error says how long it has been in progress.
func (e *InProgressError) Error() string {
	return fmt.Sprintf("onceq: %v is in progress since %v; ask again in %v", e.Key, e.Age, e.RetryAfter)
}

// MismatchError answers a [Do] whose key is known with another fingerprint, because it was used for
// another request before. Nothing has run or changed, and repeating gives the same answer.
type MismatchError struct{ Key dedupe.Key }

// Error names the key.
func (e *MismatchError) Error() string {
	return fmt.Sprintf("onceq: %v is taken by a request with another payload", e.Key)
}

// ErrorClass is [ClassMismatch].
func (e *MismatchError) ErrorClass() string { return ClassMismatch }

// FailedError answers a [Do] whose key has failed for good. Repeating gives the same answer until
// the record's retention ends. DoOptions.Reopen with this Fence tries again.
type FailedError struct {
	Key   dedupe.Key
	Fence uint64    // names this failure, for DoOptions.Reopen
	Class string    // of the error, as [ClassOf] answers
	Text  string    // of the error
	At    time.Time // of the failure
}

// Error is the failure's text.
func (e *FailedError) Error() string {
	return fmt.Sprintf("onceq: %v has failed (%s): %s", e.Key, e.Class, e.Text)
}

// ErrorClass is the failure's.
func (e *FailedError) ErrorClass() string { return e.Class }

// ParkedError answers a [Do] whose key is parked: a run under Park was interrupted, and nobody
// knows whether its effect has happened. Repeating gives the same answer until somebody decides.
// With DoOptions.Reopen and this Fence f runs again.
type ParkedError struct {
	Key   dedupe.Key
	Fence uint64    // names this interruption, for DoOptions.Reopen
	Class string    // "interrupted" in most cases
	Text  string    // what the interrupted run returned; empty where its process died
	At    time.Time // when it was parked
	Err   error     // what f returned, where it ran in this call; else nil
}

// Error says that an operator is needed.
func (e *ParkedError) Error() string {
	s := fmt.Sprintf("onceq: %v is parked (%s), for its effect may have happened", e.Key, e.Class)
	if e.Text != "" {
		s += ": " + e.Text
	}
	return s
}

// Unwrap is what f returned in this call.
func (e *ParkedError) Unwrap() error { return e.Err }

// ErrorClass is that of the record.
func (e *ParkedError) ErrorClass() string { return e.Class }

// PausedError answers a [Do] whose scope or type an operator has paused. Nothing has run or
// changed, and nothing was asked of the key, also where it is done. Repeating gives the same answer
// until the rule ends, or is removed.
type PausedError struct {
	Key dedupe.Key
	// Until is when the rule ends by itself.
	Until time.Time
	// By is who has paused it, and Reason why.
	By, Reason string
}

// Error says who has paused it, why, and until when.
func (e *PausedError) Error() string {
	return fmt.Sprintf("onceq: %v is paused until %s by %s: %s", e.Key, e.Until.UTC().Format(time.RFC3339), e.By, e.Reason)
}

// NotRunError answers a [Do] that ended before f began. Its context has ended, or the store has not
// answered for two CallTimeouts. Under Park it may take two CallTimeouts and a SettleTimeout more,
// where the store does not confirm the start. f has not run and will not run, and repeating is
// safe. Repeating is of no use where Err is [dedupe.ErrBadKey] or [dedupe.ErrBadRequest], because
// the store will never take this key, or this fingerprint.
type NotRunError struct {
	Key dedupe.Key
	// Err is the context's cause, the store's error, or both. Where the call ended while it waited
	// for another run, Err also wraps the *[InProgressError] that the wait knew last, because that
	// run may go on.
	Err error
}

// Error says that this call ran nothing, and why, and whether another run is under way.
func (e *NotRunError) Error() string {
	return fmt.Sprintf("onceq: this call has run nothing for %v, repeating is safe: %v", e.Key, e.Err)
}

// Unwrap is why.
func (e *NotRunError) Unwrap() error { return e.Err }

// UnsettledError answers a [Do] in which f has run, but nobody knows whether its end is recorded.
// The store did not answer for SettleTimeout, or another has taken the key (Err is [ErrLeaseLost]
// then). f's effect may have happened, and Do returns f's result beside this error. Until the lease
// ends, other calls are told that the key is in progress. Then they find it done, if that was
// recorded. Else f runs again or, under Park, the key is parked.
type UnsettledError struct {
	Key    dedupe.Key
	Err    error // why it is not recorded
	RunErr error // what f returned; nil = it succeeded
}

// Error says what f returned, and why that is not recorded.
func (e *UnsettledError) Error() string {
	ran := "has run"
	if e.RunErr != nil {
		ran = fmt.Sprintf("has run and failed (%s)", verdict.SafeText(e.RunErr))
	}
	return fmt.Sprintf("onceq: %v %s, which is not recorded; it may run again: %v", e.Key, ran, e.Err)
}

// Unwrap is Err and, where f has failed, RunErr.
func (e *UnsettledError) Unwrap() []error {
	if e.RunErr == nil {
		return []error{e.Err}
	}
	return []error{e.Err, e.RunErr}
}
