package onceq

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/ahead"
	"github.com/onceq/onceq/internal/batch"
	"github.com/onceq/onceq/internal/durations"
	"github.com/onceq/onceq/internal/engine"
	"github.com/onceq/onceq/internal/retry"
	"github.com/onceq/onceq/internal/steering"
	"github.com/onceq/onceq/internal/sweep"
	"github.com/onceq/onceq/internal/values"
)

// This file owns Worker: how it is made, runs, pauses and drains. The user calls the exported
// methods; Run starts the hands and the pollers (poll.go). w.mu guards what stands below it. It is
// let go before a log or an Observer is called, and before anything is handed back. A flow's pause
// begins and ends under it, so that the flow obeys who came last.

// Worker runs the jobs of a queue. It receives messages, keeps them hidden while they are worked
// on, and acks them. It claims, runs and settles their jobs as its [Processor] says.
type Worker struct {
	c     WorkerConfig
	p     *intake
	queue broker.Receiver
	l     broker.Limits
	tell  teller

	acks  *batch.Queue[*run]
	nacks *batch.Queue[*run]

	mu      sync.Mutex
	flow    *flow                       // while Run is under way
	pollers *pollers                    // of the flow
	steward *steering.Steward           // the same; nil where there are no rules and no seat
	ended   time.Time                   // the last Run; zero = there was none
	paused  map[engine.Pauses]time.Time // why, and since when
	bounds  bounds
}

// ackFlight is how many calls of Ack, and how many of Nack, are in flight at once. There are at
// least as many as receives, because what comes in must go out as fast.
func (c *WorkerConfig) ackFlight() int { return max(4, c.Pollers) }

// unflushed is how many full batches may wait for their Ack or Nack. It is enough to keep the calls
// busy, and it bounds what piles up where a queue is slow to take them.
func (c *WorkerConfig) unflushed() int { return max(32, 2*c.ackFlight()) }

// Worker makes a worker that runs the jobs of the queue. It validates the configuration and does no
// I/O. A Processor may have any number of Workers, on one queue or on several.
func (p *Processor) Worker(queue broker.Receiver, c WorkerConfig) (*Worker, error) {
	if err := p.checkHandler(); err != nil {
		return nil, err
	}
	if values.IsNil(queue) {
		return nil, badConfig("Processor.Worker", "the queue is nil")
	}
	l := queue.Limits()
	c = c.complete(l)
	if err := c.check(queue, l, &p.c); err != nil {
		return nil, err
	}
	if err := p.checkRelayed("WorkerConfig", c.DeadLetter, queue); err != nil {
		return nil, err
	}
	if err := p.checkRoom(c.Concurrency); err != nil {
		return nil, err
	}
	if err := p.checkName("WorkerConfig", c.Name, queue); err != nil {
		return nil, err
	}
	in, err := p.newIntake(deliveries{
		letters: c.DeadLetter, name: c.Name, queue: queue, holdGroup: c.HoldGroup,
		visibility: c.Visibility, limits: l, slots: c.Concurrency,
	})
	if err != nil {
		return nil, err
	}
	if p.c.Control.isOn() {
		in.took = steering.NewSketches(p.typeNames())
	}
	w := &Worker{c: c, p: in, queue: queue, l: l}
	w.tell = teller{in, &w.c}
	w.acks = batch.New(batch.Options{Max: l.SettleBatch, Flight: c.ackFlight(), Linger: c.AckLinger}, w.ack)
	w.nacks = batch.New(batch.Options{Max: l.SettleBatch, Flight: c.ackFlight()}, w.nack)
	if c.Carry != nil {
		in.carry = &carrier{in: in, to: c.Carry, drain: c.DrainTimeout, patience: in.patience, acks: w.acks.Add, back: w.nacks.Add}
		if p.c.Key != nil {
			in.carry.keyOf = in.keyOf
		}
		in.carry.queue = batch.New(batch.Options{Max: c.Carry.Limits().SendBatch, Flight: c.ackFlight()}, in.carry.send)
	}
	return w, nil
}

