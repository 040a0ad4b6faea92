package onceq

import (
	"context"
	"errors"
	"log/slog"
	mrand "math/rand/v2"
	"sync"
	"time"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/control"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/batch"
	"github.com/onceq/onceq/internal/engine"
	"github.com/onceq/onceq/internal/steering"
	"github.com/onceq/onceq/internal/verdict"
)

// This file owns what differs between those who bring runs: a Worker, a batch, a call of Do. Each
// is a host of the engine. What differs stands here once, as methods, and in the terms of its flow.
// Nobody else asks who brought a run. The engine calls the methods, from the goroutine that has the
// run. It holds no lock then, except for Start, which it calls under the flow's lock.

// deliveryHost is what a Worker and a batch have in common.
type deliveryHost struct{ *intake }

// Admit finds out what a message asks for. It holds back a message that has no key because its
// producer does not use onceq.
func (h deliveryHost) Admit(r *run) *engine.Refusal {
	no := h.refusalOf(r)
	if no == nil {
		return nil
	}
	return h.holdForeign(r, no)
}

func (h deliveryHost) refusalOf(r *run) *engine.Refusal {
	if to := relayIn(h.c.Handler); to != nil {
		return h.admitRelayed(r, to)
	}
	left := early(r.Message, h.ordered)
	if left == 0 {
		if no := h.admit(r); no != nil {
			return no
		}
		return h.heldBack(r)
	}
	if no := h.tooEarly(r, left); no != nil {
		return no
	}
	return &engine.Refusal{Back: engine.Outcome(OutcomeEarly), Delay: left}
}

// heldBack is why a message is given back while its scope or type is paused; nil = it is not.
func (in *intake) heldBack(r *run) *engine.Refusal {
	if !in.book.Holds() {
		return nil
	}
	typ := ""
	if r.Message.Meta != nil {
		typ = r.Message.Meta.Type
	}
	v, ok := in.book.PausedJob(in.queueName, r.Key.Scope, typ)
	if t := in.types[typ]; !ok && t != nil && t.name != typ { // it has no type, or its former one
		v, ok = in.book.PausedJob(in.queueName, r.Key.Scope, t.name)
	}
	if !ok {
		return nil
	}
	return &engine.Refusal{Back: engine.Outcome(OutcomePaused), Delay: steering.BackFor(&v, r.Message.Attempt)}
}

func (h deliveryHost) Takeover(*run, *dedupe.Claim) bool { return false }
func (h deliveryHost) StoreErred(*run, error, bool)      {}
func (h deliveryHost) Carry(r *run)                      { h.carry.carryFirst(r) }
func (h deliveryHost) Broke(*run, any)                   {}
func (h deliveryHost) Observe(r *run) {
	if d, ran := r.Took(); ran {
		h.took.Count(r.Type(), d, r.Outcome, r.Verdict.Class)
	}
	h.observeEnd(r)
}

func (h deliveryHost) Handle(r *run) error {
	r.Job.Attempt = int(r.Attempt)
	err := h.c.Handler.Handle(h.observeStart(r), &r.Job)
	if !h.handled.Load() {
		if errors.Is(err, errHiddenMux) {
			h.hidesMux.Store(true)
		} else {
			h.handled.Store(true)
		}
	}
	return h.tooLong(r, h.crowded(r, err))
}

// crowdedFor is the least time for which a job is given back whose transaction found its database
// busy; half of it is added at random, at most.
const crowdedFor = time.Second

// crowded is the handler's error. But where the store says that others held the lock of its
// database, the job is given back: nothing of its transaction was written, and no attempt is used
// up. It is one after another postponement, so that a handler that stands in its own way comes to
// an end.
func (in *intake) crowded(r *run, err error) error {
	if err == nil || in.isBusy == nil || r.Fence == 0 {
		return err
	}
	if class, _ := r.Last(); class == ClassPostponed || verdict.IsMarked(err) || !in.isBusy(err) {
		return err
	}
	if since, tell := in.foreign.crowded.shouldTell(); tell {
		in.log.LogAttrs(r.Flow().Terms.Base, slog.LevelWarn, "onceq: a handler's transaction found the store's database busy; its job is given back, and that is no attempt. Let the transaction take its turn with the store's writes: sqlitestore's Commit",
			engine.ForSo(since), slog.String("job", r.Name()), slog.String("error", verdict.Text(err)))
	}
	return Postpone(crowdedFor+mrand.N(crowdedFor/2), err)
}

