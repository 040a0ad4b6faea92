package engine

import (
	"context"
	"time"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
)

// Host is who brought a run.
type Host[J any] interface {
	// Admit finds out what the run asks for, its key above all; or why no claim is made.
	Admit(r *Run[J]) *Refusal
	// Takeover is told that another run holds the key. It reports whether that run has taken over
	// what this one brought.
	Takeover(r *Run[J], c *dedupe.Claim) bool
	// StoreErred is told of each call of the store that has failed. open reports whether the call
	// may have had its effect all the same.
	StoreErred(r *Run[J], err error, open bool)
	// Start gives a claimed run to a goroutine that calls Engine.Work.
	Start(r *Run[J])
	// Handle runs the handler.
	Handle(r *Run[J]) error
	// Broke is told that the handler has panicked with v, or has ended its goroutine (v is nil).
	// The handler's goroutine calls it, when the end is on its way.
	Broke(r *Run[J], v any)
	// Carry sends the run's message anew, because it comes for the last time, and then calls
	// Engine.Carried. It must not block. The run has a CarryOr.
	Carry(r *Run[J])
	// Observe tells of the run's end, before Ended.
	Observe(r *Run[J])
	// Ended acts on the disposition, and has the flow forget the run.
	Ended(r *Run[J])
}

// Terms are what differs between hosts and needs no method.
type Terms struct {
	Base       context.Context // the handlers' values
	Deliveries broker.Receiver // extends what the manager holds; nil = who brought the runs holds them
	Ordered    bool            // deliveries of one group run one after the other
	Letters    LetterTo
	Caller     context.Context // its end ends the handler, also where the handler notices first; nil = none
	Deadline   time.Time       // when the handlers' contexts end; zero = never
	OneLease   bool            // a claim lasts as long as its delivery can be held, and is not renewed
	Outage     time.Duration   // how long a store that does not answer is asked for a claim; 0 = as long as it takes
	Confirm    time.Duration   // how long it is asked to confirm a start; 0 = as long as it takes
	Waits      bool            // somebody waits for the end: no call is repeated beyond their bounds
	// KeepsEvery fails a job whose result is too large. Otherwise later callers would take it for a
	// job without a result.
	KeepsEvery bool
	Abandons   bool // a stop has a hard end: what has not been settled by then is abandoned
}

// Holds reports whether the manager keeps the deliveries.
func (t *Terms) Holds() bool { return t.Deliveries != nil }

// LetterTo is what becomes of a job that cannot be done.
type LetterTo uint8

// What may become of it.
const (
	ToQueue  LetterTo = iota // its letter is put
	ToNobody                 // it stays in its queue
	ToCaller                 // its caller is told
)

// Refusal is why a message is not claimed at all. It becomes a dead letter of the class, or is
// given back. Where it says both, its host sends the message anew (Carry), and it becomes a letter
// where that cannot be done.
type Refusal struct {
	Class string
	Err   error

	Back  Outcome       // "" = it becomes a letter
	Delay time.Duration // of what is given back
}
