// Package verdict holds the table of endings: what is recorded of a job, by how its handler ended.
//
// The worker and internal/model run the same table. The model explores every order of a worker's
// steps with it, so that a row that loses a job, or repeats an effect, turns a test red.
//
//   - verdict.go: the table, [Judge], which is pure and knows no error;
//   - handled.go: from what a handler returned to an [Ending], and the texts that are recorded;
//   - words.go: the marks that a handler may put on its error, and the causes that cut it off.
package verdict

import (
	"time"

	"github.com/onceq/onceq/dedupe"
)

// Ending is all that the verdict over a run depends on.
type Ending struct {
	Returned Return
	Unknown  bool // the error says that the effect may have happened
	Asks     bool // the error says when to try again
	Cut      Cut
	Parks    bool // the policy is Park, and the start was recorded
	Joined   bool // a transaction may have completed the job
	LastTry  bool // the attempt is the last that may start
}

// Return is how a handler ended.
type Return uint8

// The ways in which a handler ends.
const (
	Nil Return = iota
	Error
	Permanent
	Panic    // or it ended its goroutine
	NotBegun // an adapter's word that the work itself was not begun
	Postpone // the handler gives the job back for a time
)

// Cut is why we had cancelled the handler's context when it ended.
type Cut uint8

// The reasons. Only ByTaker means that the claim is known to be somebody else's.
const (
	Uncut         Cut = iota
	ByTimeout         // the job's Timeout is over, or the batch's time
	ByDrain           // the worker stops
	ByUnconfirmed     // the lease was not confirmed before its deadline, or the delivery was lost
	ByTaker           // the store has said that the key was claimed by another
	ByCaller          // the context of the caller of Do has ended
)

// Verdict is what a run's end is settled to, and what follows.
type Verdict struct {
	To        dedupe.Status // 0 = nothing may be settled: the claim is somebody else's
	Uncounted bool          // the attempt is given back
	Backoff   bool          // Released: the delay comes from the job's Backoff
	Refused   bool          // Released, and its message becomes a dead letter all the same
	Kept      bool          // Released without a start, as one that stays in its queue
	Class     string        // of the failure; from Judge: "" = that of the handler's error
	Text      string        // of the failure; Judge leaves it empty
	Delay     time.Duration // of the nack, where To is Released; Judge leaves it 0
}

// Judge is the table of endings. The first rule that applies decides.
func Judge(e Ending) Verdict {
	switch {
	case e.Cut == ByTaker:
		// The store said that the key is somebody else's, so nothing that we write could be right.
		return Verdict{}
	case e.Returned == NotBegun:
		// Nothing can have happened, whatever cut it off: it is neither an attempt nor in doubt.
		return Verdict{To: dedupe.Released, Uncounted: true}
	case e.Returned == Nil && !e.Joined:
		return Verdict{To: dedupe.Done}
	case e.Returned == Nil && e.Parks:
		// The handler says that all has happened, but the transaction did not commit. What happened
		// elsewhere must not happen again.
		return Verdict{To: dedupe.Parked, Class: NotCommitted}
	case e.Parks && e.Returned != Nil && (e.Returned == Panic || e.Cut != Uncut || e.Unknown):
		// Nobody knows whether the effect happened, and the owner chose not to risk a second one.
		return Verdict{To: dedupe.Parked, Class: Interrupted}
	}
	v := Verdict{To: dedupe.Released, Class: class(e)}
	switch {
	case e.Returned == Permanent:
		v.To = dedupe.Failed
	case e.Returned == Postpone:
		// It is no attempt. The class says that the handler ran: what it saved is this payload's.
		v.Uncounted, v.Class = true, Postponed
	case e.Cut == ByDrain:
		v.Uncounted = true
	case e.LastTry:
		v.To = dedupe.Failed
	default:
		v.Backoff = !e.Asks
	}
	return v
}

// class is the class that a failure gets from us; "" = its error's own.
func class(e Ending) string {
	switch {
	case e.Returned == Panic:
		return Panicked
	case e.Returned == Permanent:
		return ""
	case e.Cut == ByTimeout:
		return TimedOut
	case e.Cut == ByUnconfirmed:
		return Unconfirmed
	case e.Returned == Nil:
		return NotCommitted
	}
	return ""
}
