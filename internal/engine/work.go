package engine

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/durations"
	"github.com/onceq/onceq/internal/retry"
	"github.com/onceq/onceq/internal/verdict"
)

// This file owns a handler's run: from the check that the claim lives to the verdict. A host's
// goroutine calls Work, and has the run until its end is on its way. No lock is held while the
// handler runs; its context is ended by whoever calls stopHandler.

// Work runs the handler of a claimed job, in the goroutine that called it, and sends the end on its
// way. It does not return when the handler ends its goroutine; the end is on its way all the same.
// took is how long the handler ran.
//
// What stands on the stack while the handler runs is kept small, so that a job that waits takes the
// smallest stack there is.
func (en *Engine[J]) Work(r *Run[J]) (took time.Duration) {
	if !en.begins(r) {
		return 0
	}
	returned := false
	var err error
	defer func() {
		var v any
		if !returned {
			if v = recover(); v != nil {
				err = verdict.Classed(verdict.Panicked, "panic: %v\n%s", v, debug.Stack())
			} else {
				err = verdict.Classed(verdict.Panicked, "the handler ended its goroutine (runtime.Goexit)")
			}
		}
		took = en.handled(r, err, returned)
		if !returned {
			r.f.Host.Broke(r, v)
		}
	}()
	err = r.f.Host.Handle(r)
	returned = true
	return 0
}

// begins does what comes before the handler, and reports whether that is to run.
func (en *Engine[J]) begins(r *Run[J]) bool {
	if !en.mayStart(r) {
		return false
	}
	// The confirmation may have taken long.
	if r.parks() && !r.Opts.StartsLater && (!en.confirmStart(r) || !en.mayStart(r)) {
		return false
	}
	end := r.f.Terms.Deadline
	// Both are written before the run is running: the batch's end may look at whole, and who
	// abandons the run at the others.
	r.whole = !end.IsZero() && 2*time.Until(end) >= end.Sub(r.f.epoch)
	r.Ran, r.began = true, time.Since(r.f.epoch)
	if !r.advance(running) {
		return false
	}
	if !end.IsZero() {
		r.ctx.SetDeadline(end)
	}
	if r.Opts.Timeout > 0 {
		at := time.Now().Add(r.Opts.Timeout)
		r.ctx.SetDeadline(at)
		en.setTimeout(r, at)
	}
	return true
}

// parks reports whether the job's policy is Park, and there is a claim to record its start under.
func (r *Run[J]) parks() bool { return r.Opts.Policy == dedupe.Park && r.Fence != 0 }

// setTimeout arranges for the job's Timeout to end the handler's context; the zero time ends that
// arrangement. The manager watches the time beside the beats. A run that has no beats has a timer.
func (en *Engine[J]) setTimeout(r *Run[J], at time.Time) {
	switch {
	case !r.hasOneLease():
		en.leases.SetTimeout(&r.held, at)
	case at.IsZero():
		r.later.Load().timeout.Stop()
	default:
		r.ensureLater().timeout = time.AfterFunc(max(1, time.Until(at)), func() { r.stopHandler(verdict.ErrTimeout) })
	}
}

// mayStart ends a run whose handler must not begin any more.
func (en *Engine[J]) mayStart(r *Run[J]) bool {
	switch cut := r.ctx.EndedBy(); {
	case errors.Is(cut, verdict.ErrTaken):
		en.loseClaim(r)
	case cut != nil, !r.f.IsOpen():
		en.Conclude(r, verdict.Verdict{To: dedupe.Released, Uncounted: true})
	case !en.confirmed(r):
		en.Conclude(r, verdict.Verdict{To: dedupe.Released, Class: verdict.Unconfirmed, Text: errTooLate.Error(), Uncounted: true})
	default:
		return true
	}
	return false
}

// MayBegin reports whether what the run's handler has not begun yet may begin. A handler that waits
// before it does anything asks it, by the rules of mayStart.
func (r *Run[J]) MayBegin() bool {
	return r.ctx.EndedBy() == nil && r.f.IsOpen() && r.f.en.confirmed(r)
}

var errTooLate = verdict.Classed(verdict.Unconfirmed, "onceq: the claim was over, or nearly so, before its handler could start")

// confirmed reports whether the run's claim lives, by both clocks and with the margin to spare. Its
// answer may have come late, or the process may have stood still since.
func (en *Engine[J]) confirmed(r *Run[J]) bool {
	return r.Fence == 0 || en.leases.Left(&r.held) > min(en.margin, en.leaseFor(r)/6)
}

