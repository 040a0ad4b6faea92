package onceq

import (
	"cmp"
	"time"
)

// Where a broker's nack knows no delay, the worker holds the message until the delay is over, and
// nacks then: else a job that fails, or a duplicate of one that runs, would come again at once.

// longestDelay bounds what a message is held for here: it is the longest delay that any broker knows, SQS's.
const longestDelay = 12 * time.Hour

// crowded is how long a message is held for where half of the places are taken by others: many
// must neither stop the receives, nor come again at once.
const crowded = time.Second

// longestNack bounds a delay by what the broker can do, or, where somebody else waits for it, by the
// longest that any can.
func (p *Processor) longestNack() time.Duration { return cmp.Or(p.limits.MaxNack, longestDelay) }

// delays holds a run's message for the delay of its nack, where the broker does not. It is false when it is to be nacked now.
func (w *Worker) delays(r *run) bool {
	if w.l.MaxNack > 0 || r.verdict.Delay <= 0 {
		return false
	}
	now := time.Now()
	d := min(r.verdict.Delay, w.p.totalLeft(r, now))
	if !w.l.Extends {
		d = min(d, r.deliveryEnd().Sub(now)-w.p.margin)
	}
	return d > 0 && r.f.keepBack(r, d)
}

// keepBack holds a message that has its disposition for d. It has no slot, and a place among those
// that wait for their ack or nack.
func (f *flow) keepBack(r *run, d time.Duration) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.stopped || f.paused || f.closed || r.lostDelivery() {
		return false
	}
	if f.delayed >= f.o.live/2 {
		d = min(d, crowded)
	}
	f.delayed++
	r.retry = time.AfterFunc(d, func() {
		f.mu.Lock()
		mine := r.retry != nil
		if mine {
			r.retry = nil
			f.delayed--
		}
		f.mu.Unlock()
		if mine {
			f.o.nack(r)
		}
	})
	return true
}

func (r *run) lostDelivery() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.deliveryLost
}

// unwait ends what a run waits for: the repetition of its claim, or its delay. It is false when
// that is over by itself; called with the lock held.
func (f *flow) unwait(r *run) bool {
	if r.retry == nil || !r.retry.Stop() {
		return false
	}
	r.retry = nil
	if r.isOver() {
		f.delayed--
	}
	return true
}

// letGo ends the delay of a run whose delivery is lost.
func (f *flow) letGo(r *run) {
	f.mu.Lock()
	mine := f.unwait(r)
	f.mu.Unlock()
	if mine {
		f.o.nack(r)
	}
}
