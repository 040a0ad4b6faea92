package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/verdict"
)

// This file owns the claims' part of a beat. The visibility manager calls extend, from at most
// sixteen goroutines and never twice at once for one run. It calls lost when a run's lease is lost.
// r.mu guards claimHeld and beats; missed belongs to the one beat that is in flight.

// extend is one beat. It renews the claims, and returns when the store has answered, because a
// queue that hangs must not make a claim lapse. The deliveries follow in calls of their own. They
// follow also when the store has not answered, because the store must not make a delivery lapse
// either.
func (en *Engine[J]) extend(ctx context.Context, rs []*Run[J]) error {
	errs := make([]error, len(rs))
	en.renewClaims(ctx, rs, errs)
	en.holdDeliveries(rs, errs)
	return broker.JoinEntries(errs)
}

func (en *Engine[J]) renewClaims(ctx context.Context, rs []*Run[J], errs []error) {
	var batch []dedupe.Renewal
	var at, lone []int
	for i, r := range rs {
		r.mu.Lock()
		if r.claimHeld || r.f.Terms.Holds() {
			r.beats++
		}
		switch {
		case !r.claimHeld:
		case r.missed == alone:
			lone = append(lone, i)
		default:
			batch = append(batch, dedupe.Renewal{Key: r.Key, Token: r.Token, TTL: en.leaseFor(r)})
			at = append(at, i)
		}
		r.mu.Unlock()
	}
	en.landRenewals(ctx, rs, at, en.askRenewals(ctx, rs, at, batch), errs)
	for _, i := range lone {
		one := []dedupe.Renewal{{Key: rs[i].Key, Token: rs[i].Token, TTL: en.leaseFor(rs[i])}}
		answers, err := en.askRenewal(ctx, one)
		if err != nil {
			errs[i] = err
			continue
		}
		rs[i].missed = 0
		en.landRenewals(ctx, rs, []int{i}, answers, errs)
	}
}

// alone marks a run whose renewal failed while others were answered. It gets a call of its own.
// Otherwise each of the others would need one.
const alone missed = wholeFailures + 1

// askRenewals renews claims in one call. Where that call fails again and again, it renews each
// claim alone, because one entry on which the call fails must not make the others lapse.
func (en *Engine[J]) askRenewals(ctx context.Context, rs []*Run[J], at []int, batch []dedupe.Renewal) []dedupe.Renewed {
	if len(batch) == 0 {
		return nil
	}
	answers, err := en.askRenewal(ctx, batch)
	if err == nil {
		for _, i := range at {
			rs[i].missed = 0
		}
		return answers
	}
	answers = make([]dedupe.Renewed, len(batch))
	asked := make([]*Run[J], len(at))
	for n, i := range at {
		asked[n], answers[n].Err = rs[i], err
	}
	if !dividable(asked, err, func(r *Run[J]) int { return int(r.missed) }) {
		for _, r := range asked {
			r.missed = min(r.missed+1, wholeFailures)
		}
		return answers
	}
	errs, some := apart(asked, err, func(n int) error {
		one, err := en.askRenewal(ctx, batch[n:n+1])
		if err == nil {
			answers[n], asked[n].missed = one[0], 0
		}
		return err
	})
	for n, e := range errs {
		if e != nil && some && !errors.Is(e, context.DeadlineExceeded) {
			answers[n].Err, asked[n].missed = e, alone
		}
	}
	return answers
}

func (en *Engine[J]) askRenewal(ctx context.Context, batch []dedupe.Renewal) ([]dedupe.Renewed, error) {
	answers, err := Guard(func() ([]dedupe.Renewed, error) { return en.o.Store.Renew(ctx, batch) })
	if err == nil && len(answers) != len(batch) {
		err = fmt.Errorf("onceq: the store answered %d of %d renewals", len(answers), len(batch))
	}
	if err != nil {
		en.o.Pulse.beats.Misses(err)
	} else {
		en.o.Pulse.beats.Answers(time.Now())
	}
	return answers, err
}

// landRenewals acts on the answers to the renewals of the runs at these places.
func (en *Engine[J]) landRenewals(ctx context.Context, rs []*Run[J], at []int, answers []dedupe.Renewed, errs []error) {
	var joined []int
	for n, i := range at {
		r, e := rs[i], answers[n].Err
		switch {
		case e == nil:
			en.noteMargin(en.leases.Left(&r.held))
			en.leases.Update(&r.held, answers[n].Deadline)
		case errors.Is(e, dedupe.ErrLeaseLost):
			errs[i] = en.claimGone(r)
			if errs[i] != nil && r.Joined.Load() {
				joined = append(joined, i)
			}
		default:
			errs[i] = e
			if errors.Is(e, dedupe.ErrBusy) && r.Joined.Load() {
				joined = append(joined, i)
			}
		}
	}
	if len(joined) > 0 {
		en.lookAtJoined(ctx, rs, joined, errs)
	}
}

