package onceq

import (
	"cmp"
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/control"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/durations"
	"github.com/onceq/onceq/internal/engine"
)

// This file owns batches: deliveries that somebody else has received. The user calls Process, whose
// goroutine waits; handlers run in goroutines of their own. There is no lock here: a batch has a
// flow of its own, and batchHost.tell is called by whoever ends a run.

// Delivery is a message that somebody holds for a [Batches].
type Delivery struct {
	Message *broker.Message
	// Until is when the delivery can no longer be held. Zero = the caller extends it as long as
	// Process runs. The handler's context ends SettleTimeout earlier, so that the end can be
	// written, or at half of the time to Until where that is later.
	Until time.Time
}

// Action is what the caller must now do with a delivery.
type Action uint8

// The actions.
const (
	Ack   Action = iota + 1 // done, failed or parked was seen and, if failed or parked, its dead letter is stored
	Nack                    // not finished: deliver again after Delay
	Leave                   // the lease was lost, or the outcome is unknown: do nothing with the message
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
	Claimed dedupe.Outcome // what the claim said; 0 = there was none
	Report  JobReport
}

// BatchConfig says where dead letters go, for deliveries that somebody else has received. Only
// DeadLetter is required. Its fields mean what those of [WorkerConfig] mean.
//
// A Batches calls no queue, so it does not know how many receives the queue's own redrive allows.
// Messages that it holds back because their producer does not use onceq are moved away by that
// redrive, without a letter of ours. So set ProcessorConfig.Key before the first start.
//
// For the same reason it cannot refuse a job that is due later than its queue keeps messages, as a
// [Worker] does. It gives such a message back until the queue deletes it or moves it away, and
// nobody is told. So set Defaults.Ceilings.NotBefore below the queue's retention, or send no such
// jobs.
type BatchConfig struct {
	// DeadLetter takes the dead letters. Required; KeepInQueue leaves them to the queue's own
	// redrive.
	DeadLetter broker.Sender
	// Name tells the queue apart from the Processor's others. Default: none.
	Name string
	// HoldGroup keeps a message that would be a dead letter at the head of its group. Queues that
	// share keys should all set it, or none.
	HoldGroup bool
	// Keeps is how long the queue keeps a message, which a batch cannot find out. A job that
	// [Postpone] or [Sleep] puts off for longer becomes a dead letter of class "too-early", with
	// its steps; otherwise its queue would drop it, and nobody would know. Default: 1 day, which is
	// less than the queues' own defaults (SQS 4 days, Pub/Sub 7). Not negative.
	//
	// Where it is set, so does a job that is due later (Meta.NotBefore). Where it is not, such a
	// job waits, and is lost if its queue does not keep it: a WARN tells of jobs that are due more
	// than a day ahead.
	Keeps time.Duration
}

// batchKeeps is BatchConfig.Keeps where nothing is said.
const batchKeeps = 24 * time.Hour

// Batches is the entry for deliveries that somebody else has received, such as those of a
// serverless function. It claims, runs and settles their jobs, and puts dead letters. It never
// receives, acks or nacks: it answers each delivery with a [Disposition], and the caller acts on
// that. Its methods may be called from many goroutines.
type Batches struct{ in *intake }

// Batches validates the configuration; it does no I/O.
func (p *Processor) Batches(c BatchConfig) (*Batches, error) {
	if err := p.checkHandler(); err != nil {
		return nil, err
	}
	if err := checkLetters("BatchConfig", c.DeadLetter, c.Name); err != nil {
		return nil, err
	}
	if c.Keeps < 0 {
		return nil, badConfig("BatchConfig.Keeps", "%v is negative", c.Keeps)
	}
	if err := p.checkRelayed("BatchConfig", c.DeadLetter, nil); err != nil {
		return nil, err
	}
	b := new(Batches)
	if err := p.checkName("BatchConfig", c.Name, b); err != nil {
		return nil, err
	}
	in, err := p.newIntake(deliveries{letters: c.DeadLetter, name: c.Name, holdGroup: c.HoldGroup, visibility: min(p.c.Lease, DefaultVisibility), keeps: cmp.Or(c.Keeps, batchKeeps)})
	if err != nil {
		return nil, err
	}
	b.in = in
	in.foreign.keeps.Store(int64(c.Keeps))
	return b, nil
}

// BatchOptions bound how a batch of deliveries is run, for a caller whose own time is known and
// paid for, such as a serverless function. nil and the zero value run all deliveries at once.
type BatchOptions struct {
	// Concurrency is how many handlers run at once. A delivery is claimed when there is a slot for
	// it. 0 or less = all.
	Concurrency int
	// Unordered says that groups order nothing. On a standard SQS queue, for example, they name the
	// tenants of a fair queue.
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
	// MinTime is how much time a handler must have until Deadline. What has not begun when less is
	// left is handed back. Default 0. Less than 1 ms is taken as it is, and one WARN of the
	// Processor asks whether its unit is missing.
	MinTime time.Duration
	// Outage is how long a store that does not answer is asked for a claim. After that, all that
	// has not begun is handed back, and comes again after half to one Lease. The time counts from
	// the first call that failed. The last call is waited for, so that a store that hangs takes up
	// to two CallTimeouts more. 0 = as long as the batch lasts. Less than 1 ms is as in MinTime.
	Outage time.Duration
	// OneLease makes each claim last as long as its delivery can be held: until Until plus
	// SettleTimeout, at most 12 h. The claim is never renewed, so that a job costs its store two
	// writes however long it takes. The price: a crash holds the key for as long. Default: claims
	// of Lease, which are renewed while the handler runs.
	OneLease bool
}

