package onceq

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/engine"
	"github.com/onceq/onceq/internal/verdict"
)

// This file owns one claim of a call of Do, its run, and the answers made of how it went. call.do
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
	if ctx.Err() != nil { // while the claim was won: f must not start, and AfterFunc needs a goroutine
		t.r.Context().EndForeign(context.Cause(ctx))
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
	case OutcomeRetried, OutcomeHandedBack:
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
		return answer{err: &FailedError{Key: c.key, Fence: rec.Fence, Class: rec.ErrClass, Text: rec.LastErr, At: rec.Finished}}
	case dedupe.IsParked:
		return answer{err: &ParkedError{Key: c.key, Fence: rec.Fence, Class: rec.ErrClass, Text: rec.LastErr, At: rec.Finished}}
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
