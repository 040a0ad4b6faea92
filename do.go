package onceq

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/durations"
	"github.com/onceq/onceq/internal/engine"
	"github.com/onceq/onceq/internal/retry"
	"github.com/onceq/onceq/internal/verdict"
)

// This file owns a call of Do, from its options to its answer: whether it makes a claim of its own
// (try), takes what another call of this process finds out (flights, in processor.go), or waits and
// asks again. All of it runs in the caller's goroutine, and holds no lock.

// DoOptions say how one call of [Do] goes. The zero value and nil are usable.
type DoOptions struct {
	// Fingerprint is a digest of the request. A call gets a *[MismatchError] when its key is known
	// with another fingerprint. nil = not compared.
	Fingerprint []byte
	// Wait is how long the call waits for another run of its key to end, to take its result. 0 =
	// not at all: it gets an *[InProgressError] at once. Else it is at least 1 ms. A call waits for
	// a run through the same Processor without asking the store. For a run of another process it
	// asks the store seldom: every 2 s or so, where the run is long.
	Wait time.Duration
	// Timeout bounds the run of f. 0 = the Processor's Defaults.Timeout, else at least 1 ms. At its
	// end f's context is cancelled with the cause [ErrTimeout].
	Timeout time.Duration
	// Interrupted says what becomes of the key when the process dies, or the run is cut off, after
	// f has begun. After dedupe.Rerun (the default) the next call runs f again. After dedupe.Park
	// later calls get a *[ParkedError]. Park wins: where the Processor's Defaults say Park, this
	// cannot undo it.
	Interrupted dedupe.Policy
	// Reopen tries a failed or parked key again. Give the Fence of the *[FailedError] or
	// *[ParkedError] that a call got: it reopens exactly that failure, once. On any other state of
	// the key it changes nothing. It is an operator's word that the cause is mended, or that a
	// parked effect has not happened. Never set it blindly. 0 = none.
	Reopen uint64
}

func (o *DoOptions) check() error {
	switch {
	case o.Wait < 0:
		return badConfig("DoOptions.Wait", "%v is negative", o.Wait)
	case durations.IsBare(o.Wait):
		return badConfig("DoOptions.Wait", "%s", durations.AskUnit(o.Wait))
	case o.Timeout < 0:
		return badConfig("DoOptions.Timeout", "%v is negative", o.Timeout)
	case durations.IsBare(o.Timeout):
		return badConfig("DoOptions.Timeout", "%s", durations.AskUnit(o.Timeout))
	case o.Interrupted > dedupe.Park:
		return badConfig("DoOptions.Interrupted", "%v is neither Rerun nor Park", o.Interrupted)
	}
	return nil
}

// Do runs f once for the key, outside any queue: in an HTTP handler, a webhook, a cron job. It
// records what f returns with the key, as JSON, and later calls get that without a run. Concurrent
// calls of one key, in any process, get one run. An empty k.Scope means the Processor's
// Defaults.Scope, else its Scope. The Processor needs no Handler for Do.
//
// f runs in the caller's goroutine. Its context has the values of ctx, and ends with ctx, with the
// same cause. It ends with the cause [ErrLeaseLost] when the key is lost to another. The claim is
// renewed while f runs. How f ends decides what becomes of the key:
//
//   - nil: done. The result may be 0, "" or nil. Later calls get it until Retention is over.
//   - an error: the key is released, and the next call runs f again. There is no limit on attempts.
//     The caller gets f's own error.
//   - [Permanent]: failed. Later calls get a *[FailedError]; no letter is put. See
//     DoOptions.Reopen.
//   - a result that does not encode, or that is larger than the store takes: failed too, class
//     "result", because its effect has happened and must not be repeated. This one caller gets the
//     result, with the error.
//   - a panic, or runtime.Goexit: as an error, class "panic". Then it goes on to the caller.
//   - under Park, cut off by ctx, by Timeout or by a panic, or [Unknown]: parked. The caller and
//     later calls get a *[ParkedError].
//
// Where f completes the job through a store's CompleteTx, that transaction decides. Give CompleteTx
// the result that f returns.
//
// Do records how f ended even when ctx has ended. It tries that for SettleTimeout; a call of the
// store that hangs may take its CallTimeout more. Where nobody knows whether a claim was won, Do
// returns, and a goroutine tries for as long to give the claim back. In a bubble of
// testing/synctest wait for that before the test ends.
//
// Do's own errors say what is known:
//
//   - f has not run in this call after an *[InProgressError], a *[MismatchError] or a
//     *[NotRunError]. Nor has it after a *[FailedError] or *[ParkedError] that tells of another
//     call's run.
//   - f has run after an *[UnsettledError], and that is not recorded.
//   - Without a store Do answers [ErrNoStore].
func Do[R any](ctx context.Context, p *Processor, k dedupe.Key, o *DoOptions, f func(ctx context.Context, j *Job) (R, error)) (R, error) {
	var v R
	if f == nil {
		return v, badConfig("Do", "f is nil")
	}
	c, err := newCall(p, k, o)
	if err != nil {
		return v, err
	}
	c.f = func(ctx context.Context, j *Job) error {
		var err error
		if v, err = f(ctx, j); err != nil {
			return err
		}
		return keep(j, v)
	}
	a := c.do(ctx)
	if a.stored {
		return decodeResult[R](c.key, a.result)
	}
	return v, a.err
}

