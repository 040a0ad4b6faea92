package steering

import (
	"context"
	"log/slog"
	"time"

	"github.com/onceq/onceq/internal/engine"
)

// Config is what a steward knows of its Worker and of the Run. All of it is set, but for Took.
type Config struct {
	Book   *Rulebook
	Past   *Watchman
	Tell   Tell
	Logger *slog.Logger
	Base   context.Context // of the Run; it does not end

	Queue, Owner, Scope string
	Types               []string
	Scopes              map[string]string // of types whose keys are elsewhere
	Retention           time.Duration
	Interrupted         string // what is done with a job that was interrupted
	MaxAttempts         int    // the highest of the types; < 0 = unlimited
	Timeout             time.Duration
	Timeouts            map[string]time.Duration // of types with another
	DrainTimeout        time.Duration            // < 0 = none
	ShownJobs           int                      // how many running jobs the card names
	NoKeys              bool                     // it does without their keys
	Strict              bool                     // a worker with other settings keeps the Run from starting
	Took                Sketches

	Pause, Resume func(why engine.Pauses)
	Paused        func() engine.Pauses
	Glance        func() Glance
	Limit         func(slots int)            // by the rules; 0 = all
	Jobs          func() ([]engine.Job, int) // those that run, the oldest first, and how many more do
}

// Glance is what a card says of the worker as a whole.
type Glance struct {
	State             string
	Slots, Busy, Held int
	Outage            string // what does not answer; "" = all does
	Since             time.Time
	Outcomes          map[string]uint64 // how deliveries ended
	Paused            []string          // for what reasons
	LimitedBy         string            // what bounds its slots; "" = nothing does
	Limiters          map[string]uint64 // what each has postponed
}