// Run works until ctx ends, and then drains:
//
//   - It receives nothing more, and hands back at once what was never started.
//   - It lets the handlers run on for DrainTimeout. Then it ends their contexts with the cause
//     [ErrDraining].
//   - It returns nil when every job has been settled. When DrainTimeout + SettleTimeout are over,
//     it returns a *[DrainError] with the jobs that were not.
//
// Run ends by itself, with the queue's error, when the queue is closed, or is not there at the
// first receive. It refuses a Retention that is shorter than the time for which the queue and the
// dead-letter queue together keep a message, where they tell it; a WARN says where they could not
// be asked. It also logs how far ahead a job may be due, because a job that the queue cannot keep
// until then becomes a dead letter of class "too-early". ControlOptions.Strict has it refuse to
// work beside a worker with other settings. A Worker runs once at a time: a second Run gets
// [ErrRunning].
//
// A queue with a redrive of its own (SQS's maxReceiveCount) counts every receive. It also counts
// those of a duplicate while the first message runs: where a job takes ten times the visibility
// timeout, its duplicate is received about five times. A limit of 3 may then move the duplicate to
// the dead-letter queue, although its job is done. A limit of MaxAttempts and 10 more is enough.
func (w *Worker) Run(ctx context.Context) error {
	// A message's own way begins in poller.poll. From Flow.Offer on the engine has it, until it
	// comes back to a hand, to run the handler, and to workerHost.Ended, to be acked.
	ready := make(chan *run, w.c.Concurrency)
	f := w.newFlow(ctx, ready)
	defer f.Close()
	ps := &pollers{w: w, f: f}
	st := w.newSteward(f)
	if err := w.enter(f, ps, st); err != nil {
		return err
	}
	defer w.leave()
	if err := w.look(ctx); err != nil {
		return err
	}

	if err := st.CheckStrict(ctx); err != nil {
		return err
	}
	w.tell.logStart(f, w.isPaused())
	st.ReadFirst(ctx)
	hands := &hands{w: w, ready: ready}
	for range w.c.Concurrency {
		hands.add()
	}
	receiving, stop := context.WithCancelCause(ctx)
	ps.fatal = stop
	ps.start(receiving)
	swept := sweep.Start(receiving, sweep.Config{
		Store: w.p.c.Store, Every: w.c.SweepEvery, CallTimeout: w.p.c.CallTimeout, Owner: w.p.c.Owner, Logger: w.p.c.Logger,
	})
	st.Start(receiving)

	<-receiving.Done() // ctx has ended, or a poller has found that receiving can never succeed
	// The time for a sweep goes by beside the drain, because Run must not outlast its hard end.
	late := time.Now().Add(w.p.c.SettleTimeout)
	hard := time.Now().Add(durations.Sum(w.c.DrainTimeout, w.p.c.SettleTimeout))
	fatal := context.Cause(receiving)
	stop(nil)

	err := w.drain(f, &ps.all)
	st.Stop(hard)
	swept(late)
	close(ready) // the hands end when they have nothing left
	if err == nil {
		hands.all.Wait() // else a handler that runs on would hold up Run
	}
	if ctx.Err() == nil {
		return errors.Join(fatal, err)
	}
	return err
}

// newFlow is the way of one Run's messages through the slots.
func (w *Worker) newFlow(ctx context.Context, ready chan<- *run) *flow {
	return w.p.e.NewFlow(&workerHost{deliveryHost{w.p}, w.l, ready, w.acks, w.nacks}, engine.Terms{
		Base:       context.WithoutCancel(ctx),
		Deliveries: w.queue,
		Ordered:    w.l.OrderedGroups,
		Letters:    w.p.lettersTo(),
		Abandons:   true,
	}, engine.SlotOptions[Job]{
		Slots:    w.c.Concurrency,
		Capacity: w.c.Concurrency + w.c.Prefetch,
		Live:     2*w.c.Concurrency + w.c.Prefetch + w.c.unflushed()*w.l.SettleBatch,
		Follow:   (w.c.Concurrency + w.c.Prefetch) * w.l.ReceiveBatch,
		Nack:     func(r *run) { w.nacks.Add(r) },
	})
}