// call is one call of Do.
type call struct {
	p     *intake
	key   dedupe.Key
	o     DoOptions
	opts  engine.JobOptions
	f     func(context.Context, *Job) error
	until time.Time        // how long another run is waited for
	busy  *InProgressError // what the wait knows of that run; nil = nothing, or it has ended
}

func newCall(p *Processor, k dedupe.Key, o *DoOptions) (*call, error) {
	c := &call{key: k}
	if o != nil {
		c.o = *o
		c.o.Fingerprint = bytes.Clone(o.Fingerprint) // a claim may be on its way after Do has returned
	}
	if p == nil {
		return nil, badConfig("Do", "the Processor is nil")
	}
	if isNoStore(p.c.Store) {
		return nil, ErrNoStore
	}
	c.p = p.calls
	d := &p.c.Defaults
	c.key.Scope = cmp.Or(k.Scope, d.Scope, p.c.Scope)
	if err := checkKey(c.key); err != nil {
		return nil, err
	}
	if err := c.o.check(); err != nil {
		return nil, err
	}
	c.opts = engine.JobOptions{
		Most: -1, Policy: max(c.o.Interrupted, d.Interrupted), Timeout: cmp.Or(c.o.Timeout, d.Timeout),
		Backoff: func(int, error) time.Duration { return 0 }, // the next call need not wait
	}
	c.until = time.Now().Add(c.o.Wait)
	return c, nil
}

// do goes on until it has an answer: from a run of its own, from another call's run in this
// process, or from the store's record. The first call of a key in this process leads, and the
// others follow it.
func (c *call) do(ctx context.Context) answer {
	if err := c.p.pausedCall(ctx, c.key); err != nil {
		return answer{err: err}
	}
	for {
		if ctx.Err() != nil {
			return answer{err: c.notRun(context.Cause(ctx), nil)}
		}
		fl, leads := c.p.flights.join(c.key, c.o.Fingerprint)
		var a answer
		if fl == nil || leads {
			a = c.try(ctx, fl)
		} else if told := c.follow(ctx, fl, &a); !told {
			continue
		}
		if !a.again.IsZero() {
			errors.As(a.err, &c.busy)
		}
		if a.again.IsZero() || !c.waits(time.Now()) {
			return a
		}
		retry.Rest(ctx, time.Until(earlier(a.again, c.until))) // cut short where ctx ends, and the loop says so
	}
}

// waits reports whether the call still waits for another run.
func (c *call) waits(now time.Time) bool { return now.Before(c.until) }

