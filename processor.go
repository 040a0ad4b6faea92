package onceq

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/batch"
	"github.com/onceq/onceq/internal/values"
	"github.com/onceq/onceq/internal/verdict"
	"github.com/onceq/onceq/visibility"
)

// Processor is the seam below every entry point: claim, run, settle and dead-letter, for deliveries that
// somebody else has received. It never receives, acks or nacks; it answers each delivery with a
// Disposition. Worker is a loop over it, and so are the serverless entry points.
type Processor struct {
	c          ProcessorConfig
	types      map[string]*jobType // under a Mux
	visibility time.Duration       // of the deliveries that the manager extends
	margin     time.Duration       // before a lease's deadline, in which nothing starts under it
	limits     broker.Limits       // of the queue whose deliveries the manager extends
	doOnly     bool                // there is no Handler
	misused    sync.Once           // it was given deliveries all the same
	flights    flights             // of Do
	foreign    foreign
	lettersOut outage // of the dead-letter queue
	storeOut   outage
	epoch      time.Time
	lastClaim  atomic.Int64 // when, since the epoch, the store last answered a claim without an error
	lastEnd    atomic.Int64 // the same of settlements: a call
	lastLetter atomic.Int64 // the same of letters
	probed     atomic.Int64 // when, since the epoch, the store was last asked for a claim that stands for another's

	leases  *visibility.Manager[*run]
	claims  *batch.Queue[*run]
	settles *batch.Queue[*run]
	joins   *batch.Queue[*run]
	letters *batch.Queue[*run]
	holds   *batch.Queue[*run] // of deliveries, to be extended
}

// Batches in flight at once. More would not fill the batches.
const (
	storeFlight  = 4
	joinFlight   = 16
	letterFlight = 2
	holdFlight   = 16 // they hold none of the calls that renew claims
)

// NewProcessor validates the configuration; it does no I/O. A Processor that is for [Do] only needs neither Handler nor
// DeadLetter; given deliveries, it hands them back and logs an error, once.
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
	return classed(ClassNoHandler, "onceq: the Processor has no Handler")
}

// misuse hands back what was delivered to a Processor that is for Do only.
func (p *Processor) misuse(r *run) *refusal {
	p.misused.Do(func() {
		p.c.Logger.LogAttrs(r.f.t.base, slog.LevelError, "onceq: a Processor without Handler and DeadLetter is for Do only; its deliveries are handed back")
	})
	return &refusal{back: OutcomeNoHandler, delay: p.c.Lease}
}

// newProcessor is for a Worker with so many slots, or, where they are 0, for an unknown number of deliveries.
func newProcessor(c ProcessorConfig, hold time.Duration, most broker.Limits, slots int) (*Processor, error) {
	timeout := min(c.Lease, hold)
	p := &Processor{epoch: time.Now(), c: c, visibility: hold, limits: most, margin: min(c.CallTimeout, timeout/6)}
	if m := muxIn(c.Handler); m != nil {
		p.types = m.snapshot(c.Scope)
	}
	var err error
	p.leases, err = visibility.New(p.extend, visibility.Options[*run]{
		Timeout:     timeout,
		Margin:      p.margin,
		CallTimeout: min(c.CallTimeout, timeout/3), // one that hangs leaves time for another
		MaxBatch:    min(c.Store.Limits().MaxBatch, maxStoreBatch),
		IsLost:      func(err error) bool { return errors.Is(err, verdict.ErrTaken) },
		OnLost:      p.lost,
		OnTimeout:   func(r *run) { r.stopHandler(ErrTimeout) },
		Revives:     true,
	})
	if err != nil {
		return nil, err
	}
	store := c.Store.Limits().MaxBatch
	p.claims = batch.New(batch.Options{Max: min(store, claimBatchFor(slots)), Flight: storeFlight}, p.claimBatch)
	p.settles = batch.New(batch.Options{Max: min(store, maxStoreBatch), Flight: storeFlight}, p.settleBatch)
	p.joins = batch.New(batch.Options{Max: 1, Flight: joinFlight}, p.settleBatch)
	p.letters = batch.New(batch.Options{Max: c.DeadLetter.Limits().SendBatch, Flight: letterFlight}, p.putBatch)
	p.holds = batch.New(batch.Options{Max: most.SettleBatch, Flight: holdFlight}, p.holdBatch)
	return p, nil
}

// maxStoreBatch keeps a batch's statement, and so the wait of its first entry, short.
const maxStoreBatch = 100

// claimBatchFor bounds a batch of claims by half of the slots: handlers run in one half while the other is claimed. In one
// batch for all slots the two take turns, and fast handlers wait for the store (a fifth more time a job). A small batch costs
// the store more than it wins.
func claimBatchFor(slots int) int {
	const least = 16
	if slots == 0 {
		return maxStoreBatch
	}
	return min(maxStoreBatch, max(least, slots/2))
}

// Delivery is a message that somebody holds for the Processor.
type Delivery struct {
	Message *broker.Message
	// Until is when the delivery can no longer be held; zero = the caller extends it as long as
	// Process runs. The handler's context ends SettleTimeout before, so that the end can be written.
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

// newRun makes the run of a delivery; g is where the user's copy of the message goes.
func (p *Processor) newRun(f *flow, m *broker.Message, g *given, now time.Time) *run {
	r := &run{f: f, message: m, received: now.Sub(f.epoch)}
	g.message.Meta = &g.meta
	r.job = Job{Message: &g.message, r: r}
	r.ctx.base = f.t.base //nolint:fatcontext // one level deep: every run has its own
	r.held.Lease = r
	if m != nil {
		r.receipt, r.deliveryEnds = m.Receipt, m.Deadline
	}
	return r
}