func (w *Worker) enter(f *flow, ps *pollers, st *steering.Steward) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.flow != nil {
		return ErrRunning
	}
	w.flow, w.pollers, w.steward = f, ps, st
	f.SetPaused(w.pauses())
	w.bounds.rules = 0 // they are read anew
	slots, _ := w.bounds.lowest()
	_ = f.Limit(slots) // nothing waits yet
	w.acks.SetLinger(w.c.AckLinger)
	w.keep(true)
	return nil
}

func (w *Worker) leave() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.flow, w.pollers, w.steward, w.ended = nil, nil, nil, time.Now()
	w.keep(false)
}

func (w *Worker) keep(on bool) {
	w.p.e.Keep(on)
	w.acks.Keep(on)
	w.nacks.Keep(on)
}

// present is what Run has under way; f is nil where none is, and ended when the last one was over.
func (w *Worker) present() (f *flow, ps *pollers, ended time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.flow, w.pollers, w.ended
}

// steering is the steward of the Run that is under way; nil = there is none.
func (w *Worker) steering() *steering.Steward {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.steward
}

// Pause stops receiving, and hands back what was never started. Running handlers go on. It may be
// called before Run, and returns at once.
func (w *Worker) Pause() { w.pause(engine.ByHand) }

// Resume ends a Pause. It ends neither an operator's nor a breaker's.
func (w *Worker) Resume() { w.resume(engine.ByHand) }

// pause pauses for one reason, besides those that hold already.
func (w *Worker) pause(why engine.Pauses) {
	w.mu.Lock()
	_, holds := w.paused[why]
	if !holds {
		if w.paused == nil {
			w.paused = make(map[engine.Pauses]time.Time)
		}
		w.paused[why] = time.Now()
	}
	f, handBack := w.flow, func() {}
	if f != nil {
		handBack = f.Pause(why)
	}
	w.mu.Unlock()
	handBack() // first, because an Observer may be slow, and other workers wait for the messages
	if f != nil && !holds {
		w.tell.logPause(f, why)
	}
}

// resume ends one reason. The worker goes on when none is left.
func (w *Worker) resume(why engine.Pauses) {
	w.mu.Lock()
	since, holds := w.paused[why]
	delete(w.paused, why)
	left, f := w.pauses(), w.flow
	if f != nil {
		f.Resume(why)
	}
	w.mu.Unlock()
	if f != nil && holds {
		w.tell.logResume(f, why, left, since)
	}
}

// pauses are the reasons that hold. The caller holds the lock.
func (w *Worker) pauses() (all engine.Pauses) {
	for why := range w.paused {
		all |= why
	}
	return all
}

// isPaused are the reasons that hold now.
func (w *Worker) isPaused() engine.Pauses {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.pauses()
}

// drain returns when every job has ended, or at the hard end.
func (w *Worker) drain(f *flow, pollers *sync.WaitGroup) (err error) {
	defer w.tell.logDrain(f, &err)()
	f.Stop()
	w.acks.SetLinger(0)
	if w.c.DrainTimeout == 0 {
		f.CutOff()
	} else {
		defer time.AfterFunc(w.c.DrainTimeout, f.CutOff).Stop()
	}
	left := make(chan []*run, 1)
	hard := time.AfterFunc(durations.Sum(w.c.DrainTimeout, w.p.c.SettleTimeout), func() { left <- f.Abandon() })
	defer hard.Stop()
	ended := make(chan struct{})
	go func() {
		pollers.Wait()
		f.Wait()
		close(ended)
	}()
	select {
	case <-ended:
		if !f.Abandoned() {
			return nil
		}
	case rs := <-left: // also where a receive does not end: what it still brings is handed back
		return w.abandoned(rs)
	}
	return w.abandoned(<-left)
}

func (w *Worker) abandoned(rs []*run) error {
	if len(rs) == 0 {
		return nil
	}
	e := &DrainError{Jobs: make([]string, len(rs))}
	for i, r := range rs {
		e.Jobs[i] = w.p.observeAbandoned(r).JobID
	}
	return e
}