// follow waits for what another call of this process finds out. It is false where that is no answer
// for this call, which then asks the registry again.
func (c *call) follow(ctx context.Context, fl *flight, a *answer) bool {
	bound := time.NewTimer(c.p.e.ClaimTime()) // as long as the call that leads waits for its claim
	defer bound.Stop()
	select {
	case <-fl.runs:
	case <-fl.done:
	case <-ctx.Done():
		return false
	case <-bound.C:
		*a = answer{err: c.notRun(nil, nil)}
		return true
	}
	left := time.Until(c.until)
	if left > 0 {
		// A run whose lease is lost may go on for long, so this call looks at the registry again
		// after a Lease.
		pause := time.NewTimer(min(left, c.p.c.Lease))
		defer pause.Stop()
		select {
		case <-fl.done:
		case <-pause.C:
			return false
		case <-ctx.Done(): // and do says so, with what is known of the run
		}
	}
	select {
	case <-fl.done:
		c.busy = nil
		*a = fl.answer
		return a.suits(c.o.Fingerprint, c.o.Reopen)
	default:
	}
	*a = c.inProgress(c.p.c.Lease, time.Since(fl.began))
	return true
}

// message stands in for a delivery, because a call of Do has none.
func (c *call) message() *broker.Message {
	g := &given{meta: broker.Meta{ID: c.key.Key, Key: c.key.Key}}
	g.message.Meta = &g.meta
	return &g.message
}

