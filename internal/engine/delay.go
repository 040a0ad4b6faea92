package engine

import (
	"time"
)

// crowded is how long a message is held when messages held so take half of the places. Many of them
// must neither stop the receives, nor come again at once.
const crowded = time.Second

// KeepBack holds a message that has its disposition for d, and then hands it over to be nacked. It
// takes no slot, but a place among those that wait for their ack or nack. It is false, and holds
// nothing, when the flow has stopped, is paused or abandoned, or when the delivery is lost.
func (f *Flow[J]) KeepBack(r *Run[J], d time.Duration) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.stopped || f.paused != 0 || f.closed || r.lostDelivery() {
		return false
	}
	if f.delayed >= f.o.Live/2 {
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
			f.o.Nack(r)
		}
	})
	return true
}

func (r *Run[J]) lostDelivery() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.deliveryLost
}

// unwait ends what a run waits for: the repetition of its claim, or its delay. It is false when
// that wait is over by itself. The caller holds the lock.
func (f *Flow[J]) unwait(r *Run[J]) bool {
	if r.retry == nil || !r.retry.Stop() {
		return false
	}
	r.retry = nil
	if r.IsOver() {
		f.delayed--
	}
	return true
}

// letGo ends the delay of a run whose delivery is lost.
func (f *Flow[J]) letGo(r *Run[J]) {
	f.mu.Lock()
	mine := f.unwait(r)
	f.mu.Unlock()
	if mine {
		f.o.Nack(r)
	}
}
