package engine

import (
	"cmp"
	"time"
)

// finish gives a run its disposition. Only the first one counts.
func (en *Engine[J]) finish(r *Run[J], action Action, delay time.Duration, outcome Outcome) {
	if r.advance(over) {
		en.dispose(r, action, delay, outcome)
	}
}

// drop ends a run whose delivery was lost while it waited for a slot. Those who have a run that got
// further end it themselves.
func (en *Engine[J]) drop(r *Run[J]) {
	if r.phase.CompareAndSwap(uint32(waiting), uint32(over)) {
		en.dispose(r, Leave, 0, LostBeforeClaim)
	}
}

func (en *Engine[J]) dispose(r *Run[J], action Action, delay time.Duration, outcome Outcome) {
	r.Action, r.Outcome = action, outcome
	r.Verdict.Delay = min(delay, en.LongestNack())
	r.tries = 0
	r.f.Host.Observe(r)
	r.f.disposed(r)
	r.f.Host.Ended(r)
}

// longestDelay bounds how long a message is held here. It is SQS's longest delay, and no broker
// knows a longer one.
const longestDelay = 12 * time.Hour

// LongestNack bounds a delay by the broker's longest. Where the broker can delay no nack, somebody
// else waits for the delay, and longestDelay bounds it.
func (en *Engine[J]) LongestNack() time.Duration { return cmp.Or(en.o.Limits.MaxNack, longestDelay) }

// refusedFor is how long a message is given back when the store refuses its claim. Somebody has to
// look at its record first, and the queue counts each receive.
const refusedFor = 5 * time.Minute
