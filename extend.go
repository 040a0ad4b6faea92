package onceq

import (
	"context"
	"errors"
	"fmt"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/verdict"
)

// extend is one beat. It renews the claims, and lands when the store has answered: a queue that hangs must not make a claim
// lapse. The deliveries follow in calls of their own, also where the store has not answered: it must not make them lapse either.
func (p *Processor) extend(ctx context.Context, rs []*run) error {
	errs := make([]error, len(rs))
	p.renewClaims(ctx, rs, errs)
	p.holdDeliveries(rs, errs)
	return broker.Batch(errs)
}

func (p *Processor) renewClaims(ctx context.Context, rs []*run, errs []error) {
	var batch []dedupe.Renewal
	var at, lone []int
	for i, r := range rs {
		r.mu.Lock()
		if r.claimHeld || r.f.t.holds() {
			r.beats++
		}
		switch {
		case !r.claimHeld:
		case r.missed == alone:
			lone = append(lone, i)
		default:
			batch = append(batch, dedupe.Renewal{Key: r.key, Token: r.token, TTL: p.leaseFor(r)})
			at = append(at, i)
		}
		r.mu.Unlock()
	}
	p.landRenewals(ctx, rs, at, p.askRenewals(ctx, rs, at, batch), errs)
	for _, i := range lone {
		one := []dedupe.Renewal{{Key: rs[i].key, Token: rs[i].token, TTL: p.leaseFor(rs[i])}}
		answers, err := p.askRenewal(ctx, one)
		if err != nil {
			errs[i] = err
			continue
		}
		rs[i].missed = 0
		p.landRenewals(ctx, rs, []int{i}, answers, errs)
	}
}

// missed is how often in a row a run's renewal has failed with its whole call.
type missed uint8

// alone is of one that failed while others were answered: it gets a call of its own, or all others would have to.
const alone missed = wholeFailures + 1

// askRenewals renews claims in one call, or, where that fails again and again, each alone: one entry on which the call fails must not make
// the others lapse.
func (p *Processor) askRenewals(ctx context.Context, rs []*run, at []int, batch []dedupe.Renewal) []dedupe.Renewed {
	if len(batch) == 0 {
		return nil
	}
	answers, err := p.askRenewal(ctx, batch)
	if err == nil {
		for _, i := range at {
			rs[i].missed = 0
		}
		return answers
	}
	answers = make([]dedupe.Renewed, len(batch))
	asked := make([]*run, len(at))
	for n, i := range at {
		asked[n], answers[n].Err = rs[i], err
	}
	if !dividable(asked, err, func(r *run) int { return int(r.missed) }) {
		for _, r := range asked {
			r.missed = min(r.missed+1, wholeFailures)
		}
		return answers
	}
	errs, some := apart(asked, err, func(n int) error {
		one, err := p.askRenewal(ctx, batch[n:n+1])
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

func (p *Processor) askRenewal(ctx context.Context, batch []dedupe.Renewal) ([]dedupe.Renewed, error) {
	answers, err := guard2(func() ([]dedupe.Renewed, error) { return p.c.Store.Renew(ctx, batch) })
	if err == nil && len(answers) != len(batch) {
		err = fmt.Errorf("onceq: the store answered %d of %d renewals", len(answers), len(batch))
	}
	return answers, err
}

// landRenewals acts on the answers to the renewals of the runs at these places.
func (p *Processor) landRenewals(ctx context.Context, rs []*run, at []int, answers []dedupe.Renewed, errs []error) {
	var joined []int
	for n, i := range at {
		r, e := rs[i], answers[n].Err
		switch {
		case e == nil:
			p.leases.Update(&r.held, answers[n].Deadline)
		case errors.Is(e, dedupe.ErrLeaseLost):
			errs[i] = p.claimGone(r)
			if errs[i] != nil && r.joined.Load() {
				joined = append(joined, i)
			}
		default:
			errs[i] = e
			if errors.Is(e, dedupe.ErrBusy) && r.joined.Load() {
				joined = append(joined, i)
			}
		}
	}
	if len(joined) > 0 {
		p.lookAtJoined(ctx, rs, joined, errs)
	}
}

// lookAtJoined finds out what the store's refusals mean for runs with transactions of their own. A lost claim is lost to nobody where
// that has committed: the handler goes on after it, and has nothing left to renew. A locked record is the transaction's lease, or,
// where that has ended, locked by a successor. A read may decide here: done never changes, and a fence only rises.
func (p *Processor) lookAtJoined(ctx context.Context, rs []*run, at []int, errs []error) {
	keys := make([]dedupe.Key, len(at))
	for n, i := range at {
		keys[n] = rs[i].key
	}
	recs, err := guard2(func() ([]*dedupe.Record, error) { return p.c.Store.Get(ctx, keys) })
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
		case recs[n] != nil && recs[n].Status == dedupe.Done && recs[n].Fence == r.fence:
			r.mu.Lock()
			r.claimHeld = false
			r.mu.Unlock()
			errs[i] = nil
		case busy && recs[n] != nil && recs[n].Status == dedupe.Claimed && recs[n].Fence == r.fence:
			errs[i] = nil
		case busy:
			errs[i] = p.claimGone(r)
		}
	}
}

// claimGone is nil where the run's own settlement is on its way: a renewal that comes after it finds
// nothing to renew.
func (p *Processor) claimGone(r *run) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.at() >= settling {
		r.claimHeld = false
		return nil
	}
	return verdict.ErrTaken
}

// lost is the visibility manager's word that a run's lease is lost, or was not confirmed in time. What has not been claimed is
// ended by its delivery's own answer.
func (p *Processor) lost(r *run, err error) {
	switch {
	case r.at() < claimed:
	case errors.Is(err, verdict.ErrTaken):
		r.stopHandler(verdict.ErrTaken)
	case p.leases.Left(&r.held) <= 0: // else it was said of the delivery, just before the claim was won
		r.stopHandler(verdict.ErrUnanswered)
		p.holdUnanswered(r)
	}
}