// look warns once, at the start, of what the configuration cannot promise. Where it would break a
// promise, look answers an error.
func (w *Worker) look(ctx context.Context) error {
	log := w.p.log
	if w.l.Durable && !w.p.c.Store.Limits().Durable {
		log.LogAttrs(ctx, slog.LevelWarn, "onceq: the queue is durable and the store is not: after a restart a job may be done again")
	}
	if isNoStore(w.p.c.Store) && relayIn(w.p.c.Handler) == nil && w.p.c.Control.asked && !w.p.asked.unsteered.Swap(true) {
		log.LogAttrs(ctx, slog.LevelWarn, "onceq: there is no Store, so no operator's rule reaches this worker, and nobody sees it")
	}
	if !isNoStore(w.p.c.Store) && w.p.c.Lease/2 < w.p.c.CallTimeout {
		log.LogAttrs(ctx, slog.LevelWarn, "onceq: Lease is below twice CallTimeout: one slow call of the store uses a claim up, and its handler does not start or is cut off",
			slog.Duration("lease", w.p.c.Lease), slog.Duration("call_timeout", w.p.c.CallTimeout))
	}
	if !w.l.Extends {
		log.LogAttrs(ctx, slog.LevelWarn, "onceq: the queue cannot extend a delivery: set its visibility timeout, or ack deadline, above the longest job; a longer one is delivered again, and waits for the first")
	}
	receives, kept, err := w.policy(ctx, w.queue)
	w.p.foreign.keeps.Store(int64(kept))
	w.p.foreign.receives.Store(int64(receives))
	w.warnUnread(ctx, "queue", err)
	w.warnRedrive(ctx, receives, err)
	w.tellWaits(ctx)
	w.warnShort(ctx, kept, err)
	return w.checkRetention(ctx, kept)
}

// warnUnread tells that a queue's settings could not be read, where the queue has some. What look
// checks by them then goes unchecked, and nobody would know.
func (w *Worker) warnUnread(ctx context.Context, of string, err error) {
	if err == nil || errors.Is(err, broker.ErrUnsupported) {
		return
	}
	w.p.log.LogAttrs(ctx, slog.LevelWarn, "onceq: the settings of the "+of+" could not be read, such as how long it keeps a message: a Retention that is too short is not refused, and a job that is due later than the queue keeps it is not either: it is lost",
		slog.Any("error", err))
}

// policy reads how a queue dead-letters and how long it keeps messages.
func (w *Worker) policy(ctx context.Context, b any) (receives int, kept time.Duration, err error) {
	r, ok := broker.As[broker.Redriver](b)
	if !ok {
		return 0, 0, broker.ErrUnsupported
	}
	call := engine.CallContext(ctx, w.p.c.CallTimeout)
	defer call.Close()
	p, err := engine.Guard(func() (broker.RedrivePolicy, error) { return r.Redrive(call) })
	if err != nil {
		return 0, 0, err
	}
	return p.MaxReceives, p.Retention, nil
}

// checkRetention refuses a Retention that ends while a message, or its letter, may still come,
// because what was done would be done again. A time that cannot be read counts as 0.
func (w *Worker) checkRetention(ctx context.Context, queue time.Duration) error {
	_, letters, err := w.policy(ctx, w.c.DeadLetter)
	w.warnUnread(ctx, "dead-letter queue", err)
	least := durations.Sum(max(0, queue), max(0, letters))
	if isNoStore(w.p.c.Store) || w.p.c.Retention >= least {
		return nil
	}
	return badConfig("ProcessorConfig.Retention", "%v is below %v, for which the queue (%v) and the dead-letter queue (%v) keep a message", w.p.c.Retention, least, queue, letters)
}

// shortRetention is less than people mean for a queue that keeps its messages as long as it takes.
const shortRetention = 24 * time.Hour

// warnShort tells of a Retention that nothing refuses, because the queue keeps its messages for
// ever.
func (w *Worker) warnShort(ctx context.Context, kept time.Duration, err error) {
	if err != nil || kept != 0 || !w.l.Durable || isNoStore(w.p.c.Store) || w.p.c.Retention >= shortRetention {
		return
	}
	w.p.log.LogAttrs(ctx, slog.LevelWarn, "onceq: Retention is short, and the queue keeps a message as long as it takes: a duplicate that comes later is done again, and a job that waits longer becomes a letter, unproven",
		slog.Duration("retention", w.p.c.Retention))
}