// inProgress is the answer where another run holds the key. The pause before the next question
// grows with the age of that run, so that a long run costs few questions. It is never longer than
// the lease that is left, because the key may be free then.
func (c *call) inProgress(left, age time.Duration) answer {
	pause := min(max(100*time.Millisecond, age/2), 2*time.Second)
	if left > 0 { // else the lease is over, and the transaction of its owner locks the record
		pause = min(pause, durations.Sum(left, 10*time.Millisecond))
	}
	return answer{
		err:   &InProgressError{Key: c.key, RetryAfter: max(time.Second, min(age, left)), Age: age},
		again: time.Now().Add(pause),
	}
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// notRun is the error of a call that ended before f began. It names the cause, and what the store
// said last.
func (c *call) notRun(cause, store error) error {
	return notRun(c.key, c.busy, cause, store)
}

func notRun(k dedupe.Key, busy *InProgressError, cause, store error) error {
	switch {
	case cause == nil && store == nil:
		cause = errNoAnswer
	case cause == nil:
		cause = store
	case store != nil:
		cause = fmt.Errorf("%w (the store: %w)", cause, store)
	}
	if busy != nil {
		cause = fmt.Errorf("%w; another run is under way: %w", cause, busy)
	}
	return &NotRunError{Key: k, Err: cause}
}

// pausedCall answers a call of Do whose scope or type is paused. The type of a key is what follows
// the ':' of its scope. Rules of queues do not touch calls.
func (p *Processor) pausedCall(ctx context.Context, k dedupe.Key) error {
	p.book.Refresh(ctx)
	if !p.book.IsOn() {
		return nil
	}
	if err := p.book.Require(ctx); err != nil {
		return err
	}
	_, typ, _ := strings.Cut(k.Scope, ":")
	v, ok := p.book.PausedJob("", k.Scope, typ)
	if !ok {
		return nil
	}
	return &PausedError{Key: k, Until: v.Until, By: v.By, Reason: v.Reason}
}

// This part owns one claim of a call of Do, its run, and the answers made of how it went. call.do
// calls try, in the goroutine of Do's caller. The engine calls give and end, through callHost; give
// runs under the flow's lock. t.mu guards what the caller and a claim that is late decide together:
// left, outage, storeErr and asking. close(t.over) hands all other fields to the caller.

// try is one claim of a call, and its run where the claim is won. It goes the way of deliveries, in
// a flow of its own with one slot. What differs stands in callHost and in the flow's terms: nothing
// is looked up in a message, no letter is put, and the caller's goroutine runs f in place of the
// Handler.
type try struct {
	c      *call
	fl     *flight // nil = none of the registry's
	f      *flow
	r      *run
	ready  chan *run     // the claim is won
	over   chan struct{} // all is recorded, and the fields below are for the caller to read
	mine   answer        // what the caller gets
	err    error         // that f returned
	inWait time.Duration // what is left of the lease of the run that holds the key
	age    time.Duration // of that run

	mu       sync.Mutex
	storeErr error // the last one
	asking   bool  // storeErr was the answer to a claim, so nobody knows whether that is won
	left     bool  // the caller waits no longer for the claim
	outage   bool  // it has left because the store did not answer
}

// try claims the key, and runs f where the claim is won. When ctx ends before that, or the store
// does not answer, it returns at once. A claim that is still on its way then is given back when it
// comes.
//
// The flow takes the run to its claim (engine: Flow.Offer, claimBatch), and callHost.Start tells
// that it is won. Engine.Work runs f by callHost.Handle, judges its end, and sends that to be
// settled. callHost.Ended tells that all is recorded.
func (c *call) try(ctx context.Context, fl *flight) answer {
	t := c.newTry(ctx, fl)
	stop := context.AfterFunc(ctx, func() {
		if t.r.Context().EndForeign(context.Cause(ctx)) {
			t.r.WatchHandler()
		}
	})
	defer stop()
	t.f.Offer(0, []*run{t.r})
	if a, ended := t.awaitClaim(ctx); ended {
		return a
	}
	c.p.e.Work(t.r)
	<-t.over
	return t.mine
}

// awaitClaim waits until the claim is won. Where the call ends before that, it answers what the
// caller gets.
func (t *try) awaitClaim(ctx context.Context) (a answer, ended bool) {
	select {
	case <-t.ready: // the store is instant
	default:
		if a, ended = t.waitForClaim(ctx); ended {
			return a, true
		}
	}
	if ctx.Err() != nil { // while the claim was won: f must not start, and AfterFunc needs a goroutine
		t.r.Context().EndForeign(context.Cause(ctx))
	}
	return answer{}, false
}

func (t *try) waitForClaim(ctx context.Context) (a answer, ended bool) {
	bound := time.NewTimer(t.c.p.e.ClaimTime())
	defer bound.Stop()
	select {
	case <-t.over: // the claim was not won
		return t.mine, true
	case <-t.ready:
	case <-ctx.Done():
		if !t.leave(false) {
			return answer{err: t.c.notRun(context.Cause(ctx), t.lastErr())}, true
		}
	case <-bound.C:
		if !t.leave(true) {
			return answer{err: t.c.notRun(nil, t.lastErr())}, true
		}
	}
	return answer{}, false
}

func (c *call) newTry(ctx context.Context, fl *flight) *try {
	t := &try{c: c, fl: fl, ready: make(chan *run, 1), over: make(chan struct{})}
	t.f = c.p.e.NewFlow(callHost{t}, engine.Terms{
		Base: context.WithoutCancel(ctx), Caller: ctx, Letters: engine.ToCaller,
		Confirm: c.p.e.ClaimTime(), Waits: true, KeepsEvery: true,
	}, engine.SlotOptions[Job]{Slots: 1, Capacity: 1, Live: 1})
	r := newRun(t.f, c.message(), new(given), time.Now())
	give(r)
	t.r, r.Key, r.Opts = r, c.key, c.opts
	r.SetFingerprint(c.o.Fingerprint)
	r.SetReopens(c.o.Reopen)
	if d, ok := ctx.Deadline(); ok {
		r.Context().SetDeadline(d)
	}
	return t
}

// give hands a claimed run to the caller, or gives it back where the caller has left. It is called
// with the flow's lock held.
func (t *try) give(r *run) {
	if t.fl != nil {
		t.fl.won(r)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.left {
		// The run must not start. A stopped flow would see to that, but leave may stop it only a
		// moment later.
		go t.c.p.e.Conclude(r, verdict.Verdict{To: dedupe.Released, Uncounted: true})
		return
	}
	t.ready <- r
}

// leave makes sure that nothing starts any more, unless the claim was won just now.
func (t *try) leave(outage bool) (won bool) {
	t.mu.Lock()
	select {
	case <-t.ready:
		won = true
	default:
		t.left, t.outage = true, outage
	}
	t.mu.Unlock()
	if !won {
		t.f.Stop()
	}
	return won
}

func (t *try) lastErr() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.storeErr
}

// end makes the answers when the run has its disposition, and lets the caller have its own. A claim
// of which nobody knows whether it was won is given back in the background.
func (t *try) end() {
	p, r := t.c.p, t.r
	p.e.ReleaseLease(r)
	mine, others := t.answers()
	t.mine = mine
	if t.fl != nil {
		p.flights.end(t.c.key, t.fl, others)
	}
	t.mu.Lock()
	doubtful := t.asking && r.Said == 0
	t.mu.Unlock()
	if doubtful {
		go p.e.Forgo(r.Key, r.Token)
	}
	r.Flow().Gone(r)
	r.Flow().Close()
	close(t.over)
}

// answers are what the caller gets, and what the calls get that have waited for it.
func (t *try) answers() (mine, others answer) {
	a := t.found()
	if t.r.Said != dedupe.Won || !t.r.Ran {
		return a, a
	}
	// f has run, so this caller can be told more than the record tells others.
	r, c := t.r, t.c
	switch Outcome(r.Outcome) {
	case OutcomeDone:
		if t.err != nil {
			return c.read(r.Flow().Terms.Base, t.err), a
		}
		return answer{}, a
	case OutcomeFailed:
		return answer{err: cmp.Or(t.err, a.err)}, a
	case OutcomeParked:
		var parked *ParkedError
		if errors.As(a.err, &parked) {
			mine := *parked
			mine.Err = t.err
			return answer{err: &mine}, a
		}
	case OutcomeRetried, OutcomePostponed, OutcomeHandedBack:
		return answer{err: cmp.Or(t.err, verdict.ErrNotCommitted)}, a
	case OutcomeLeaseLost:
		return answer{err: &UnsettledError{Key: c.key, Err: ErrLeaseLost, RunErr: t.err}}, a
	}
	return answer{err: &UnsettledError{Key: c.key, Err: cmp.Or(t.lastErr(), errNoAnswer), RunErr: t.err}}, a
}

// found is the answer of the record, as far as it is known.
func (t *try) found() answer {
	r, c := t.r, t.c
	rec := r.Record()
	v := &r.Verdict
	switch r.Said {
	case dedupe.InProgress:
		return c.inProgress(t.inWait, t.age)
	case dedupe.AlreadyDone:
		if rec != nil {
			return answer{stored: true, result: rec.Result}
		}
	case dedupe.AlreadyFailed:
		return answer{err: failedError(c.key, rec)}
	case dedupe.IsParked:
		return answer{err: parkedError(c.key, rec)}
	case dedupe.Mismatch:
		return answer{err: &MismatchError{Key: c.key}}
	case dedupe.Won:
		switch Outcome(r.Outcome) {
		case OutcomeDone:
			// Where a transaction has stored the result, it is not known here: others must ask the
			// store.
			return answer{stored: true, result: r.Result(), own: r.Joined.Load()}
		case OutcomeFailed:
			return answer{err: &FailedError{Key: c.key, Fence: r.Fence, Class: v.Class, Text: v.Text, At: time.Now()}}
		case OutcomeParked:
			return answer{err: &ParkedError{Key: c.key, Fence: r.Fence, Class: v.Class, Text: v.Text, At: time.Now()}}
		}
	case dedupe.Stale:
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	cause, why := r.Context().Because(), t.storeErr
	if cause == nil && why == nil {
		why = fmt.Errorf("%w (%s) %s", errNoAnswer, r.Outcome, v.Text)
	}
	busy := c.busy
	if r.Said == dedupe.Won {
		busy = nil // the key was free
	}
	return answer{err: notRun(c.key, busy, cause, why), own: !t.outage || r.Said != 0}
}

// read answers a call whose transaction has committed although f returned an error. What is stored
// wins.
func (c *call) read(base context.Context, ran error) answer {
	ctx := engine.CallContext(base, c.p.c.CallTimeout)
	defer ctx.Close()
	rs, err := engine.Guard(func() ([]*dedupe.Record, error) { return c.p.c.Store.Get(ctx, []dedupe.Key{c.key}) })
	if err == nil && (len(rs) != 1 || rs[0] == nil || rs[0].Status != dedupe.Done) {
		err = errNoAnswer
	}
	if err != nil {
		return answer{err: fmt.Errorf("onceq: %v is done, and its result could not be read: %w; the run said: %w", c.key, err, ran)}
	}
	return answer{stored: true, result: rs[0].Result}
}
