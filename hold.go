package onceq

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"time"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/visibility"
)

// keeping is what a run's delivery is in for; under the run's lock.
type keeping uint8

const (
	keepQueued  keeping = 1 << iota // it waits for its call, or for another after one that failed
	keepStopped                     // it is not extended any more
)

// errNoExtension is the answer of a call that has ended its goroutine.
var errNoExtension = errors.New("onceq: the extension was not answered")

// holdDeliveries sends the extensions of a beat on their way, except of claims that are lost. Where nothing is claimed the delivery
// is the lease, and its answer comes later.
func (p *Processor) holdDeliveries(rs []*run, errs []error) {
	if !p.most.Extends {
		return
	}
	later := make([]*run, 0, len(rs))
	for i, r := range rs {
		if !r.f.o.holds || errors.Is(errs[i], errClaimLost) {
			continue
		}
		r.mu.Lock()
		if !r.claimHeld && errs[i] == nil {
			errs[i] = visibility.ErrLater
		}
		if r.keeping == 0 && !r.deliveryLost {
			r.keeping = keepQueued
			later = append(later, r)
		}
		r.mu.Unlock()
	}
	p.holds.Add(later...)
}

// holdBatch extends deliveries in one call. What has lapsed meanwhile is lost without one.
func (p *Processor) holdBatch(rs []*run) {
	now := time.Now()
	h := holding{
		p: p, runs: make([]*run, 0, len(rs)), batch: make([]broker.Hold, 0, len(rs)), ends: make([]time.Time, 0, len(rs)),
		done: make(chan struct{}), err: errNoExtension,
	}
	var recv broker.Receiver
	for _, r := range rs {
		d := p.holdFor(r, now)
		r.mu.Lock()
		ends := false
		switch {
		case r.keeping&keepStopped != 0, r.deliveryLost, d <= 0:
			r.keeping &^= keepQueued
		case r.lapsed(now):
			r.keeping &^= keepQueued
			ends = p.loseDelivery(r)
		case r.deliveryEnds.Sub(now) > d-p.visibility/6:
			r.keeping &^= keepQueued // it was extended just now: the store has not answered, so the beat was repeated
		default:
			recv = r.f.o.recv
			r.extending = h.done
			h.runs, h.ends = append(h.runs, r), append(h.ends, now.Add(d))
			h.batch = append(h.batch, broker.Hold{Receipt: r.receipt, For: d})
		}
		r.mu.Unlock()
		if ends {
			p.unkept(r)
		}
	}
	if len(h.runs) == 0 {
		return
	}
	defer h.land()
	// One that hangs leaves time for two more before the deliveries lapse.
	ctx := callContext(context.Background(), min(p.c.CallTimeout, p.visibility/3))
	defer ctx.close()
	_, h.err = guard2(func() (struct{}, error) { return struct{}{}, recv.Extend(ctx, h.batch) })
}

// holding is one call of Extend.
type holding struct {
	p     *Processor
	runs  []*run
	batch []broker.Hold
	ends  []time.Time // if the answer is good
	done  chan struct{}
	err   error
}

// land acts on the answers. It is deferred, because a driver may end its goroutine.
func (h *holding) land() {
	now, again := time.Now(), h.runs[:0]
	pause := h.p.visibility / 12
	for i, r := range h.runs {
		if ends := r.deliveryEnd(); h.extended(i, now) {
			again = append(again, r)
			pause = min(pause, max(ends.Sub(now)/3, time.Millisecond))
		}
	}
	close(h.done)
	if len(again) > 0 {
		time.AfterFunc(pause, func() { h.p.holds.Add(again...) })
	}
}

// extended acts on one answer, and tells whether the extension is to be tried again. An answer that came after the deadline never
// counts: a standard SQS queue answers OK then, and does nothing.
func (h *holding) extended(i int, answered time.Time) (again bool) {
	p, r, err := h.p, h.runs[i], broker.ErrAt(h.err, i)
	r.mu.Lock()
	r.extending = nil
	late, ends := r.lapsed(answered), false
	switch {
	case r.receipt != h.batch[i].Receipt: // a redelivery has handed its receipt over meanwhile
	case err == nil && !late:
		r.deliveryEnds = h.ends[i]
		if !r.claimHeld {
			p.leases.Update(&r.held, h.ends[i])
		}
	case late, errors.Is(err, broker.ErrReceiptExpired):
		ends = p.loseDelivery(r)
	default:
		again = r.keeping&keepStopped == 0
	}
	if !again {
		r.keeping &^= keepQueued
	}
	r.mu.Unlock()
	if ends {
		p.unkept(r)
	}
	return again
}

// loseDelivery notes, with the run's lock held, that the broker delivers the message again, and tells whether nothing else keeps the
// run. Where a claim is held that alone keeps others away, and the run goes on, except in a group, whose order depends on the
// delivery.
func (p *Processor) loseDelivery(r *run) (ends bool) {
	r.deliveryLost = true
	switch {
	case r.at() >= settling:
	case !r.claimHeld:
		p.leases.Release(&r.held)
		return true
	case r.grouped():
		r.ctx.end(errDeliveryLost) // and the claim is kept until the handler has returned
	}
	return false
}

// unkept ends a run of which neither delivery nor claim is held.
func (p *Processor) unkept(r *run) {
	switch {
	case r.at() < claimed:
		p.drop(r)
	case r.fence == 0:
		r.ctx.end(errDeliveryLost)
	default: // its claim was won just now, and is kept alone
	}
}

// release ends the care for a run: it is beaten no more, and no extension is sent any more.
func (p *Processor) release(r *run) {
	r.mu.Lock()
	r.keeping |= keepStopped
	r.mu.Unlock()
	p.leases.Release(&r.held)
}

// quiesce is release, and then waits until no beat and no extension of the runs is in flight, or ctx ends.
func (p *Processor) quiesce(ctx context.Context, rs []*run) error {
	for _, r := range rs {
		r.mu.Lock()
		r.keeping |= keepStopped
		r.mu.Unlock()
	}
	if err := p.leases.Quiesce(ctx, heldOf(rs)...); err != nil {
		return err
	}
	for _, r := range rs {
		r.mu.Lock()
		landed := r.extending
		r.mu.Unlock()
		if landed == nil {
			continue
		}
		select {
		case <-landed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// hold takes the care up again after release.
func (p *Processor) hold(r *run) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.keeping &^= keepStopped
	r.held.Deadline = r.deliveryEnds
	p.leases.Hold(&r.held)
}

// lapsed tells whether the delivery's deadline is over; called with the lock held.
func (r *run) lapsed(now time.Time) bool {
	return !r.deliveryEnds.IsZero() && !now.Before(r.deliveryEnds)
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
				slog.String("job", r.job.ID()), slog.Duration("left", left))
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
