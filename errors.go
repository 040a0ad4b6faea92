package onceq

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dlq"
	"github.com/onceq/onceq/internal/engine"
	"github.com/onceq/onceq/internal/steering"
	"github.com/onceq/onceq/internal/verdict"
)

// This file owns the errors that users meet: the classes of failures, the verbs by which a handler
// says what is to become of its job, and what Run, the constructors and Do answer. It also owns the
// scopes that nobody else may use. Nothing here is locked or asks a store.

// The classes of failures that onceq itself records. A handler's own error may bring another class,
// by a method ErrorClass() string; see [ClassOf]. The texts never change.
const (
	ClassError          = "error"            // a plain error; with fence 0: Fingerprint panicked
	ClassPermanent      = "permanent"        // Permanent
	ClassPanic          = "panic"            // a panic, or runtime.Goexit
	ClassTimeout        = "timeout"          // the job's Timeout ended the run
	ClassLease          = "lease"            // the lease could not be confirmed in time, and the run ended in an error
	ClassAttempts       = "attempts"         // claimed more often than MaxAttempts allows; the handler did not start
	ClassInterrupted    = "interrupted"      // cut off under Park: nobody knows whether the effect happened
	ClassExpired        = "expired"          // Meta.Expires had passed
	ClassTooEarly       = "too-early"        // Meta.NotBefore lies beyond its ceiling, or what the queue can keep
	ClassDuplicate      = "duplicate"        // another message with the key has failed, or is parked
	ClassUnproven       = "unproven"         // older than Retention, and without a record: the job may have been done
	ClassMismatch       = "mismatch"         // the key is taken by another payload
	ClassNoKey          = "no-key"           // the message has no idempotency key
	ClassBadKey         = "bad-key"          // the key cannot be stored
	ClassClaimRefused   = "claim-refused"    // the store has refused the claim for a day, and answered others
	ClassBadMeta        = "bad-meta"         // our metadata could not be read
	ClassDecode         = "decode"           // the body does not decode
	ClassResult         = "result"           // the result cannot be encoded or stored
	ClassNoHandler      = "no-handler"       // no handler for the message's type
	ClassConfig         = "config"           // the worker is set up in a way that only a job could show
	ClassPostponed      = "postponed"        // Postpone: no failure
	ClassCancelled      = "cancelled"        // an operator cancelled the job (ops.Cancel): there is no letter
	ClassTxNotCommitted = "tx-not-committed" // CompleteTx was called and the transaction did not commit
)

var (
	// ErrLeaseLost is the cause of a handler's context when its claim was lost: somebody else
	// owns the key now, or may own it. What the handler still writes must not count.
	ErrLeaseLost = verdict.ErrLeaseLost
	// ErrTimeout is the cause of a handler's context when the job's Timeout is over, or the time
	// of its batch.
	ErrTimeout = verdict.ErrTimeout
	// ErrDraining is the cause of a handler's context when the worker stops and DrainTimeout is
	// over.
	ErrDraining = verdict.ErrDraining
	// ErrNoStore answers calls that need a store, such as Do, where there is none.
	ErrNoStore = errors.New("onceq: no dedupe store")
	// ErrWorkersDiffer is wrapped by the error of a [Worker.Run] that ControlOptions.Strict has
	// refused.
	ErrWorkersDiffer = steering.ErrWorkersDiffer
	// ErrRunning answers a second Run of a Worker.
	ErrRunning = errors.New("onceq: worker is already running")
)

// Permanent marks err: repeating the job cannot help. The job is recorded as failed and its message
// becomes a dead letter. Permanent(nil) is nil.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return &verdict.PermanentError{Err: err}
}

// RetryAfter marks err: the job is tried again after d, instead of after the usual backoff. The run
// counts as an attempt. A negative d means 0. The broker's longest delay is the limit. A d below
// 1 ms is taken as it is, and one WARN of the Processor asks whether its unit is missing.
// RetryAfter(d, nil) is nil.
func RetryAfter(d time.Duration, err error) error {
	if err == nil {
		return nil
	}
	return &verdict.RetryError{Err: err, After: max(0, d)}
}

// Unknown marks err: the effect may have happened, and the handler cannot tell. A connection that
// was reset after the request was sent is such a case. Under dedupe.Park it parks the job, as a
// panic does. A plain error is the handler's word that nothing happened, and is retried. Under
// dedupe.Rerun it changes nothing. Unknown(nil) is nil.
func Unknown(err error) error {
	if err == nil {
		return nil
	}
	return &verdict.UnknownError{Err: err}
}

// ClassOf is the class under which err is recorded. It is the answer of the first error in err's
// chain that has a method ErrorClass() string. Where there is none it is "permanent" or "error". It
// is "" for nil. A class is cut at 64 bytes. [ClassCancelled] counts as none: only an operator
// cancels.
func ClassOf(err error) string { return verdict.ClassOf(err) }

// DrainError says that Run ended before all jobs had. Their messages will be delivered again
// when their leases have run out.
type DrainError struct {
	// Jobs are the ids of the jobs that Run abandoned.
	Jobs []string
}

// Error names the jobs, each in at most 256 bytes that a terminal may show.
func (e *DrainError) Error() string {
	names := make([]string, len(e.Jobs))
	for i, j := range e.Jobs {
		names[i] = dlq.Printable(verdict.Clip(j, engine.MaxLogged))
	}
	return fmt.Sprintf("onceq: drain ended with %d jobs unfinished: %s", len(e.Jobs), strings.Join(names, ", "))
}

// ConfigError says which field of a configuration is wrong, and why.
type ConfigError struct {
	Field  string // such as "WorkerConfig.Concurrency"
	Reason string // with the value and the limit
}

// Error is the field and the reason.
func (e *ConfigError) Error() string { return "onceq: " + e.Field + ": " + e.Reason }

func badConfig(field, format string, args ...any) error {
	return &ConfigError{field, fmt.Sprintf(format, args...)}
}

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

// reserved marks the scopes that are onceq's own.
const reserved = ":"

// checkKey refuses what no store takes, and what is onceq's own.
func checkKey(k dedupe.Key) error {
	if err := k.Validate(); err != nil {
		return err
	}
	if strings.HasPrefix(k.Scope, reserved) {
		return &reservedError{k.Scope}
	}
	return nil
}

type reservedError struct{ scope string }

func (e *reservedError) Error() string {
	return "onceq: the scope " + e.scope + " is reserved: no scope of yours may begin with a ':'"
}

func (e *reservedError) Unwrap() error { return dedupe.ErrBadKey }

func checkScope(field, s string) error {
	if err := (dedupe.Key{Scope: s, Key: "k"}).Validate(); err != nil {
		return badConfig(field, "%v", err)
	}
	return nil
}