// handled is told how the handler ended: with an error, or without having returned. It answers how
// long it ran.
func (en *Engine[J]) handled(r *Run[J], err error, returned bool) (took time.Duration) {
	ended := time.Since(r.f.epoch)
	took = ended - r.began // others may have the run from now on
	if r.Opts.Timeout > 0 {
		en.setTimeout(r, time.Time{})
	}
	if !r.advance(settling) {
		return took // abandoned: Run has ended
	}
	if err != nil {
		overdue(r)
	}
	v := verdict.Of(verdict.Handled{
		Err: err, Panicked: !returned, Cause: r.ctx.Close(), Joined: r.Joined.Load(),
		Parks: r.parks(), Attempt: int(r.Attempt), Most: int(r.Opts.Most),
	})
	switch {
	case v.Backoff: // which may be as short, because a part of it is drawn at random
		v.Delay = en.backoff(r, err)
	case durations.IsBare(v.Delay):
		en.askUnit(r, v.Delay)
	}
	postponed := v.To == dedupe.Released && v.Class == verdict.Postponed
	if postponed {
		l := r.ensureLater()
		l.due, l.why = time.Now().Add(v.Delay), verdict.Text(err)
		if l.limiter = verdict.LimiterOf(err); l.limiter != "" {
			en.o.Limited(l.limiter)
		}
	}
	r.f.returned(r)
	if v.To == 0 {
		en.finish(r, Leave, 0, LeaseLost)
		return took
	}
	if postponed && r.CarryOr() != nil {
		r.Verdict, r.ended, r.tries = v, ended, 0
		r.f.Host.Carry(r)
		return took
	}
	en.settleRun(r, v, ended)
	return took
}

// Carried is told that the message of a run, which comes for the last time, was sent anew, or
// cannot be. A host's goroutine calls it, and has the run until then. The copy is stored before
// anything else is recorded: a crash then leaves two messages of one key, and not one too few.
func (en *Engine[J]) Carried(r *Run[J], stored bool) {
	l := r.later.Load()
	no := l.carryOr
	l.carried = stored
	switch {
	case r.Unclaimed() && stored:
		en.finish(r, Nack, no.Delay, no.Back) // the host acks it, because it was carried
	case r.Unclaimed():
		en.letter(r, no.Class, verdict.Text(no.Err), 0, 0, time.Now())
	case stored:
		en.settleRun(r, r.Verdict, r.ended)
	default:
		en.settleRun(r, verdict.Verdict{To: dedupe.Failed, Class: no.Class, Text: verdict.Text(no.Err)}, r.ended)
	}
}

// overdue handles a handler that returned an error just when we would have cancelled it: its
// deadline has passed (it may have its own timer), or the caller of Do has gone. The run then
// counts as cancelled. Under Park such an end is not the handler's word that nothing happened.
func overdue[J any](r *Run[J]) {
	now := time.Now()
	if c := r.f.Terms.Caller; c != nil {
		if at, ok := c.Deadline(); c.Err() != nil || ok && !now.Before(at) {
			r.ctx.EndForeign(cmp.Or(context.Cause(c), context.DeadlineExceeded))
		}
	}
	at, ok := r.ctx.Deadline()
	switch {
	case !ok || now.Before(at):
	case at.Equal(r.f.Terms.Deadline):
		r.ctx.End(r.outOfTime())
	default:
		r.ctx.End(verdict.ErrTimeout)
	}
}

// Conclude settles a claimed job whose handler has not run.
func (en *Engine[J]) Conclude(r *Run[J], v verdict.Verdict) {
	if !r.advance(settling) {
		return
	}
	r.f.returned(r)
	en.settleRun(r, v, time.Since(r.f.epoch))
}

// confirmStart records, under Park, that the handler is about to run. Without that record a
// takeover would run the job again. So the handler does not start before the store has confirmed
// it.
func (en *Engine[J]) confirmStart(r *Run[J]) bool {
	begin := time.Now()
	for n := 1; ; n++ {
		ctx := CallContext(context.Background(), en.o.CallTimeout)
		answers, err := en.askRenewal(ctx, []dedupe.Renewal{{Key: r.Key, Token: r.Token, TTL: en.leaseFor(r), Started: true}})
		ctx.Close()
		if err == nil {
			err = answers[0].Err
		}
		switch {
		case err == nil:
			en.renewed(r, answers[0].Deadline)
			return true
		case errors.Is(err, dedupe.ErrLeaseLost):
			en.loseClaim(r)
			return false
		case r.ctx.EndedBy() != nil || !r.f.IsOpen() || r.IsOver(), r.f.Terms.Confirm > 0 && time.Since(begin) >= r.f.Terms.Confirm:
			en.Conclude(r, verdict.Verdict{To: dedupe.Released, Class: verdict.Unconfirmed, Text: verdict.Text(err), Uncounted: true})
			return false
		}
		pause := time.NewTimer(retry.Pause(n))
		select {
		case <-pause.C:
		case <-r.ctx.Done():
			pause.Stop()
		}
	}
}

// renewed notes, before the handler has begun, that the store has prolonged the claim.
func (en *Engine[J]) renewed(r *Run[J], deadline time.Time) {
	if r.hasOneLease() {
		r.held.Deadline = deadline
		return
	}
	en.leases.Update(&r.held, deadline)
}

// loseClaim ends a run before its handler has begun, because the store said that the claim is
// somebody else's.
func (en *Engine[J]) loseClaim(r *Run[J]) {
	if r.advance(settling) {
		r.f.returned(r)
		en.finish(r, Leave, 0, LeaseLost)
	}
}

func (en *Engine[J]) backoff(r *Run[J], err error) (d time.Duration) {
	defer func() {
		if v := recover(); v != nil {
			en.o.Logger.LogAttrs(r.f.Terms.Base, slog.LevelError, "onceq: Backoff panicked; the default is used", slog.Any("panic", v))
			d = en.o.Backoff(int(r.Attempt), err)
		}
	}()
	return max(0, r.Opts.Backoff(int(r.Attempt), err))
}
