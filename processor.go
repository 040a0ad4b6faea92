package onceq

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/engine"
	"github.com/onceq/onceq/internal/values"
	"github.com/onceq/onceq/internal/verdict"
)

// Processor is the seam below every entry point: claim, run, settle and dead-letter, for deliveries
// that somebody else has received. It never receives, acks or nacks; it answers each delivery with
// a Disposition. Worker is a loop over it, and so are the serverless entry points.
type Processor struct {
	c       ProcessorConfig
	types   map[string]*jobType // under a Mux
	doOnly  bool                // there is no Handler
	misused sync.Once           // it was given deliveries all the same
	flights flights             // of Do
	foreign foreign
	begun   time.Time
	e       *engine.Engine[Job]
}

// NewProcessor validates the configuration; it does no I/O. A Processor that is for [Do] only needs
// neither Handler nor DeadLetter; given deliveries, it hands them back and logs an error, once.
func NewProcessor(c ProcessorConfig) (*Processor, error) {
	c = c.withDefaults()
	doOnly := values.IsNil(c.Handler) && values.IsNil(c.DeadLetter)
	if doOnly {
		c.Handler, c.DeadLetter = noHandler{}, KeepInQueue
	}
	if err := c.check(); err != nil {
		return nil, err
	}
	p, err := newProcessor(c, c.Lease, broker.Limits{}, 0)
	if err != nil {
		return nil, err
	}
	p.doOnly = doOnly
	return p, nil
}

type noHandler struct{}

func (noHandler) Handle(context.Context, *Job) error {
	return verdict.Classed(ClassNoHandler, "onceq: the Processor has no Handler")
}

// misuse hands back what was delivered to a Processor that is for Do only.
func (p *Processor) misuse(r *run) *engine.Refusal {
	p.misused.Do(func() {
		p.c.Logger.LogAttrs(r.Flow().Terms.Base, slog.LevelError, "onceq: a Processor without Handler and DeadLetter is for Do only; its deliveries are handed back")
	})
	return &engine.Refusal{Back: engine.Outcome(OutcomeNoHandler), Delay: p.c.Lease}
}

// newProcessor is for a Worker with so many slots, or, where they are 0, for an unknown number of
// deliveries.
func newProcessor(c ProcessorConfig, hold time.Duration, most broker.Limits, slots int) (*Processor, error) {
	p := &Processor{c: c, begun: time.Now()}
	if m := muxIn(c.Handler); m != nil {
		p.types = m.snapshot(c.Scope)
	}
	var err error
	p.e, err = engine.New[Job](engine.Options{
		Store: c.Store, DeadLetter: c.DeadLetter, LetterKeys: c.LetterKeys, Scope: c.Scope, Owner: c.Owner,
		Retention: c.Retention, Lease: c.Lease, SettleTimeout: c.SettleTimeout, CallTimeout: c.CallTimeout,
		HoldGroup: c.HoldGroup, Logger: c.Logger, Backoff: defaultBackoff,
		Visibility: hold, Limits: most, Slots: slots,
	})
	if err != nil {
		return nil, err
	}
	return p, nil
}

// Delivery is a message that somebody holds for the Processor.
type Delivery struct {
	Message *broker.Message
	// Until is when the delivery can no longer be held; zero = the caller extends it as long as
	// Process runs. The handler's context ends SettleTimeout before, so that the end can be
	// written.
	Until time.Time
}

// Action is what the caller must now do with a delivery.
type Action uint8

// The actions.
const (
	Ack   Action = iota + 1 // done, failed or parked was seen and, if failed or parked, its dead letter is stored
	Nack                    // not finished: deliver again after Delay
	Leave                   // the lease was lost, or the outcome is unknown: touch nothing
)

// String is the action in lower case.
func (a Action) String() string {
	switch a {
	case Ack:
		return "ack"
	case Nack:
		return "nack"
	case Leave:
		return "leave"
	}
	return "none"
}

// Disposition is the answer to a delivery.
type Disposition struct {
	Action  Action
	Delay   time.Duration  // of a Nack
	Outcome dedupe.Outcome // what the claim said; 0 = there was none
	Record  TimingRecord
}

// letters is where letters go, as far as the Processor's configuration says.
func (p *Processor) lettersTo() engine.LetterTo {
	if p.c.DeadLetter == KeepInQueue {
		return engine.ToNobody
	}
	return engine.ToQueue
}

func (p *Processor) retention() time.Duration { return p.c.Retention }

func (p *Processor) mostResult() int { return p.c.Store.Limits().MaxResult }

// serves tells a Mux whether it is the Processor's Handler, and whether it had the type then.
func (p *Processor) serves(m *Mux, typ string) (own, knows bool) {
	return muxIn(p.c.Handler) == m, p.types[typ] != nil
}