// warnRedrive looks at the queue's own redrive, where it can be read. A redrive must not take a job
// away before MaxAttempts. Where letters are left to it, there must be one.
func (w *Worker) warnRedrive(ctx context.Context, receives int, err error) {
	keeps := w.p.lettersTo() == engine.ToNobody
	switch most := w.p.c.Defaults.MaxAttempts; {
	case err != nil:
	case relayIn(w.p.c.Handler) != nil: // what cannot be sent is to stay
		if receives > 0 {
			w.p.log.LogAttrs(ctx, slog.LevelWarn, "onceq: the queue has a redrive policy: while the destination of a Forward is away, it moves messages that were not sent",
				slog.Int("max_receives", receives))
		}
	case keeps && receives == 0:
		w.p.log.LogAttrs(ctx, slog.LevelWarn, "onceq: dead letters are left to the queue, and it has no redrive policy: a job that cannot be done comes back for ever")
	case !keeps && receives > 0 && (most < 0 || receives <= most):
		w.p.log.LogAttrs(ctx, slog.LevelWarn, "onceq: the queue moves a message away before its attempts are used up; raise its limit well above MaxAttempts, for every receive counts, a duplicate's too",
			slog.Int("max_receives", receives), slog.Int("max_attempts", most))
	}
}

// tellWaits says at the start how far ahead a job may be due on this queue, where that is known. It
// warns where the configuration lets more through.
func (w *Worker) tellWaits(ctx context.Context) {
	most, ok := w.p.patience().Longest()
	if !ok {
		return
	}
	lets := w.p.c.Defaults.Ceilings.NotBefore
	for _, t := range w.p.types {
		if o := t.options.Ceilings.NotBefore; o < 0 || lets >= 0 && o > lets {
			lets = o
		}
	}
	level := slog.LevelInfo
	if lets < 0 || lets > most { // somebody has asked for it
		level = slog.LevelWarn
	}
	w.p.log.LogAttrs(ctx, level, "onceq: the queue cannot keep a job that is due later than this; such a job becomes a dead letter, class \"too-early\"",
		slog.String("latest", ahead.Days(most)), slog.Duration("longest_delay", most))
}

// teller logs, and tells the Observer, what a Worker does: that it starts, pauses, goes on, and
// drains. No lock is held.
type teller struct {
	in *intake
	c  *WorkerConfig
}

func (t teller) logStart(f *flow, paused engine.Pauses) {
	ctx := f.Terms.Base
	t.in.log.LogAttrs(ctx, slog.LevelInfo, "onceq: the worker starts", slog.String("scope", t.in.c.Scope), slog.Int("concurrency", t.c.Concurrency),
		slog.Int("pollers", t.c.Pollers), slog.Duration("visibility", t.c.Visibility), slog.Bool("paused", paused != 0))
	t.in.tellEvent(ctx, WorkerEvent{Kind: EventStarted})
	for _, reason := range reasons(paused) {
		t.in.tellEvent(ctx, WorkerEvent{Kind: EventPaused, Reason: reason})
	}
}

func (t teller) logPause(f *flow, why engine.Pauses) {
	t.in.log.LogAttrs(f.Terms.Base, slog.LevelInfo, "onceq: paused; nothing is received, and what runs goes on", slog.Int("running", f.Running()), slog.Any("for", reasons(why)))
	for _, reason := range reasons(why) {
		t.in.tellEvent(f.Terms.Base, WorkerEvent{Kind: EventPaused, Reason: reason})
	}
}

// logResume tells that the pause for the reasons is over, and what still holds.
func (t teller) logResume(f *flow, why, left engine.Pauses, since time.Time) {
	if left != 0 {
		t.in.log.LogAttrs(f.Terms.Base, slog.LevelInfo, "onceq: a pause is over, and another one holds", slog.Any("over", reasons(why)), slog.Any("for", reasons(left)))
	} else {
		t.in.log.LogAttrs(f.Terms.Base, slog.LevelInfo, "onceq: resumed", slog.Int("running", f.Running()))
	}
	for _, reason := range reasons(why) {
		t.in.tellEvent(f.Terms.Base, WorkerEvent{Kind: EventResumed, Reason: reason, Since: since})
	}
}

