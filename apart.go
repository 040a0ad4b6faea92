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
		answers, sent, err := p.ask([]*run{r})
		if err != nil {
			return err
		}
		c, now := &answers[0], time.Now()
		if c.Err == nil {
			c.Err = sane(c, r, sent)
		}
		if c.Err == nil {
			p.lastClaim.Store(int64(now.Sub(p.epoch)))
		}
		if p.answered(r, c, sent, now) {
			launch([]*run{r})
		}
		return nil
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
	as, err := guard2(func() ([]dedupe.Renewed, error) {
		return p.c.Store.Renew(ctx, []dedupe.Renewal{{Key: dedupe.Key{Scope: scope, Key: hex.EncodeToString(token[:])}, Token: token, TTL: p.c.Lease}})
	})
	return err == nil && len(as) == 1 && errors.Is(as[0].Err, dedupe.ErrLeaseLost)
}

// refusedAlone tells whether a queue has refused this letter, and not the whole call.
func refusedAlone(err error) bool {
	var b *broker.BatchError
	return errors.As(err, &b)
}
