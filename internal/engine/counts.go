package engine

import (
	"sync"
	"time"
)

// This file owns what can be counted of flows while they are under way. Who shows numbers calls
// Roll.Count. A Roll's lock is taken before a flow's, never after. The flow's lock guards its own
// numbers, which it keeps anyway: the hot path pays for the tally alone.

// Counts are what one look at flows has found. All are of now, except Ends.
type Counts struct {
	Flows     int
	Slots     int // handlers at most
	Busy      int // from the claim to the handler's return
	Held      int // received and unclaimed
	Unsettled int // from the handler's return to the disposition
	Overdue   int // handlers whose contexts have ended, and that run on
	Oldest    time.Duration
	Stuck     time.Duration // for which each slot has been held by such a handler
	Paused    Pauses
	Turned    time.Time // when the last of the flows began or ended to be paused
	Stopped   time.Time // when one of them stopped; zero = none has
	Leases    int
	Ends      Tally
}

// Tally counts outcomes. There are few, and mostly the first is asked for.
type Tally []Ended

// Ended is how many runs had an outcome.
type Ended struct {
	Outcome Outcome
	N       uint64
}

func (t *Tally) add(o Outcome, n uint64) {
	for i := range *t {
		if e := &(*t)[i]; e.Outcome == o {
			e.N += n
			return
		}
	}
	*t = append(*t, Ended{o, n})
}

func (t *Tally) addAll(of Tally) {
	for _, e := range of {
		t.add(e.Outcome, e.N)
	}
}

// Roll is the list of the flows that are under way, and knows how the runs of the others ended.
type Roll[J any] struct {
	mu    sync.Mutex
	flows map[*Flow[J]]struct{}
	past  Tally
}

func (l *Roll[J]) enter(f *Flow[J]) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.flows == nil {
		l.flows = make(map[*Flow[J]]struct{})
	}
	l.flows[f] = struct{}{}
}

func (l *Roll[J]) leave(f *Flow[J], ends Tally) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, ok := l.flows[f]; !ok {
		return
	}
	delete(l.flows, f)
	l.past.addAll(ends)
}

// Count looks at all flows. With ends, it also counts how runs have ended.
func (l *Roll[J]) Count(ends bool) (c Counts) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if ends {
		c.Ends.addAll(l.past)
	}
	for f := range l.flows {
		f.addTo(&c, ends)
	}
	return c
}

// Leases is how many leases the flows' engines keep.
func (l *Roll[J]) Leases() (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	seen := make(map[*Engine[J]]bool, 1)
	for f := range l.flows {
		if !seen[f.en] {
			seen[f.en] = true
			n += f.en.Held()
		}
	}
	return n
}

// End takes the flow from the lists of those that are under way. Its host calls it once, when it
// waits for nothing of the flow any more.
func (f *Flow[J]) End() {
	f.mu.Lock()
	ends := f.ends
	f.mu.Unlock()
	f.en.Own.leave(f, ends)
	f.en.all.leave(f, ends)
}

func (f *Flow[J]) addTo(c *Counts, ends bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	c.Flows++
	c.Slots += f.o.Slots
	c.Busy += f.busy
	c.Held += f.pending + f.followers
	c.Unsettled += f.unsettled
	c.Paused |= f.paused
	if f.turned != 0 {
		c.Turned = latest(c.Turned, f.epoch.Add(f.turned))
	}
	if at := f.epoch.Add(f.since); f.stopped && (c.Stopped.IsZero() || at.Before(c.Stopped)) {
		c.Stopped = at
	}
	if ends {
		c.Ends.addAll(f.ends)
	}
	if f.busy == 0 {
		return
	}
	h, now := f.handlers(), time.Since(f.epoch)
	c.Overdue += h.overdue
	c.Oldest = max(c.Oldest, h.oldest+now-h.at)
	if h.overdue >= f.o.Slots {
		c.Stuck = max(c.Stuck, now-h.last)
	}
}

// handlers is what a look at the running handlers has found.
type handlers struct {
	at      time.Duration // of the look, since the flow's epoch
	looked  int           // runs looked at
	oldest  time.Duration // for which the oldest has run
	overdue int
	last    time.Duration // when the context of the last of these ended, since the epoch
}

// A look at more than lookMost runs serves for lookAgain, because who asks for health asks often.
const (
	lookMost  = 64
	lookAgain = time.Second
)

// handlers looks at those that run. The caller holds the lock.
func (f *Flow[J]) handlers() handlers {
	now := time.Since(f.epoch)
	if h := f.seen; h.looked > lookMost && now-h.at < lookAgain {
		return h
	}
	h := handlers{at: now}
	for r := f.live; r != nil; r = r.next {
		h.looked++
		if r.at() != running {
			continue
		}
		h.oldest = max(h.oldest, now-r.began)
		if at := r.ctx.EndedAt(); !at.IsZero() {
			h.overdue++
			h.last = max(h.last, at.Sub(f.epoch))
		}
	}
	f.seen = h
	return h
}