// workerHost brings what a Worker has received. The Worker has its messages extended, and acks and
// nacks them.
type workerHost struct {
	deliveryHost
	limits      broker.Limits
	ready       chan<- *run
	acks, nacks *batch.Queue[*run]
}

func (h *workerHost) Start(r *run) { h.ready <- r }

// hands are the goroutines of one Run that run handlers.
type hands struct {
	w     *Worker
	ready <-chan *run
	all   sync.WaitGroup
}

func (h *hands) add() {
	h.all.Add(1)
	go h.work()
}

// work is one of the hands. One that ends early is replaced: by a handler that ends its goroutine,
// or after a job that took long. What came after its handler has made its stack grow, and the next
// job may take as long.
func (h *hands) work() {
	alive := false
	defer func() {
		if !alive {
			h.add()
		}
		h.all.Done()
	}()
	for r := range h.ready {
		if h.w.p.e.Work(r) >= tookLong {
			return
		}
	}
	alive = true
}

// tookLong is how long a job took beside which a new goroutine costs nothing.
const tookLong = time.Second

// Ended acts on a disposition. A message that is to be acked or nacked stays held until the answer
// of that call is known.
func (h *workerHost) Ended(r *run) {
	switch r.Action {
	case engine.Ack:
		h.acks.Add(r)
	case engine.Nack:
		if !h.carry.takes(r) && !h.delays(r) {
			h.nacks.Add(r)
		}
	default:
		h.e.Release(r)
		r.Flow().Gone(r)
	}
}

// Takeover gives the receipt of a redelivery to the job that runs for the same message.
func (h *workerHost) Takeover(again *run, _ *dedupe.Claim) bool {
	return again.Flow().HandOver(again, (*run).TakeReceipt)
}

// delays holds a run's message for the delay of its nack, where the broker cannot. Without it, a
// job that fails, or a duplicate of one that runs, would come again at once. It is false where the
// message is to be nacked now.
func (h *workerHost) delays(r *run) bool {
	if h.limits.MaxNack > 0 || r.Verdict.Delay <= 0 {
		return false
	}
	now := time.Now()
	d := min(r.Verdict.Delay, h.e.TotalLeft(r, now))
	if !h.limits.Extends {
		d = min(d, r.DeliveryEnd().Sub(now)-h.e.Margin())
	}
	return d > 0 && r.Flow().KeepBack(r, d)
}

// batchHost brings deliveries that somebody else holds: a call of Process.
type batchHost struct {
	deliveryHost
	paused *control.Verdict // of the whole queue; nil = it is not
	norule error            // the rules are required, and were never read
	starts sync.WaitGroup
	tell   func(i int, d Disposition)
}

// Admit gives back each message of a queue that is paused. Each such batch costs a receive.
func (h *batchHost) Admit(r *run) *engine.Refusal {
	switch {
	case h.norule != nil:
		return &engine.Refusal{Back: engine.StoreUnreachable, Delay: h.c.Lease/2 + mrand.N(h.c.Lease/2+1)}
	case h.paused != nil:
		return &engine.Refusal{Back: engine.Outcome(OutcomePaused), Delay: steering.BackFor(h.paused, r.Message.Attempt)}
	}
	return h.deliveryHost.Admit(r)
}

func (h *batchHost) Start(r *run) { h.starts.Go(func() { h.e.Work(r) }) }

func (h *batchHost) Ended(r *run) {
	h.e.ReleaseLease(r)
	h.tell(int(r.Index), Disposition{Action: Action(r.Action), Delay: r.Verdict.Delay, Claimed: r.Said, Report: h.timing(r)})
	r.Flow().Gone(r)
}

// callHost brings the one run of a call of Do, whose goroutine runs it.
type callHost struct{ *try }

func (h callHost) retention() time.Duration { return h.c.p.retention() }
func (h callHost) mostResult() int          { return h.c.p.mostResult() }
func (h callHost) queue() string            { return h.c.p.queue() }

func (h callHost) serves(m *Mux, typ string) (own, knows bool) { return h.c.p.serves(m, typ) }

// Admit looks nothing up, because a call knows its key.
func (h callHost) Admit(*run) *engine.Refusal { return nil }

func (h callHost) Takeover(_ *run, c *dedupe.Claim) bool {
	h.inWait, h.age = c.Left, c.Age
	return false
}