// Process claims the deliveries, runs them, and calls f for each as it ends: once, and from several
// goroutines at a time. nil options run all deliveries at once. Deliveries of one group run one
// after the other, in their order.
//
// Process returns when all have ended or, near the earliest Until, were handed back. It leaves a
// handler that runs on even then, with the outcome [OutcomeAbandoned]. When ctx ends, it hands back
// what has not begun, and ends the handlers' contexts.
//
// Process leaves nothing behind that does work. When it has returned, the store and the dead-letter
// queue are not called any more, except by calls that have outlasted their own time.
func (b *Batches) Process(ctx context.Context, ds []Delivery, o *BatchOptions, f func(i int, d Disposition)) {
	if len(ds) == 0 {
		return
	}
	if o == nil {
		o = &BatchOptions{}
	}
	b.in.askUnit(ctx, &b.in.asked.minTime, "MinTime", o.MinTime)
	b.in.askUnit(ctx, &b.in.asked.outage, "Outage", o.Outage)
	// The deliveries become runs of a flow of their own. From Flow.Offer on the engine has them: it
	// claims, and calls batchHost.Start to run a handler and batchHost.Ended, which calls f.
	h := &batchHost{deliveryHost: deliveryHost{b.in}, tell: f}
	fl := b.newBatchFlow(ctx, h, len(ds), o)
	defer fl.Close()
	b.in.obeyFor(ctx, h, fl)
	runs, until := b.in.runsOf(fl, ds)
	b.in.setEnd(fl, until)

	stop := context.AfterFunc(ctx, fl.CutOff)
	defer stop()
	if ctx.Err() != nil { // AfterFunc needs a goroutine, and a claim could be faster
		fl.CutOff()
	}
	left := make(chan []*run, 1)
	defer b.in.bound(fl, until, o.MinTime, left)()

	fl.Offer(0, runs)
	fl.Wait()
	if !fl.Abandoned() {
		h.starts.Wait()
		return
	}
	for _, r := range <-left {
		f(int(r.Index), Disposition{Action: Leave, Report: b.in.observeAbandoned(r)})
	}
	fl.WaitAll()
}

// obeyFor does for a batch what the rules say of its queue. A batch cannot leave the messages in
// the queue, so under a pause it gives them back.
func (in *intake) obeyFor(ctx context.Context, h *batchHost, fl *flow) {
	in.book.Refresh(ctx)
	if !in.book.IsOn() {
		return
	}
	h.norule = in.book.Require(ctx)
	rs, _, _ := in.book.InForce()
	switch v, ok := rs.For(in.queueName, "", "", time.Now()); {
	case !ok:
	case v.Do == control.Pause:
		h.paused = &v
	case v.Do == control.Limit:
		fl.Limit(v.Slots)()
	}
}

// askUnit asks about a time of BatchOptions without its unit. Process has no error to answer.
func (in *intake) askUnit(ctx context.Context, asked *atomic.Bool, field string, d time.Duration) {
	if durations.IsBare(d) && !asked.Swap(true) {
		in.log.LogAttrs(ctx, slog.LevelWarn, "onceq: BatchOptions."+field+": "+durations.AskUnit(d))
	}
}

// newBatchFlow is the way of a batch of n deliveries through the slots.
func (b *Batches) newBatchFlow(ctx context.Context, h *batchHost, n int, o *BatchOptions) *flow {
	slots := n
	if o.Concurrency > 0 {
		slots = min(slots, o.Concurrency)
	}
	return b.in.e.NewFlow(h, engine.Terms{
		Base:     context.WithoutCancel(ctx),
		Ordered:  !o.Unordered,
		Letters:  b.in.lettersTo(),
		Deadline: o.Deadline,
		OneLease: o.OneLease,
		Outage:   o.Outage,
	}, engine.SlotOptions[Job]{
		Slots:    slots,
		Capacity: n,
	})
}

// runsOf makes the runs of a batch. until is the earliest end of a delivery; zero = none has one.
func (in *intake) runsOf(fl *flow, ds []Delivery) (runs []*run, until time.Time) {
	runs = make([]*run, len(ds))
	copies, now := make([]given, len(ds)), time.Now()
	for i, d := range ds {
		in.foreign.meet(d.Message)
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
	return runs, until
}

// setEnd completes the flow's terms by the earliest end of a delivery: a batch with one is given up
// in the end, and its Deadline leaves time to record outcomes.
func (in *intake) setEnd(fl *flow, until time.Time) {
	if until.IsZero() {
		return
	}
	fl.Terms.Abandons = true
	if end := fl.Terms.Deadline; !end.IsZero() && !end.Before(until) {
		fl.Terms.Deadline = in.lastWord(until)
	}
}

// bound sets three times: when the batch starts nothing more, when it cuts its handlers off, and
// when it is given up. The runs that it has to give up go to left. undo stops what is still to
// come.
func (in *intake) bound(fl *flow, until time.Time, least time.Duration, left chan<- []*run) (undo func()) {
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
		cut, over = in.lastWord(until), fl.CutOff
	}
	if !cut.IsZero() {
		at(cut, over)
		if least > 0 {
			at(cut.Add(-least), func() { fl.Pause(engine.ByEnd)() })
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

// lastWord is when handlers must end whose deliveries end at until: early enough to write their
// ends.
func (in *intake) lastWord(until time.Time) time.Time {
	return until.Add(-min(in.c.SettleTimeout, max(0, time.Until(until)/2)))
}
