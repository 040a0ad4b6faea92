package onceq

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"time"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/verdict"
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

// holdDeliveries sends the extensions of a beat on their way, except of claims that are lost. Where
// nothing is claimed the delivery is the lease, and its answer comes later.
func (p *Processor) holdDeliveries(rs []*run, errs []error) {
	if !p.limits.Extends {
		return
	}
	later := make([]*run, 0, len(rs))
	for i, r := range rs {
		if !r.f.t.holds() || errors.Is(errs[i], verdict.ErrTaken) {
			continue
		}
		r.mu.Lock()
		if !r.claimHeld && errs[i] == nil {
			errs[i] = visibility.ErrLater
		}
		if r.queuesHold() {
			later = append(later, r)
		}
		r.mu.Unlock()
	}
	p.holds.Add(later...)
}

// queuesHold tells whether the delivery is to be put in for its extension, which is noted; called
// with the run's lock held.
func (r *run) queuesHold() bool {
	if r.keeping != 0 || r.deliveryLost {
		return false
	}
	r.keeping = keepQueued
	return true
}

// holdUnanswered extends the delivery of a run whose claim the store has not confirmed in time: its
// beats may have to wait long for a call that does not hang.
func (p *Processor) holdUnanswered(r *run) {
	if !r.f.t.holds() || !p.limits.Extends {
		return
	}
	r.mu.Lock()
	queues := r.queuesHold()
	r.mu.Unlock()
	if queues {
		p.holds.Add(r)
	}
}

// holdBatch extends deliveries in one call. What has lapsed meanwhile is lost without one.
func (p *Processor) holdBatch(rs []*run) {
	now := time.Now()
	h := holding{
		p: p, runs: make([]*run, 0, len(rs)), batch: make([]broker.Hold, 0, len(rs)), ends: make([]time.Time, 0, len(rs)),
		done: make(chan struct{}), err: errNoExtension,
	}
	var recv broker.Receiver
	var next []*run
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
		case r.deliveryEnds.Sub(now) > d-p.visibility/6: // it was extended just now, and the beat was repeated
			if r.claimHeld && p.leases.Left(&r.held) <= 0 {
				next = append(next, r)
			} else {
				r.keeping &^= keepQueued
			}
		default:
			recv = r.f.t.deliveries
			r.awaits(h.done)
			h.runs, h.ends = append(h.runs, r), append(h.ends, now.Add(d))
			h.batch = append(h.batch, broker.Hold{Receipt: r.receipt, For: d})
		}
		r.mu.Unlock()
		if ends {
			p.unkept(r)
		}
	}
	p.holdsAfter(p.visibility/6, next)
	if len(h.runs) == 0 {
		return
	}
	defer h.land()
	// One that hangs leaves time for two more before the deliveries lapse.
	ctx := callContext(context.Background(), min(p.c.CallTimeout, p.visibility/3))
	defer ctx.close()
	_, h.err = guard2(func() (struct{}, error) { return struct{}{}, recv.Extend(ctx, h.batch) })
}

// awaits has a nack or an ack of the run wait for an extension that is in flight, beside the one that it waits for. That is
// another one where a delivery was handed over amid its extension. Called with the run's lock held.
func (r *run) awaits(landed chan struct{}) {
	before := r.extending
	select {
	case <-before:
		before = nil
	default: // also where there is none
	}
	switch {
	case landed == nil:
	case before == nil:
		r.extending = landed
	default:
		both := make(chan struct{})
		r.extending = both
		go func() {
			<-before
			<-landed
			close(both)
		}()
	}
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
	now, pause := time.Now(), h.p.visibility/12
	var again, next []*run
	for i, r := range h.runs {
		ends := r.deliveryEnd()
		switch h.extended(i, now) {
		case holdAgain:
			again = append(again, r)
			pause = min(pause, max(ends.Sub(now)/3, time.Millisecond))
		case holdNext:
			next = append(next, r)
		case holdDone:
		}
	}
	close(h.done)
	h.p.holdsAfter(pause, again)
	h.p.holdsAfter(h.p.visibility/3, next)
}

func (p *Processor) holdsAfter(d time.Duration, rs []*run) {
	if len(rs) > 0 {
		time.AfterFunc(d, func() { p.holds.Add(rs...) })
	}
}

// What follows an extension.
const (
	holdDone  = iota
	holdAgain // it has failed in passing
	holdNext  // the store does not answer for the claim, so that the delivery does not wait for its beat
)

// extended acts on one answer, and tells what follows. An answer that came after the deadline never
// counts: a standard SQS queue answers OK then, and does nothing.
func (h *holding) extended(i int, answered time.Time) (follows int) {
	p, r, err := h.p, h.runs[i], broker.ErrAt(h.err, i)
	r.mu.Lock()
	if r.extending == h.done {
		r.extending = nil
	}
	late, ends := r.lapsed(answered), false
	switch {
	case r.receipt != h.batch[i].Receipt: // a redelivery has handed its receipt over meanwhile
	case err == nil && !late:
		r.deliveryEnds = h.ends[i]
		if !r.claimHeld {
			p.leases.Update(&r.held, h.ends[i])
		} else if p.leases.Left(&r.held) <= 0 {
			follows = holdNext
		}
	case late, errors.Is(err, broker.ErrReceiptExpired):
		ends = p.loseDelivery(r)
	default:
		follows = holdAgain
	}
	if r.keeping&keepStopped != 0 {
		follows = holdDone
	}
	if follows == holdDone {
		r.keeping &^= keepQueued
	}
	r.mu.Unlock()
	if ends {
		p.unkept(r)
	}
	return follows
}

// loseDelivery notes, with the run's lock held, that the broker delivers the message again, and
// tells whether nothing else keeps the run. Where a claim is held, that alone keeps others away, and
// the run goes on. So it does in a group: whoever gets the message next finds its key in progress,
// and holds the group.
func (p *Processor) loseDelivery(r *run) (ends bool) {
	r.deliveryLost = true
	if r.at() >= settling || r.claimHeld {
		return r.isOver()
	}
	p.leases.Release(&r.held)
	return true
}

// unkept ends a run of which neither delivery nor claim is held.
func (p *Processor) unkept(r *run) {
	switch {
	case r.at() < claimed:
		p.drop(r)
	case r.isOver():
		r.f.letGo(r)
	case r.fence == 0:
		r.stopHandler(verdict.ErrDeliveryLost)
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

// quiesce is release, and then waits until no beat and no extension of the runs is in flight, or
// ctx ends.
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
	if p.limits.MaxTotal == 0 {
		return d
	}
	left := p.totalLeft(r, now)
	if left < p.limits.MaxTotal/12 {
		r.mu.Lock()
		warn := !r.totalWarned
		r.totalWarned = true
		r.mu.Unlock()
		if warn {
			p.c.Logger.LogAttrs(r.f.t.base, slog.LevelWarn, "onceq: a job nears the broker's limit on holding a message; it goes on under its claim alone",
				slog.String("job", r.name()), slog.Duration("left", left))
		}
	}
	if left < p.limits.MinHold {
		return 0
	}
	return min(d, left)
}

// totalLeft is how long the broker lets the delivery be held yet, a nack's delay included.
func (p *Processor) totalLeft(r *run, now time.Time) time.Duration {
	if p.limits.MaxTotal == 0 {
		return math.MaxInt64
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.received + p.limits.MaxTotal - now.Sub(r.f.epoch) - time.Second
}

func (r *run) deliveryEnd() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.deliveryEnds
}
