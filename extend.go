package onceq

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"time"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/visibility"
)

var (
	// errGone is the beat's answer that a hold is lost for good.
	errGone = errors.New("onceq: hold lost")
	// The causes of a handler's context, each of them ErrLeaseLost. Only after the first is nothing settled: the
	// store has said that the key is another's.
	errClaimLost    = fmt.Errorf("%w: the key was claimed by another", ErrLeaseLost)
	errUnanswered   = fmt.Errorf("%w: not confirmed before its deadline", ErrLeaseLost)
	errDeliveryLost = fmt.Errorf("%w: the message is delivered again", ErrLeaseLost)
)

// extend is one beat: it renews the claims, then the deliveries of those whose claim is not lost. A lost
// claim ends the run; a lost delivery does not, for the claim alone keeps others away, except where a group's
// order depends on the delivery, or where nothing is claimed yet.
func (p *Processor) extend(ctx context.Context, rs []*run) error {
	errs := make([]error, len(rs))
	renewing, stop := ctx, context.CancelFunc(func() {})
	if end, ok := ctx.Deadline(); ok {
		// Half of the time is for the deliveries: a store that hangs must not make them lapse.
		renewing, stop = context.WithTimeout(ctx, time.Until(end)/2)
	}
	p.renewClaims(renewing, rs, errs)
	stop()
	p.extendDeliveries(ctx, rs, errs)
	return broker.Batch(errs)
}

func (p *Processor) extendBatch() int {
	n := min(p.c.Store.Limits().MaxBatch, maxStoreBatch)
	if p.most.SettleBatch > 0 {
		n = min(n, p.most.SettleBatch)
	}
	return max(1, n)
}

func (p *Processor) renewClaims(ctx context.Context, rs []*run, errs []error) {
	var batch []dedupe.Renewal
	var at []int
	for i, r := range rs {
		r.mu.Lock()
		if r.claimHeld || r.f.o.holds {
			r.beats++
		}
		if r.claimHeld {
			batch = append(batch, dedupe.Renewal{Key: r.key, Token: r.token, TTL: p.leaseFor(r)})
			at = append(at, i)
		}
		r.mu.Unlock()
	}
	if len(batch) == 0 {
		return
	}
	answers, err := guard2(func() ([]dedupe.Renewed, error) { return p.c.Store.Renew(ctx, batch) })
	if err == nil && len(answers) != len(batch) {
		err = fmt.Errorf("onceq: the store answered %d of %d renewals", len(answers), len(batch))
	}
	var gone []int
	for n, i := range at {
		r, e := rs[i], err
		if e == nil {
			e = answers[n].Err
		}
		switch {
		case e == nil:
			// Known now: the deliveries' part of the beat may hang, and must not make the handler be cut off.
			p.leases.Update(&r.held, answers[n].Deadline)
		case errors.Is(e, dedupe.ErrLeaseLost):
			errs[i] = p.claimGone(r)
			if errs[i] != nil && r.joined.Load() {
				gone = append(gone, i)
			}
		case errors.Is(e, dedupe.ErrBusy) && r.joined.Load():
			// The row is locked by the job's own transaction: that lock is the lease.
		default:
			errs[i] = e
		}
	}
	if len(gone) > 0 {
		p.completed(ctx, rs, gone, errs)
	}
}

