package onceq

import (
	"cmp"
	"time"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/durations"
)

// Bounds and defaults of [ControlOptions].
const (
	DefaultControlEvery = 10 * time.Second
	minControlEvery     = 2 * time.Second
	maxControlEvery     = time.Minute
	DefaultControlJobs  = 8
	maxControlJobs      = 100
)

// ControlOptions say how a Processor obeys operators and shows itself to them, through its Store:
// see package control. The zero value is on where the store is durable, because a control that had
// to be configured before the emergency is not there in it. Each Worker then costs the store one
// small write and one small read each Every, and looks at the others' seats at the start, two
// minutes later, and each hour.
type ControlOptions struct {
	// Every is how often a Worker reads the rules and writes its card. 0 = 10 s, where the store is
	// durable, else never; 2 s to 1 min, with any store; < 0 = no seat, no rules. Batches and Do
	// read the rules before a call, where that was as long ago.
	Every time.Duration
	// Jobs is how many running jobs, the oldest first, the card names. Default 8; at most 100; < 0
	// = none. With 8 a card is one write unit of DynamoDB.
	Jobs int
	// NoKeys leaves the jobs' keys out of the card, where keys are personal data. Their ids stay.
	NoKeys bool
	// Required keeps jobs from starting as long as the rules were never read, however long the
	// store refuses that. Default: a Worker waits while the store does not answer at all. Where the
	// store answers other calls and refuses this one for 30 s, the Worker starts without rules, and
	// says so.
	Required bool
	// Strict has Run refuse to start, with [ErrUnlike], while another live worker of the queue has
	// another Scope, Retention or Defaults.Interrupted, because a deploy with the wrong Scope does
	// each job twice. A deploy that changes one of these on purpose then has to stop the old
	// workers first; one that died counts as live until its seat's lease is over, 30 s by default.
	// Default: the worker starts, and logs an ERROR. It looks at the start, two minutes later, and
	// each hour.
	Strict bool

	asked bool // they were not switched off
}

// unsteered is a store whose calls a test counts: nothing is read or written beside its jobs,
// unless ControlOptions.Every says so.
type unsteered interface{ Unsteered() }

// controlOn fills in the defaults for a store.
func controlOn(s dedupe.Store, o ControlOptions) ControlOptions {
	o.asked = o.Every >= 0
	if o.Every == 0 {
		o.Every = -1
		if _, quiet := broker.As[unsteered](s); s.Limits().Durable && !quiet {
			o.Every = DefaultControlEvery
		}
	}
	if isNoStore(s) {
		o.Every = -1
	}
	o.Jobs = max(0, cmp.Or(o.Jobs, DefaultControlJobs))
	return o
}

// check refuses what cannot be, in options as they were given.
func (o *ControlOptions) check() error {
	switch {
	case o.Every > 0 && o.Every < minControlEvery:
		return badConfig("ProcessorConfig.Control.Every", "%s", durations.Below(o.Every, minControlEvery))
	case o.Every > maxControlEvery:
		return badConfig("ProcessorConfig.Control.Every", "%v is above %v", o.Every, maxControlEvery)
	case o.Jobs > maxControlJobs:
		return badConfig("ProcessorConfig.Control.Jobs", "%d is above %d", o.Jobs, maxControlJobs)
	case o.Strict && o.Every < 0:
		return badConfig("ProcessorConfig.Control.Strict", "is set, and Every says that the worker has no seat")
	case o.Required && o.Every < 0:
		return badConfig("ProcessorConfig.Control.Required", "is set, and Every says that no rules are read")
	}
	return nil
}

// isOn reports whether rules are read.
func (o *ControlOptions) isOn() bool { return o.Every > 0 }
