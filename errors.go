package onceq

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/onceq/onceq/dlq"
	"github.com/onceq/onceq/internal/engine"
	"github.com/onceq/onceq/internal/verdict"
)

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
	ClassExpired        = dlq.ClassExpired   // Meta.Expires had passed
	ClassTooEarly       = dlq.ClassTooEarly  // Meta.NotBefore lies beyond MostNotBefore, or what the queue can keep
	ClassDuplicate      = dlq.ClassDuplicate // another message with the key has failed, or is parked
	ClassUnproven       = dlq.ClassUnproven  // older than Retention, and without a record: the job may have been done
	ClassMismatch       = "mismatch"         // the key is taken by another payload
	ClassNoKey          = "no-key"           // the message has no idempotency key
	ClassBadKey         = "bad-key"          // the key cannot be stored
	ClassClaimRefused   = "claim-refused"    // the store has refused the claim for a day, and answered others
	ClassBadMeta        = dlq.ClassBadMeta   // our metadata could not be read
	ClassDecode         = "decode"           // the body does not decode
	ClassResult         = "result"           // the result cannot be encoded or stored
	ClassNoHandler      = "no-handler"       // no handler for the message's type
	ClassConfig         = "config"           // the worker is set up in a way that only a job could show
	ClassPostponed      = "postponed"        // Postpone: no failure
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
// is "" for nil. A class is cut at 64 bytes.
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