func (h callHost) Carry(*run) {} // it has no message

func (h callHost) StoreErred(r *run, err error, open bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.storeErr, h.asking = err, open && r.Unclaimed()
}

func (h callHost) Start(r *run) { h.try.give(r) }

func (h callHost) Handle(r *run) error {
	r.Job.Attempt = int(r.Attempt)
	h.err = h.c.f(h.c.p.observeStart(r), &r.Job)
	return h.err
}

// Broke passes a panic on to the caller of Do, while the stack of the panic is still there.
func (h callHost) Broke(_ *run, v any) {
	<-h.try.over
	if v != nil {
		// invariant: v is what the caller's own function has panicked with
		panic(v)
	}
}

// Observe leaves out a claim after which the call asks again, because a call has one record.
func (h callHost) Observe(r *run) {
	if r.Said != dedupe.InProgress || !h.c.waits(time.Now()) {
		h.c.p.observeEnd(r)
	}
}

func (h callHost) Ended(*run) { h.try.end() }

// This part owns what the Observer and the log are told of a run. Whoever has the run calls it; no
// lock is held.

// contextOf is the handler's. It tells the message of its job, too.
func contextOf(r *run) context.Context { return (*engine.RunContext[Job])(r) }

func (in *intake) observeStart(r *run) (ctx context.Context) {
	if in.c.Observer == nil {
		return contextOf(r)
	}
	defer func() {
		if v := recover(); v != nil {
			in.observerPanicked(v)
			ctx = contextOf(r)
		}
	}()
	switch ctx = in.c.Observer.JobStarted(contextOf(r), &r.Job); ctx {
	case nil, contextOf(r):
		return contextOf(r)
	}
	r.Context().ObservedAs(ctx)
	return ctx
}

func (in *intake) observeEnd(r *run) {
	level := slog.LevelInfo
	if r.Verdict.Class != "" && r.Outcome != engine.Postponed {
		level = slog.LevelWarn
	}
	logs := in.log.Enabled(r.Flow().Terms.Base, level)
	if in.c.Observer == nil && !logs {
		return
	}
	t := in.timing(r)
	in.tellEnd(r, &t)
	if logs {
		in.log.LogAttrs(r.Flow().Terms.Base, level, "job", t.attrs()...)
	}
}

// observeAbandoned tells of a run that was given up, and answers its record.
func (in *intake) observeAbandoned(r *run) JobReport {
	t := in.recordOf(r, in.e.TimingOfAbandoned(r))
	t.Outcome = OutcomeAbandoned
	in.tellEnd(r, &t)
	in.log.LogAttrs(r.Flow().Terms.Base, slog.LevelWarn, "job", t.attrs()...)
	return t
}

func (in *intake) tellEnd(r *run, t *JobReport) {
	if in.c.Observer == nil {
		return
	}
	defer func() {
		if v := recover(); v != nil {
			in.observerPanicked(v)
		}
	}()
	ctx := r.Context().Observer()
	if ctx == nil {
		ctx = contextOf(r)
	}
	in.c.Observer.JobEnded(ctx, t)
}

// timing is made only when somebody asks: most runs have no observer.
func (in *intake) timing(r *run) JobReport {
	t := in.recordOf(r, in.e.Timing(r))
	t.Outcome, t.ErrClass, t.Err = Outcome(r.Outcome), r.Verdict.Class, r.Verdict.Text
	if t.Outcome == OutcomePostponed {
		t.ErrClass, t.Why, t.Limiter = "", r.Why(), r.Limiter() // nothing has failed
	}
	t.Saved = r.LastSaved()
	t.Result = r.Result()
	return t
}

func (in *intake) recordOf(r *run, t engine.Timing) JobReport {
	return JobReport{
		JobID: r.ID(), Type: r.Type(), Key: t.Key, QueueWait: t.QueueWait, Process: t.Process,
		Visibility: t.Visibility, Heartbeat: t.Heartbeat, Beats: t.Beats, Attempt: t.Attempt,
		Receives: t.Receives, Fence: t.Fence,
		Queue: in.queueName, Ran: t.Ran, Began: t.Began, Ended: t.Ended, Held: t.Held, Settle: t.Settle,
		Age: t.Age, Delay: t.Delay, Policy: t.Policy, PrevClass: t.PrevClass, From: t.From, DeadFor: t.DeadFor,
	}
}
