package onceq

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/retry"
	"github.com/onceq/onceq/internal/verdict"
)

// work runs the handler of a claimed job, in the goroutine that called it, and sends the end on its way.
// It does not return when the handler ends its goroutine; the end is on its way all the same.
func (p *Processor) work(r *run) {
	if !p.mayStart(r) {
		return
	}
	parks := r.opts.policy == dedupe.Park && r.fence != 0
	if parks && (!p.confirmStart(r) || !p.mayStart(r)) { // the confirmation may have taken long
		return
	}
	end := r.f.t.deadline
	r.whole = !end.IsZero() && 2*time.Until(end) >= end.Sub(r.f.epoch) // before it is running: the batch's end may look
	r.ran, r.began = true, time.Since(r.f.epoch)                       // before it is running: who abandons it may look
	if !r.advance(running) {
		return
	}
	if !end.IsZero() {
		r.ctx.setDeadline(end)
	}
	if r.opts.timeout > 0 {
		at := time.Now().Add(r.opts.timeout)
		r.ctx.setDeadline(at)
		p.setTimeout(r, at)
	}
	h := verdict.Handled{Parks: parks, Attempt: r.job.Attempt, Most: int(r.opts.most)}
	returned := false
	defer func() {
		var v any
		if !returned {
			h.Panicked = true
			if v = recover(); v != nil {
				h.Err = classed(ClassPanic, "panic: %v\n%s", v, debug.Stack())
			} else {
				h.Err = classed(ClassPanic, "the handler ended its goroutine (runtime.Goexit)")
			}
		}
		p.handled(r, &h)
		if !returned {
			r.f.host.broke(r, v)
		}
	}()
	h.Err = r.f.host.handle(r)
	returned = true
}

// setTimeout has the job's Timeout called out; the zero time = no more. The manager does it beside the beats; a run that has none has a timer.
func (p *Processor) setTimeout(r *run, at time.Time) {
	switch {
	case !r.hasOneLease():
		p.leases.SetTimeout(&r.held, at)
	case at.IsZero():
		r.later.timeout.Stop()
	default:
		r.makes().timeout = time.AfterFunc(max(1, time.Until(at)), func() { r.stopHandler(ErrTimeout) })
	}
}

// mayStart ends a run whose handler must not begin any more.
func (p *Processor) mayStart(r *run) bool {
	switch cut := r.ctx.endedBy(); {
	case errors.Is(cut, verdict.ErrTaken):
		p.loseClaim(r)
	case cut != nil, !r.f.isOpen():
		p.conclude(r, verdict.Verdict{To: dedupe.Released, Uncounted: true})
	case !p.confirmed(r):
		p.conclude(r, verdict.Verdict{To: dedupe.Released, Class: ClassLease, Text: errTooLate.Error(), Uncounted: true})
	default:
		return true
	}
	return false
}

var errTooLate = classed(ClassLease, "onceq: the claim was over, or nearly so, before its handler could start")

// confirmed tells whether the run's claim lives, by both clocks and with the margin to spare: its answer may have come late, or
// the process stood still since.
func (p *Processor) confirmed(r *run) bool {
	return r.fence == 0 || p.leases.Left(&r.held) > min(p.margin, p.leaseFor(r)/6)
}

// handled is told how the handler ended.
func (p *Processor) handled(r *run, h *verdict.Handled) {
	ended := time.Since(r.f.epoch)
	if r.opts.timeout > 0 {
		p.setTimeout(r, time.Time{})
	}
	if !r.advance(settling) {
		return // abandoned: Run has ended
	}
	if h.Err != nil {
		overdue(r)
	}
	h.Cause = r.ctx.close()
	h.Joined = r.joined.Load()
	v := verdict.Of(*h)
	if v.Backoff {
		v.Delay = p.backoff(r, h.Err)
	}
	r.f.returned(r)
	if v.To == 0 {
		p.finish(r, Disposition{Action: Leave}, OutcomeLeaseLost)
		return
	}
	p.settleRun(r, v, ended)
}

// overdue cuts a run off whose handler has ended by itself for what would have cut it off this moment: its deadline, which it
// may keep by a timer of its own, or the end of the caller's context. Under Park such an end is not the handler's word
// that nothing happened.
func overdue(r *run) {
	now := time.Now()
	if c := r.f.t.caller; c != nil {
		if at, ok := c.Deadline(); c.Err() != nil || ok && !now.Before(at) {
			r.ctx.endForeign(cmp.Or(context.Cause(c), context.DeadlineExceeded))
		}
	}
	at, ok := r.ctx.Deadline()
	switch {
	case !ok || now.Before(at):
	case at.Equal(r.f.t.deadline):
		r.ctx.end(r.outOfTime())
	default:
		r.ctx.end(ErrTimeout)
	}
}

// conclude settles a claimed job whose handler has not run.
func (p *Processor) conclude(r *run, v verdict.Verdict) {
	if !r.advance(settling) {
		return
	}
	r.f.returned(r)
	p.settleRun(r, v, time.Since(r.f.epoch))
}

// confirmStart records, under Park, that the handler is about to run. Without that record a takeover would
// run the job again; so the handler does not start before the store has confirmed it.
func (p *Processor) confirmStart(r *run) bool {
	begin := time.Now()
	for n := 1; ; n++ {
		ctx := callContext(context.Background(), p.c.CallTimeout)
		answers, err := p.askRenewal(ctx, []dedupe.Renewal{{Key: r.key, Token: r.token, TTL: p.leaseFor(r), Started: true}})
		ctx.close()
		if err == nil {
			err = answers[0].Err
		}
		switch {
		case err == nil:
			p.renewed(r, answers[0].Deadline)
			return true
		case errors.Is(err, dedupe.ErrLeaseLost):
			p.loseClaim(r)
			return false
		case r.ctx.endedBy() != nil || !r.f.isOpen() || r.isOver(), r.f.t.confirm > 0 && time.Since(begin) >= r.f.t.confirm:
			p.conclude(r, verdict.Verdict{To: dedupe.Released, Class: ClassLease, Text: verdict.Text(err), Uncounted: true})
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
func (p *Processor) renewed(r *run, deadline time.Time) {
	if r.hasOneLease() {
		r.held.Deadline = deadline
		return
	}
	p.leases.Update(&r.held, deadline)
}

// loseClaim ends a run, before its handler has begun, whose claim the store said to be somebody else's.
func (p *Processor) loseClaim(r *run) {
	if r.advance(settling) {
		r.f.returned(r)
		p.finish(r, Disposition{Action: Leave}, OutcomeLeaseLost)
	}
}

func (p *Processor) backoff(r *run, err error) (d time.Duration) {
	defer func() {
		if v := recover(); v != nil {
			p.c.Logger.LogAttrs(r.f.t.base, slog.LevelError, "onceq: Backoff panicked; the default is used", slog.Any("panic", v))
			d = defaultBackoff(r.job.Attempt, err)
		}
	}()
	return max(0, r.opts.backoff(r.job.Attempt, err))
}

// guard2 turns a panic of a store or a broker into an error: it must not take the other jobs with it.
func guard2[T any](call func() (T, error)) (v T, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("onceq: panic in a call: %v\n%s", p, debug.Stack())
		}
	}()
	return call()
}
