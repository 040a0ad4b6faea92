package model

import "github.com/onceq/onceq/dedupe"

// Ending is all that the verdict over a run depends on.
type Ending struct {
	Returned Return
	Cut      bool // we had cancelled the handler's context
	Draining bool // ... because of a drain
	Parks    bool // the policy is Park and the start was recorded
	Joined   bool // a transaction may have completed the job
	LastTry  bool // the attempt is the last that may start
}

// Return is how a handler ends.
type Return uint8

// The ways in which a handler ends.
const (
	Nil Return = iota
	Error
	Permanent
	Panic // or it ended its goroutine
)

// Verdict is what a run's end is settled to.
type Verdict struct {
	To        dedupe.Status
	Uncounted bool
}

// Judge is the table of endings. The first rule that applies decides. A lost lease that the store has
// answered is no ending: the worker leaves.
func Judge(e Ending) Verdict {
	switch {
	case e.Returned == Nil && !e.Joined:
		return Verdict{To: dedupe.Done}
	case e.Returned == Nil && e.Parks:
		// The handler says that all has happened, and the transaction says that not all of it has.
		return Verdict{To: dedupe.Parked}
	case e.Parks && (e.Returned == Panic || e.Returned != Nil && e.Cut):
		return Verdict{To: dedupe.Parked}
	case e.Returned == Permanent:
		return Verdict{To: dedupe.Failed}
	case e.Draining:
		return Verdict{To: dedupe.Released, Uncounted: true}
	case e.LastTry:
		return Verdict{To: dedupe.Failed}
	}
	return Verdict{To: dedupe.Released}
}
