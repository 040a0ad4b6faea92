package onceq

import (
	"cmp"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/durations"
	"github.com/onceq/onceq/internal/verdict"
)

// JobOptions say how a job is run. A type's options win over the Processor's Defaults. A job's Meta
// may lower them. It may raise them only as far as MostAttempts and MostTimeout allow, because
// whoever may send a message writes its Meta.
type JobOptions struct {
	// MaxAttempts is how often the handler may start. 0 = the default, 10; 1 = never retried; < 0 =
	// unlimited. Without a Store, and with a broker that does not count deliveries, it must be set
	// to unlimited, because nobody counts. Under a [Forward] 0 is unlimited, too.
	//
	// Where the queue keeps what cannot be done ([KeepInQueue], WorkerConfig.HoldGroup), no dead
	// letter could bring the job back. So MaxAttempts is then how often the handler starts before
	// the job counts as one that cannot be done. From then on it starts once each time that its
	// message comes, which is once an hour. Where a second start would do harm, set Interrupted to
	// Park.
	MaxAttempts int
	// Timeout bounds one run of the handler. 0 = none, else at least 1 ms. At its end the handler's
	// context is cancelled with the cause [ErrTimeout]. A handler that ignores its context runs on,
	// with its leases kept.
	Timeout time.Duration
	// Interrupted says what becomes of a job when its worker died, or was cut off, after the
	// handler had begun: dedupe.Rerun (the default) or dedupe.Park. Under Park a panic parks the
	// job too, and so does any error after the handler's context has ended, because nobody knows
	// whether its effect happened. Park wins: where the Defaults say Park, a type cannot undo it.
	// It needs a Store.
	Interrupted dedupe.Policy
	// Backoff is how long to wait after the given attempt (from 1) failed with err. Default: 1 s,
	// doubled with each attempt up to 15 min. Of that a random part is taken (full jitter). Under a
	// [Forward] the default goes up to 1 min.
	Backoff func(attempt int, err error) time.Duration
	// MostAttempts is the highest MaxAttempts that a job's Meta may ask for. A higher one counts as
	// this. 0 = 100, or MaxAttempts where that is higher or unlimited; < 0 = any, unlimited too.
	// Not below MaxAttempts.
	MostAttempts int
	// MostTimeout is the longest Timeout that a job's Meta may ask for. A longer one counts as
	// this. 0 = 24 h, or Timeout where that is longer, and any where Timeout is none; < 0 = any.
	// Not below Timeout.
	MostTimeout time.Duration
	// MostNotBefore is how far ahead a message's Meta.NotBefore may lie when it is received. A
	// message beyond that becomes a dead letter of class "too-early". 0 = 31 days, or Retention
	// where that is longer; < 0 = any; else at least 1 ms. What the queue can keep is a bound of
	// its own: see [broker.Meta].NotBefore.
	MostNotBefore time.Duration
	// Scope is the scope of the keys; it has no ':'. Default: the Processor's Scope and, under a
	// Mux, a ':' and the type behind it. Types that have one Scope share their keys: a job of one
	// is acked as done when another's with its key is. A WARN tells of it.
	Scope string
	// Was says that the type of a Mux takes the place of something, and goes on with its keys: what
	// was done there is done, and is not done again. It is the name that the type had before, or
	// [OneHandler]. Claims are made under the former scope alone, so that old and new workers may
	// run side by side. Messages that still have the former name get the type's handler. Default:
	// the type is a new one. Not together with Scope.
	Was string
}

// OneHandler as JobOptions.Was says that the type takes the place of the one handler that the
// Processor had before it had a Mux. That handler's keys lie in the Processor's Defaults.Scope,
// else its Scope, without a type.
const OneHandler = ":one handler"

// check refuses what cannot be in o. d are the Defaults beside which o stands; they may be o
// itself.
func (o *JobOptions) check(field string, d *JobOptions) error {
	attempts, most := cmp.Or(o.MaxAttempts, d.MaxAttempts), cmp.Or(o.MostAttempts, d.MostAttempts)
	timeout, longest := cmp.Or(o.Timeout, d.Timeout), cmp.Or(o.MostTimeout, d.MostTimeout)
	switch {
	case most > 0 && (attempts < 0 || attempts > most):
		return badConfig(field+".MostAttempts", "%d is below MaxAttempts, %d; < 0 is unlimited", most, attempts)
	case durations.IsBare(longest):
		return badConfig(field+".MostTimeout", "%s", durations.AskUnit(longest))
	case longest > 0 && timeout > longest:
		return badConfig(field+".MostTimeout", "%v is below Timeout, %v", longest, timeout)
	case o.Timeout < 0:
		return badConfig(field+".Timeout", "%v is negative", o.Timeout)
	case durations.IsBare(o.Timeout):
		return badConfig(field+".Timeout", "%s", durations.AskUnit(o.Timeout))
	case durations.IsBare(o.MostNotBefore):
		return badConfig(field+".MostNotBefore", "%s", durations.AskUnit(o.MostNotBefore))
	case o.Interrupted > dedupe.Park:
		return badConfig(field+".Interrupted", "%v is neither Rerun nor Park", o.Interrupted)
	case strings.Contains(o.Scope, ":"):
		return badConfig(field+".Scope", "%q holds a ':', which separates a scope from a type", o.Scope)
	case o.Scope != "" && o.Was != "":
		return badConfig(field+".Was", "%q is set beside Scope, and the keys are in one scope", verdict.Clip(o.Was, verdict.MaxClass))
	case o.Was != "" && o == d:
		return badConfig(field+".Was", "is of a type of a Mux; it has no meaning for all jobs")
	case o.Scope != "":
		return checkScope(field+".Scope", o.Scope)
	}
	return nil
}

// scopes are the scopes of a Processor from which those of its types are made: its own, and that of
// a single handler.
type scopes struct{ whole, bare string }

// scopeOf is the scope of a type's keys. whole is that of the Processor itself, and bare that of a
// single handler.
func (o *JobOptions) scopeOf(whole, bare, typ string) string {
	switch {
	case o.Scope != "":
		return o.Scope
	case o.Was == OneHandler:
		return bare
	}
	return whole + ":" + cmp.Or(o.Was, typ)
}

// ofRelay are the defaults of a relay, which gives nothing up, and does not wait for long.
func (o JobOptions) ofRelay() JobOptions {
	o.MaxAttempts = cmp.Or(o.MaxAttempts, -1)
	if o.Backoff == nil {
		o.Backoff = func(attempt int, _ error) time.Duration {
			return rand.N(min(time.Minute, time.Second<<min(max(0, attempt-1), 6)) + 1)
		}
	}
	return o
}
