package onceq

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	mrand "math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
)

// wholeFailures is how often in a row a call may fail for all of its entries before each is asked for alone: one that fails every call
// which it is in must not stop the others.
const wholeFailures = 3

// dividable tells whether a batch whose whole call has failed is to be tried entry by entry; failed is how often that of a run has
// before. A call that hangs is not: that would take as many timeouts as there are entries.
func dividable(rs []*run, err error, failed func(*run) int) bool {
	if len(rs) < 2 || errors.Is(err, context.DeadlineExceeded) {
		return false
	}
	for _, r := range rs {
		if failed(r) >= wholeFailures {
			return true
		}
	}
	return false
}

func tried(r *run) int { return int(r.tries) }

// apart calls for each entry alone, from one of them on, chosen at random, and tells whether any call had an answer. Where
// two have failed before one had, the others are not tried: that is an outage.
func apart(rs []*run, err error, call func(i int) error) (errs []error, some bool) {
	errs = make([]error, len(rs))
	failed, first := 0, mrand.IntN(len(rs))
	for n := range rs {
		i := (first + n) % len(rs)
		if failed > 1 && !some {
			errs[i] = err
			continue
		}
		if errs[i] = call(i); errs[i] != nil {
			failed++
		} else {
			some = true
		}
	}
	return errs, some
}

// claimApart claims each entry of a batch alone.
func (p *Processor) claimApart(rs []*run, err error) {
	errs, some := apart(rs, err, func(i int) error {
		r := rs[i]
		if r.isOver() || !r.f.isOpen() { // the calls before it may have taken long
			r.f.handBack([]*run{r})
			return nil
		}
		answers, sent, err := p.ask(rs[i : i+1])
		if err == nil {
			p.landClaims([]*run{r}, answers, sent)
		}
		return err
	})
	now := time.Now()
	for i, r := range rs {
		switch {
		case errs[i] == nil:
		case some:
			p.unanswered(r, errs[i], &now)
		default:
			p.unanswered(r, errs[i], nil)
		}
	}
}

// aloneSince is when a claim was sent whose call has failed and had no other entry, if the store has answered others since that
// first failed: then the error is the entry's own. Else it is nil. Where no other claim comes, the store is asked for something else: what
// it answers lets others be received, and only a claim that it answers lets this one be given back.
func (p *Processor) aloneSince(rs []*run, sent time.Time, err error) *time.Time {
	r := rs[0]
	if len(rs) > 1 || r.f.t.waits || r.f.t.outage > 0 {
		return nil
	}
	switch {
	case r.outlived(&p.lastClaim, sent), !r.later.alone.IsZero():
	case r.tries < wholeFailures, errors.Is(err, context.DeadlineExceeded), !p.writes(r.key.Scope):
		return nil
	}
	return &sent
}

// outlived tells whether the store, or the queue, has answered others since a call failed that had none but this run: then
// the error is the run's own. last is when it answered, sent when the call began.
func (r *run) outlived(last *atomic.Int64, sent time.Time) bool {
	m := r.makes()
	if m.failing == 0 {
		m.failing = max(1, sent.Sub(r.f.p.epoch))
	}
	return time.Duration(last.Load()) > m.failing
}

// writes asks the store to renew a claim that nobody has. A store that can write refuses it, and changes nothing.
func (p *Processor) writes(scope string) bool {
	var token dedupe.Token
	rand.Read(token[:])
	ctx := callContext(context.Background(), p.c.CallTimeout)
	defer ctx.close()
	as, err := p.askRenewal(ctx, []dedupe.Renewal{{Key: dedupe.Key{Scope: scope, Key: hex.EncodeToString(token[:])}, Token: token, TTL: p.c.Lease}})
	return err == nil && errors.Is(as[0].Err, dedupe.ErrLeaseLost)
}

// probe claims a key that nobody has, and gives it back: on a queue where no other claim comes, its answer stands for one, and tells
// whether the store refuses what is asked for, or all. It is made when none has been answered for refusedFor, and as seldom. Nothing
// remains of it; only a process that dies amid it leaves a claim behind, for an operator to forget.
func (p *Processor) probe(scope string) {
	last, now := p.probed.Load(), time.Since(p.epoch)
	if now-time.Duration(max(last, p.lastClaim.Load())) < refusedFor || !p.probed.CompareAndSwap(last, int64(now)) {
		return
	}
	var token dedupe.Token
	rand.Read(token[:])
	q := dedupe.ClaimRequest{
		Key: dedupe.Key{Scope: scope, Key: "onceq-probe-" + hex.EncodeToString(token[:])}, Token: token, TTL: p.c.Lease,
		Policy: dedupe.Rerun, Owner: p.c.Owner,
	}
	ctx := callContext(context.Background(), p.c.CallTimeout)
	defer ctx.close()
	cs, err := guard2(func() ([]dedupe.Claim, error) { return p.c.Store.Claim(ctx, []dedupe.ClaimRequest{q}) })
	if !p.forgoOnce(q.Key, token) || err != nil || len(cs) != 1 || cs[0].Err != nil || cs[0].Outcome != dedupe.Won {
		return
	}
	p.lastClaim.Store(int64(time.Since(p.epoch)))
	_, _ = guard2(func() ([]error, error) {
		return p.c.Store.Forget(ctx, []dedupe.Forgotten{{Key: q.Key, Fence: cs[0].Lease.Fence}})
	})
}

// refusedAlone tells whether a queue has refused this letter, and not the whole call.
func refusedAlone(err error) bool {
	var b *broker.BatchError
	return errors.As(err, &b)
}
