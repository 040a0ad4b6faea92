package engine

import (
	"sync/atomic"
	"time"
)

// StoreHealth is what all engines on one store know of it: one outage is told of once, whoever
// meets it, and an answer to one engine is a sign of life for the others. Its methods and fields
// may be used from many goroutines.
type StoreHealth struct {
	epoch     time.Time // the times below count from here
	out       Outage
	lastClaim atomic.Int64 // when the store last answered a claim without an error
	lastEnd   atomic.Int64 // when it last answered a call of Settle without an error
	probed    atomic.Int64 // when it was last asked for a claim that stands for another's
}

// NewStoreHealth knows nothing yet.
func NewStoreHealth() *StoreHealth { return &StoreHealth{epoch: time.Now()} }

// now is the time that its fields count in.
func (h *StoreHealth) now() time.Duration { return time.Since(h.epoch) }
