package engine

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"time"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/durations"
	"github.com/onceq/onceq/internal/verdict"
	"github.com/onceq/onceq/visibility"
)

// This file owns the deliveries' part of a beat: extensions in calls of their own, what a lost
// delivery means, and the hand-over to a redelivery. Beats put runs in; the carrier of extensions
// calls holdBatch. r.mu guards receipt, deliveryEnds, extending and keeping. It is let go before
// anything that ends a run.

// errNoExtension is the answer of a call that has ended its goroutine.
var errNoExtension = errors.New("onceq: the extension was not answered")

// holdDeliveries sends the extensions of a beat on their way, except where the claim is lost. Where
// nothing is claimed, the delivery is the lease, and its answer comes later.
func (en *Engine[J]) holdDeliveries(rs []*Run[J], errs []error) {
	if !en.o.Limits.Extends {
		return
	}
	later := make([]*Run[J], 0, len(rs))
	for i, r := range rs {
		if !r.f.Terms.Holds() || errors.Is(errs[i], verdict.ErrTaken) {
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
	en.holds.Add(later...)
}

// queuesHold reports whether the delivery is to be put in for its extension, and notes that it is.
// The caller holds the run's lock.
func (r *Run[J]) queuesHold() bool {
	if r.keeping != 0 || r.deliveryLost {
		return false
	}
	r.keeping = keepQueued
	return true
}

// holdUnanswered extends the delivery of a run whose claim the store has not confirmed in time. The
// run's own beats may have to wait long, for a call of the store that is slow and does not hang.
func (en *Engine[J]) holdUnanswered(r *Run[J]) {
	if !r.f.Terms.Holds() || !en.o.Limits.Extends {
		return
	}
	r.mu.Lock()
	queues := r.queuesHold()
	r.mu.Unlock()
	if queues {
		en.holds.Add(r)
	}
}

// holdBatch extends deliveries in one call. A delivery that has lapsed meanwhile is lost, and no
// call is made for it.
func (en *Engine[J]) holdBatch(rs []*Run[J]) {
	now := time.Now()
	h := holding[J]{
		en: en, runs: make([]*Run[J], 0, len(rs)), batch: make([]broker.Hold, 0, len(rs)), ends: make([]time.Time, 0, len(rs)),
		done: make(chan struct{}), err: errNoExtension,
	}
	var recv broker.Receiver
	var next []*Run[J]
	for _, r := range rs {
		d := en.holdFor(r, now)
		r.mu.Lock()
		ends := false
		switch {
		case r.keeping&keepStopped != 0, r.deliveryLost, d <= 0:
			r.keeping &^= keepQueued
		case r.lapsed(now):
			r.keeping &^= keepQueued
			ends = en.loseDelivery(r)
		case r.deliveryEnds.Sub(now) > d-en.o.Visibility/6: // it was extended just now, and the beat was repeated
			if r.claimHeld && en.leases.Left(&r.held) <= 0 {
				next = append(next, r)
			} else {
				r.keeping &^= keepQueued
			}
		default:
			recv = r.f.Terms.Deliveries
			r.settleAfter(h.done)
			h.runs, h.ends = append(h.runs, r), append(h.ends, now.Add(d))
			h.batch = append(h.batch, broker.Hold{Receipt: r.receipt, For: d})
		}
		r.mu.Unlock()
		if ends {
			en.unkept(r)
		}
	}
	en.holdAfter(en.o.Visibility/6, next)
	if len(h.runs) == 0 {
		return
	}
	defer h.land()
	// A call that hangs leaves time for two more before the deliveries lapse.
	ctx := CallContext(context.Background(), min(en.o.CallTimeout, en.o.Visibility/3))
	defer ctx.Close()
	_, h.err = Guard(func() (struct{}, error) { return struct{}{}, recv.Extend(ctx, h.batch) })
}

// settleAfter makes a nack or an ack of the run wait until landed is closed, which is when an
// extension in flight has its answer. It may wait for another extension already, when a delivery
// was handed over amid its extension. Then it waits for both. The caller holds the run's lock.
func (r *Run[J]) settleAfter(landed chan struct{}) {
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
type holding[J any] struct {
	en    *Engine[J]
	runs  []*Run[J]
	batch []broker.Hold
	ends  []time.Time // if the answer is good
	done  chan struct{}
	err   error
}

// land acts on the answers. It is deferred, because a driver may end its goroutine.
func (h *holding[J]) land() {
	now, pause := time.Now(), h.en.o.Visibility/12
	var again, next []*Run[J]
	for i, r := range h.runs {
		ends := r.DeliveryEnd()
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
	h.en.holdAfter(pause, again)
	h.en.holdAfter(h.en.o.Visibility/3, next)
}

func (en *Engine[J]) holdAfter(d time.Duration, rs []*Run[J]) {
	if len(rs) > 0 {
		time.AfterFunc(d, func() { en.holds.Add(rs...) })
	}
}

// What follows an extension.
const (
	holdDone  = iota
	holdAgain // it has failed in passing
	holdNext  // the store does not answer for the claim: the delivery does not wait for its beat
)

// extended acts on one answer, and says what follows. An answer that came after the deadline never
// counts, because a standard SQS queue answers OK then, and does nothing.
func (h *holding[J]) extended(i int, answered time.Time) (follows int) {
	en, r, err := h.en, h.runs[i], broker.ErrAt(h.err, i)
	r.mu.Lock()
	if r.extending == h.done {
		r.extending = nil
	}
	late, ends := r.lapsed(answered), false
	switch {
	case r.receipt != h.batch[i].Receipt: // a redelivery has handed its receipt over meanwhile
	case err == nil && !late:
		en.noteMargin(r.deliveryEnds.Sub(answered))
		r.deliveryEnds = h.ends[i]
		if !r.claimHeld {
			en.leases.Update(&r.held, h.ends[i])
		} else if en.leases.Left(&r.held) <= 0 {
			follows = holdNext
		}
	case late, errors.Is(err, broker.ErrReceiptExpired):
		ends = en.loseDelivery(r)
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
		en.unkept(r)
	}
	return follows
}

// loseDelivery notes that the broker delivers the message again, and reports whether nothing else
// keeps the run. Where a claim is held, the claim alone keeps others away, and the run goes on. It
// goes on in a group as well: whoever gets the message next finds its key in progress, and holds
// the group. The caller holds the run's lock.
func (en *Engine[J]) loseDelivery(r *Run[J]) (ends bool) {
	r.deliveryLost = true
	if r.at() >= settling || r.claimHeld {
		return r.IsOver()
	}
	en.leases.Release(&r.held)
	return true
}

// unkept ends a run that holds neither its delivery nor its claim.
func (en *Engine[J]) unkept(r *Run[J]) {
	switch {
	case r.at() < claimed:
		en.drop(r)
	case r.IsOver():
		r.f.letGo(r)
	case r.Fence == 0:
		r.stopHandler(verdict.ErrDeliveryLost)
	default: // its claim was won just now, and is kept alone
	}
}

// Release ends the care for a run: no beat and no extension is sent for it any more.
func (en *Engine[J]) Release(r *Run[J]) {
	r.mu.Lock()
	r.keeping |= keepStopped
	r.mu.Unlock()
	en.leases.Release(&r.held)
}

// Quiesce ends the extensions and beats of the runs, as Release does. It then waits until none of
// them is in flight, or ctx ends. Its error is ctx's cause.
func (en *Engine[J]) Quiesce(ctx context.Context, rs []*Run[J]) error {
	for _, r := range rs {
		r.mu.Lock()
		r.keeping |= keepStopped
		r.mu.Unlock()
	}
	if err := en.leases.Quiesce(ctx, heldOf(rs)...); err != nil {
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

// HoldAgain takes the care up again after Release or Quiesce.
func (en *Engine[J]) HoldAgain(r *Run[J]) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.keeping &^= keepStopped
	r.held.Deadline = r.deliveryEnds
	en.leases.Hold(&r.held)
}

// lapsed reports whether the delivery's deadline is over. The caller holds the lock.
func (r *Run[J]) lapsed(now time.Time) bool {
	return !r.deliveryEnds.IsZero() && !now.Before(r.deliveryEnds)
}

// holdFor is how far the delivery may be extended; 0 = not at all. The broker bounds a delivery's
// whole time.
func (en *Engine[J]) holdFor(r *Run[J], now time.Time) time.Duration {
	d := en.o.Visibility
	if en.o.Limits.MaxTotal == 0 {
		return d
	}
	left := en.TotalLeft(r, now)
	if left < en.o.Limits.MaxTotal/12 {
		r.mu.Lock()
		warn, what := !r.totalWarned, "onceq: a message nears the broker's limit on holding it; then the queue delivers it again"
		if r.claimHeld {
			what = "onceq: a job nears the broker's limit on holding a message; it goes on under its claim alone"
		}
		r.totalWarned = true
		r.mu.Unlock()
		if warn {
			en.o.Logger.LogAttrs(r.f.Terms.Base, slog.LevelWarn, what,
				slog.String("job", r.Name()), slog.Duration("left", left))
		}
	}
	if left < en.o.Limits.MinHold {
		return 0
	}
	return min(d, left)
}

// TotalLeft is how much longer the broker lets the delivery be held, including a nack's delay.
func (en *Engine[J]) TotalLeft(r *Run[J], now time.Time) time.Duration {
	if en.o.Limits.MaxTotal == 0 {
		return math.MaxInt64
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.received + en.o.Limits.MaxTotal - now.Sub(r.f.epoch) - time.Second
}

// DeliveryEnd is when the broker will deliver the message again.
func (r *Run[J]) DeliveryEnd() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.deliveryEnds
}

// TakeReceipt lets the run go on under the delivery of again, a later one of the same message.
func (r *Run[J]) TakeReceipt(again *Run[J]) {
	again.mu.Lock()
	// It may have been extended while it waited. From now on the running job extends it.
	ends, extending := again.deliveryEnds, again.extending
	again.keeping |= keepStopped
	again.mu.Unlock()
	r.mu.Lock()
	r.receipt, r.deliveryEnds, r.deliveryLost, r.received = again.Message.Receipt, ends, false, again.received
	r.settleAfter(extending)
	r.mu.Unlock()
}

// ReleaseLease ends the renewals of a run's claim. It is for a run that nobody here acks or nacks.
func (en *Engine[J]) ReleaseLease(r *Run[J]) { en.leases.Release(&r.held) }

// Held is how many leases are kept.
func (en *Engine[J]) Held() int { return en.leases.Len() }

// Margin is the time before a lease's deadline in which nothing starts under it.
func (en *Engine[J]) Margin() time.Duration { return en.margin }

// ClaimTime is how long a store that does not answer is asked for a claim where somebody waits. It
// is twice CallTimeout, so that a lost packet leaves room for a repeat.
func (en *Engine[J]) ClaimTime() time.Duration {
	return durations.Sum(en.o.CallTimeout, en.o.CallTimeout)
}
