package onceq

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/durations"
	"github.com/onceq/onceq/internal/engine"
	"github.com/onceq/onceq/internal/retry"
)

// This file owns a call of Do, from its options to its answer: whether it makes a claim of its own
// (dotry.go), takes what another call of this process finds out (doflights.go), or waits and asks
// again. All of it runs in the caller's goroutine, and holds no lock.

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