// logDrain logs that a drain begins. The caller calls ended when it is over, which logs how it
// went.
func (t teller) logDrain(f *flow, err *error) (ended func()) {
	ctx := f.Terms.Base
	t.in.log.LogAttrs(ctx, slog.LevelInfo, "onceq: draining; nothing is received, and what runs has until drain_timeout",
		slog.Int("running", f.Running()), slog.Duration("drain_timeout", t.c.DrainTimeout))
	t.in.tellEvent(ctx, WorkerEvent{Kind: EventDraining})
	began := time.Now()
	return func() {
		took := slog.Duration("took", time.Since(began).Round(time.Millisecond))
		if *err != nil {
			t.in.log.LogAttrs(ctx, slog.LevelError, "onceq: the drain has ended, and jobs had not", took, slog.Any("error", *err))
		} else {
			t.in.log.LogAttrs(ctx, slog.LevelInfo, "onceq: drained", took)
		}
		t.in.tellEvent(ctx, WorkerEvent{Kind: EventDrained, Err: *err, Since: began})
	}
}

// ack removes finished messages from the queue. Here alone are messages of a Worker acked. An ack
// proves nothing, and need not succeed, because a message that comes again finds its key done.
func (w *Worker) ack(rs []*run) {
	w.flush(rs, func(ctx context.Context, rs []*run) error {
		receipts := make([]broker.Receipt, len(rs))
		for i, r := range rs {
			receipts[i] = r.Receipt()
		}
		return w.queue.Ack(ctx, receipts)
	}, w.acks.Add)
}

// nack gives messages back.
func (w *Worker) nack(rs []*run) {
	w.flush(rs, func(ctx context.Context, rs []*run) error {
		holds, now := make([]broker.Hold, len(rs)), time.Now()
		for i, r := range rs {
			holds[i] = broker.Hold{Receipt: r.Receipt(), For: max(0, min(r.Verdict.Delay, w.l.MaxNack, w.p.e.TotalLeft(r, now)))}
		}
		return w.queue.Nack(ctx, holds)
	}, w.nacks.Add)
}

// flush sends a batch when no beat of its messages is in flight any more, because a beat that came
// after a nack would undo it. What fails for now is held, and sent again. What fails for good is
// left to its timeout.
func (w *Worker) flush(rs []*run, send func(context.Context, []*run) error, again func(...*run)) {
	ctx := engine.CallContext(context.Background(), w.p.c.CallTimeout)
	if err := w.p.e.Quiesce(ctx, rs); err != nil {
		ctx.Close()
		ctx = engine.CallContext(context.Background(), w.p.c.CallTimeout)
	}
	_, err := engine.Guard(func() (struct{}, error) { return struct{}{}, send(ctx, rs) })
	ctx.Close()
	if err == nil {
		for len(rs) > 0 { // by flow, because runs of an earlier, abandoned Run may be among them
			n := 1
			for n < len(rs) && rs[n].Flow() == rs[0].Flow() {
				n++
			}
			rs[0].Flow().Gone(rs[:n]...)
			rs = rs[n:]
		}
		return
	}
	for i, r := range rs {
		e := broker.ErrAt(err, i)
		if e != nil && w.retries(r, e) {
			time.AfterFunc(retry.Pause(r.Tries()), func() { again(r) })
			continue
		}
		r.Flow().Gone(r)
	}
}

// retries reports whether a failed ack or nack is worth another try, and holds the message for it.
func (w *Worker) retries(r *run, err error) bool {
	if errors.Is(err, broker.ErrReceiptExpired) || errors.Is(err, broker.ErrClosed) || errors.Is(err, broker.ErrNotFound) {
		return false
	}
	if errors.Is(err, broker.ErrUnsupported) || !r.Repeats(w.p.c.SettleTimeout) {
		w.p.log.LogAttrs(r.Flow().Terms.Base, slog.LevelWarn, fmt.Sprintf("onceq: %v failed; the message will be delivered again", Action(r.Action)),
			slog.String("job", r.Name()), slog.Any("error", err))
		return false
	}
	w.p.e.HoldAgain(r)
	return true
}
