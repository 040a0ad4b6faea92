package onceq

import (
	"context"
	"time"

	"github.com/onceq/onceq/internal/engine"
)

// BatchOptions bound how a batch of deliveries is run, for a caller whose own time is known and
// paid for, such as a serverless function. nil and the zero value run all deliveries at once.
type BatchOptions struct {
	// Concurrency is how many handlers run at once; a delivery is claimed when there is a slot for
	// it. 0 = all; fewer than 0 as well.
	Concurrency int
	// Unordered says that groups order nothing: those of a standard SQS queue name the tenants of a
	// fair queue.
	Unordered bool
	// Deadline is when the handlers' contexts end. They report it as their own deadline.
	//
	// A handler that had at least half of the time from the call to Deadline has timed out: the
	// cause is ErrTimeout, and it counts as an attempt. One that began later is handed back, with
	// the cause ErrDraining, and is not counted.
	//
	// Deadline must be early enough to record outcomes. If it is not before the earliest Until, it
	// becomes Until − SettleTimeout, or half of the time to Until where that is later. If it is
	// zero, handlers end at that time too, but their contexts report no deadline, and all are
	// handed back uncounted.
	Deadline time.Time
	// MinTime is how much time a handler must have until Deadline: what has not begun by then is
	// handed back. Default 0.
	MinTime time.Duration
	// Outage is how long a store that does not answer is asked for a claim, before all that has not
	// begun is handed back, to come again after half to one Lease. It counts from the first call
	// that failed, and the last call is waited for, so that a store that hangs takes up to two
	// CallTimeouts more. 0 = as long as the batch lasts.
	Outage time.Duration
	// OneLease takes each claim for as long as its delivery can be held: to Until plus
	// SettleTimeout, at most 12 h. It is never renewed, so that a job costs its store two writes
	// however long it takes; a crash holds the key for that long. Default: claims of Lease, renewed
	// while the handler runs.
	OneLease bool
}

// Process claims the deliveries, runs them all at once and calls f for each as it ends, from
// several goroutines, but never two for one delivery. It returns when all have ended or, near the
// earliest Until, been handed back; a handler that runs on even so is left, with the outcome
// OutcomeAbandoned. When ctx ends, what has not begun is handed back, and the handlers' contexts
// end.
//
// The batch is the caller's bound on concurrency; see [Processor.ProcessBatch] for others.
// Deliveries of one group run one after the other, in their order.
func (p *Processor) Process(ctx context.Context, ds []Delivery, f func(i int, d Disposition)) {
	p.ProcessBatch(ctx, ds, nil, f)
}

// ProcessBatch is Process within bounds. It leaves nothing behind that does work: when it has
// returned, the store and the dead-letter queue are not called any more, except by calls that have
// outlasted their own time.
func (p *Processor) ProcessBatch(ctx context.Context, ds []Delivery, o *BatchOptions, f func(i int, d Disposition)) {
	if len(ds) == 0 {
		return
	}
	if o == nil {
		o = &BatchOptions{}
	}
	slots := len(ds)
	if o.Concurrency > 0 {
		slots = min(slots, o.Concurrency)
	}
	h := &batchHost{deliveryHost: deliveryHost{p}, tell: f}
	fl := p.e.NewFlow(h, engine.Terms{
		Base:     context.WithoutCancel(ctx),
		Ordered:  !o.Unordered,
		Letters:  p.lettersTo(),
		Deadline: o.Deadline,
		OneLease: o.OneLease,
		Outage:   o.Outage,
	}, engine.SlotOptions[Job]{
		Slots:    slots,
		Capacity: len(ds),
	})
	runs, copies, now := make([]*run, len(ds)), make([]given, len(ds)), time.Now()
	until := time.Time{}
	for i, d := range ds {
		runs[i] = newRun(fl, d.Message, &copies[i], now)
		runs[i].Index = int32(i)
		if d.Until.IsZero() {
			continue
		}
		runs[i].SetUntil(d.Until)
		if until.IsZero() || d.Until.Before(until) {
			until = d.Until
		}
	}
	fl.Terms.Abandons = !until.IsZero()
	if end := fl.Terms.Deadline; !end.IsZero() && !until.IsZero() && !end.Before(until) {
		fl.Terms.Deadline = p.lastWord(until)
	}
	stop := context.AfterFunc(ctx, fl.CutOff)
	defer stop()
	if ctx.Err() != nil { // and no claim is to be faster
		fl.CutOff()
	}
	left := make(chan []*run, 1)
	defer p.bound(fl, until, o.MinTime, left)()
	fl.Offer(0, runs)
	fl.Wait()
	if !fl.Abandoned() {
		h.starts.Wait()
		return
	}
	for _, r := range <-left {
		f(int(r.Index), Disposition{Action: Leave, Record: p.observeAbandoned(r)})
	}
	fl.WaitAll()
}

// bound sets the times at which a batch starts nothing more, cuts its handlers off, and is given
// up, and answers what undoes that. What it had to give up goes to left.
func (p *Processor) bound(fl *flow, until time.Time, least time.Duration, left chan<- []*run) (undo func()) {
	var timers []*time.Timer
	at := func(t time.Time, do func()) {
		if d := time.Until(t); d > 0 {
			timers = append(timers, time.AfterFunc(d, do))
			return
		}
		do()
	}
	cut, over := fl.Terms.Deadline, fl.TimeUp
	if cut.IsZero() && !until.IsZero() {
		cut, over = p.lastWord(until), fl.CutOff
	}
	if !cut.IsZero() {
		at(cut, over)
		if least > 0 {
			at(cut.Add(-least), fl.Pause)
		}
	}
	if !until.IsZero() {
		at(until.Add(-until.Sub(cut)/5), func() { left <- fl.Abandon() })
	}
	return func() {
		for _, t := range timers {
			t.Stop()
		}
	}
}

// lastWord is when handlers must end whose deliveries end at until, so that their end can be
// written.
func (p *Processor) lastWord(until time.Time) time.Time {
	return until.Add(-min(p.c.SettleTimeout, max(0, time.Until(until)/2)))
}
