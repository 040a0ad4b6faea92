package control

import (
	"strings"
	"time"
)

// A WorkerStatus is what a worker says of itself, each time it renews its seat.
type WorkerStatus struct {
	// Owner and Queue are filled in by readers: the seat has them.
	Owner, Queue string
	// Host and PID are the worker's process, and Version that of the library.
	Host    string
	PID     int
	Version string
	// Scope is ProcessorConfig.Scope, and Types the types of job that the worker knows.
	Scope string
	Types []string
	// Scopes are where the keys of a type are, if not in Scope, a ':' and the type: by
	// JobOptions.Scope or Was, or Mux.OneScope. That of "" is the scope of messages without a type,
	// if it is not Scope. A card of a version that does not say has none.
	Scopes map[string]string
	// Partial says that the card had no room for all Types and Scopes.
	Partial bool
	// Started is when the worker started, and At when it wrote the card; both by its own clock.
	Started, At time.Time
	// Slots is how many handlers it runs at most at present, Busy how many jobs are in them, and
	// Held how many messages wait for one.
	Slots, Busy, Held int
	// State is running, paused, outage or draining.
	State string
	// PausedBy are the ids of the rules that pause the worker.
	PausedBy []string
	// Paused is for what reasons it is paused: "local" (by its program), "rules" or "breaker".
	// Empty in the card of a version that does not say.
	Paused []string
	// LimitedBy is what holds Slots below WorkerConfig.Concurrency: "local", "rules" or "breaker";
	// empty = nothing does. Limiters are how many jobs each limiter of its program has postponed.
	LimitedBy string
	Limiters  map[string]uint64
	// Rules is the version of the rules that the worker obeys. Where it cannot read them, NoRules
	// says why; with a version above 0 the last ones stay in force.
	Rules   uint64
	NoRules string
	// Outage says what does not answer: "store" or "queue"; empty = all do. OutageSince is since
	// when, by the worker's clock.
	Outage      string
	OutageSince time.Time
	// Outcomes are how many deliveries ended in which way since the start.
	Outcomes map[string]uint64
	// Durations are those of the handlers in the last five minutes, by the type of job.
	Durations map[string]Quantiles
	// HeadWait is how long the last job waited that ran for the first time, in the last five
	// minutes; 0 = none did.
	HeadWait time.Duration
	// Rate is how many deliveries ended a minute, over the last five.
	Rate float64
	// Minute counts the handlers that ended in about the last minute, and MinuteTypes those of each
	// type of job. Minute is nil in the card of a version that does not count.
	Minute      *Runs
	MinuteTypes map[string]Runs
	// MinuteErrors counts the errors of Minute by their class. Classes beyond the first 16 that the
	// worker met, and those for which the card has no room, are counted as "other".
	MinuteErrors map[string]uint64
	// FullSince is since when each slot is busy and no handler has begun, by the worker's clock;
	// zero where a slot is free.
	FullSince time.Time
	// Retention and Interrupted are ProcessorConfig.Retention and Defaults.Interrupted, which is
	// "rerun" or "park"; 0 and empty in the card of a version that does not say.
	Retention   time.Duration
	Interrupted string
	// MaxAttempts is Defaults.MaxAttempts, or the highest that a type has; < 0 = unlimited, 0 in
	// the card of a version that does not say.
	MaxAttempts int
	// Timeout is Defaults.Timeout, and Timeouts those of the types that have others; 0 = none.
	Timeout  time.Duration
	Timeouts map[string]time.Duration
	// DrainTimeout is WorkerConfig.DrainTimeout; < 0 = no time at all, 0 in the card of a version
	// that does not say.
	DrainTimeout time.Duration
	// Requests are the requests to the queue, by kind, where the broker counts them.
	Requests map[string]uint64
	// Jobs are those that run, the oldest first, and More how many others do.
	Jobs []RunningJob
	More int
	// Probe says that the worker answers probes.
	Probe bool
}

// Quantiles are times of which half, and 95 of a hundred, are shorter, and the longest.
type Quantiles struct{ P50, P95, Max time.Duration }

// Runs is how many handlers ended, and how many of these with an error: to be tried again, failed
// for good, or parked.
type Runs struct{ Runs, Errors uint64 }

// RunningJob is a running job on a [WorkerStatus]. Key or ID is empty where it is left out: they
// are the same, or keys are not shown. One that ends in "…" was cut.
type RunningJob struct {
	Key, ID, Type string
	// At is when its handler began, by the worker's clock, to the second.
	At      time.Time
	Attempt int
	Fence   uint64
	// Overdue says that its context has ended and it runs on.
	Overdue bool
}

// Running is the running job with a key; nil = none is named.
func (c *WorkerStatus) Running(key string) *RunningJob {
	for i := range c.Jobs {
		j := &c.Jobs[i]
		short, wasCut := strings.CutSuffix(j.Key, "…")
		if j.Key == key || wasCut && strings.HasPrefix(key, short) || j.Key == "" && j.ID == key {
			return j
		}
	}
	return nil
}