// lookAtJoined finds out what the store's refusals mean for runs with transactions of their own:
//
//   - A lost claim is lost to nobody where the run's transaction has committed. The handler goes on
//     after the commit, and has nothing left to renew.
//   - A locked record is locked by the run's transaction, which is its lease. Where that
//     transaction has ended, a successor has locked it.
//
// A read may decide here, because done never changes and a fence only rises.
func (en *Engine[J]) lookAtJoined(ctx context.Context, rs []*Run[J], at []int, errs []error) {
	keys := make([]dedupe.Key, len(at))
	for n, i := range at {
		keys[n] = rs[i].Key
	}
	recs, err := Guard(func() ([]*dedupe.Record, error) { return en.o.Store.Get(ctx, keys) })
	if err == nil && len(recs) != len(keys) {
		err = fmt.Errorf("onceq: the store answered %d of %d keys", len(recs), len(keys))
	}
	for n, i := range at {
		r, busy := rs[i], errors.Is(errs[i], dedupe.ErrBusy)
		switch {
		case busy && errors.Is(err, dedupe.ErrBusy): // a lock that stops reads stops claims, too
			errs[i] = nil
		case err != nil:
			errs[i] = err // asked again with the next beat
		case recs[n] != nil && recs[n].Status == dedupe.Done && recs[n].Fence == r.Fence:
			r.mu.Lock()
			r.claimHeld = false
			r.mu.Unlock()
			errs[i] = nil
		case busy && recs[n] != nil && recs[n].Status == dedupe.Claimed && recs[n].Fence == r.Fence:
			errs[i] = nil
		case busy:
			errs[i] = en.claimGone(r)
		}
	}
}

// claimGone is nil where the run's own settlement is on its way, because a renewal that comes after
// it finds nothing to renew.
func (en *Engine[J]) claimGone(r *Run[J]) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.at() >= settling {
		r.claimHeld = false
		return nil
	}
	return verdict.ErrTaken
}

// lost is called by the visibility manager when a run's lease is lost, or was not confirmed in
// time. It does nothing for a run that is not claimed, because the answer about its delivery ends
// that run.
func (en *Engine[J]) lost(r *Run[J], err error) {
	switch {
	case r.at() < claimed:
	case errors.Is(err, verdict.ErrTaken) && r.at() == running:
		r.ctx.Lose()
		time.AfterFunc(tellCause, func() { r.stopHandler(verdict.ErrTaken) })
		en.gone.Add(r)
	case errors.Is(err, verdict.ErrTaken):
		r.stopHandler(verdict.ErrTaken)
	case en.leases.Left(&r.held) <= 0: // otherwise it was about the delivery, just before the claim was won
		r.stopHandler(verdict.ErrUnanswered)
		en.holdUnanswered(r)
	}
}

// tellCause is how long a handler runs on at most, after the store has said that its claim is lost,
// while it is read whether the job was cancelled. What it has not begun must not begin meanwhile
// (MayBegin).
const tellCause = 250 * time.Millisecond

// stopGone ends the handlers of runs whose claims are lost. It reads whether an operator has
// cancelled the job, because whoever reads the log looks in vain for another worker then. It has
// goroutines of its own (batch.Queue), so that no beat waits for the read.
func (en *Engine[J]) stopGone(rs []*Run[J]) {
	if rs = living(rs); len(rs) == 0 {
		return
	}
	keys := make([]dedupe.Key, len(rs))
	for i, r := range rs {
		keys[i] = r.Key
	}
	ctx := CallContext(context.Background(), min(en.o.CallTimeout, tellCause))
	recs, err := Guard(func() ([]*dedupe.Record, error) { return en.o.Store.Get(ctx, keys) })
	ctx.Close()
	for i, r := range rs {
		cause := verdict.ErrTaken
		if err == nil && len(recs) == len(rs) && recs[i] != nil && recs[i].Status == dedupe.Failed && recs[i].ErrClass == verdict.Cancelled {
			cause = verdict.ErrCancelled
		}
		r.stopHandler(cause)
	}
}

// noteMargin notes how much time was left to a deadline when its beat was answered.
func (en *Engine[J]) noteMargin(left time.Duration) {
	now := max(1, int64(left))
	for {
		least := en.nearest.Load()
		if least != 0 && least <= now || en.nearest.CompareAndSwap(least, now) {
			return
		}
	}
}

// TakeMargin is the least time to a deadline at which a beat was answered since it was last asked
// for; 0 = none was.
func (en *Engine[J]) TakeMargin() time.Duration { return time.Duration(en.nearest.Swap(0)) }