// completed finds those of the runs at gone whose claim is lost to nobody: their own transaction has committed, and the handler
// goes on after it. They have nothing left to renew. A read may decide here, for done never changes.
func (p *Processor) completed(ctx context.Context, rs []*run, gone []int, errs []error) {
	keys := make([]dedupe.Key, len(gone))
	for n, i := range gone {
		keys[n] = rs[i].key
	}
	recs, err := guard2(func() ([]*dedupe.Record, error) { return p.c.Store.Get(ctx, keys) })
	if err == nil && len(recs) != len(keys) {
		err = fmt.Errorf("onceq: the store answered %d of %d keys", len(recs), len(keys))
	}
	for n, i := range gone {
		switch r := rs[i]; {
		case err != nil:
			errs[i] = err // asked again with the next beat
		case recs[n] != nil && recs[n].Status == dedupe.Done && recs[n].Fence == r.fence:
			r.mu.Lock()
			r.claimHeld = false
			r.mu.Unlock()
			errs[i] = nil
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
	return fmt.Errorf("%w: %w", errGone, errClaimLost)
}

func (p *Processor) extendDeliveries(ctx context.Context, rs []*run, errs []error) {
	var batch []broker.Hold
	var at []int
	var ends []time.Time
	now := time.Now()
	var recv broker.Receiver
	for i, r := range rs {
		if errors.Is(errs[i], errGone) || !r.f.o.holds || !p.most.Extends {
			continue
		}
		recv = r.f.o.recv
		d := p.holdFor(r, now)
		r.mu.Lock()
		if !r.deliveryLost && d > 0 {
			batch = append(batch, broker.Hold{Receipt: r.receipt, For: d})
			at = append(at, i)
			ends = append(ends, now.Add(d))
		}
		r.mu.Unlock()
	}
	if len(batch) == 0 {
		return
	}
	_, err := guard2(func() (struct{}, error) { return struct{}{}, recv.Extend(ctx, batch) })
	answered := time.Now()
	for n, i := range at {
		if e := p.extended(rs[i], batch[n].Receipt, broker.ErrAt(err, n), ends[n], answered); e != nil && errs[i] == nil {
			errs[i] = e
		}
	}
}

// extended acts on the answer to an extension. One that came after the deadline never counts: a
// standard SQS queue answers OK then, and does nothing.
func (p *Processor) extended(r *run, receipt broker.Receipt, err error, until, answered time.Time) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.receipt != receipt {
		return nil // a redelivery has handed its receipt over meanwhile
	}
	late := !r.deliveryEnds.IsZero() && !answered.Before(r.deliveryEnds)
	if err == nil && !late {
		r.deliveryEnds = until
		return nil
	}
	if errors.Is(err, broker.ErrReceiptExpired) || late {
		r.deliveryLost = true
		switch {
		case r.at() >= settling:
		case !r.claimHeld:
			return fmt.Errorf("%w: %w", errGone, errDeliveryLost)
		case r.grouped():
			r.ctx.end(errDeliveryLost) // and the claim is kept until the handler has returned
		}
		return nil
	}
	if r.claimHeld {
		// The claim holds, and alone keeps others away.
		return fmt.Errorf("%w: %w", visibility.ErrAgain, err)
	}
	return err
}

// holdFor is how far the delivery may be extended: the broker bounds a delivery's whole time.
func (p *Processor) holdFor(r *run, now time.Time) time.Duration {
	d := p.visibility
	if p.most.MaxTotal == 0 {
		return d
	}
	left := p.totalLeft(r, now)
	if left < p.most.MaxTotal/12 {
		r.mu.Lock()
		warn := !r.totalWarned
		r.totalWarned = true
		r.mu.Unlock()
		if warn {
			p.c.Logger.LogAttrs(r.f.o.base, slog.LevelWarn, "onceq: a job nears the broker's limit on holding a message; it goes on under its claim alone",
				slog.String("job", r.name()), slog.Duration("left", left))
		}
	}
	if left < p.most.MinHold {
		return 0
	}
	return min(d, left)
}

// totalLeft is how long the broker lets the delivery be held yet, a nack's delay included.
func (p *Processor) totalLeft(r *run, now time.Time) time.Duration {
	if p.most.MaxTotal == 0 {
		return math.MaxInt64
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.received + p.most.MaxTotal - now.Sub(r.f.epoch) - time.Second
}

func (r *run) deliveryEnd() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.deliveryEnds
}

// lost is the visibility manager's word that a run's hold is lost, or was not confirmed in time.
func (p *Processor) lost(r *run, err error) {
	switch {
	case r.at() < claimed:
		if errors.Is(err, errGone) {
			// Nothing is claimed: the broker delivers it to somebody else.
			p.drop(r)
		}
	case errors.Is(err, errDeliveryLost) && r.fence != 0 && !r.grouped():
		// It was lost just before the claim was won, which goes on alone.
		p.keepClaim(r, time.Now().Add(p.c.Lease))
	default:
		r.ctx.end(causeOf(err))
	}
}

func causeOf(err error) error {
	for _, cause := range []error{errClaimLost, errDeliveryLost} {
		if errors.Is(err, cause) {
			return cause
		}
	}
	return errUnanswered
}
