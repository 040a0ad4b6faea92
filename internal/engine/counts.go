package engine

import (
	"sync"
	"time"
)

// This file owns what can be counted of flows while they are under way, and the lists of them. Who
// shows numbers calls Roll.Count. A Roll's lock is taken before a flow's, never after.

// Counts are what one look at flows has found. All are of now, except Ends.
type Counts struct {
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
	Ends      Tally
}

func (c *Counts) include(o Counts) {
	c.Slots, c.Busy, c.Held, c.Unsettled = c.Slots+o.Slots, c.Busy+o.Busy, c.Held+o.Held, c.Unsettled+o.Unsettled
	c.Overdue, c.Oldest, c.Stuck = c.Overdue+o.Overdue, max(c.Oldest, o.Oldest), max(c.Stuck, o.Stuck)
	c.Paused, c.Turned = c.Paused|o.Paused, latest(c.Turned, o.Turned)
	if c.Stopped.IsZero() || !o.Stopped.IsZero() && o.Stopped.Before(c.Stopped) {
		c.Stopped = o.Stopped
	}
	c.Ends.noteAll(o.Ends)
}

// Tally counts outcomes. There are few, and mostly the first is asked for.
type Tally []Ended

// Ended is how many runs had an outcome.
type Ended struct {
	Outcome Outcome
	N       uint64
}

func (t *Tally) note(o Outcome, n uint64) {
	for i := range *t {
		if e := &(*t)[i]; e.Outcome == o {
			e.N += n
			return
		}
	}
	*t = append(*t, Ended{o, n})
}

func (t *Tally) noteAll(of Tally) {
	for _, e := range of {
		t.note(e.Outcome, e.N)
	}
}

// counted is a flow, as far as it can be counted.
type counted interface {
	// counts is what the flow has under way; with how its runs have ended, if that is asked for.
	counts(now time.Time, ends bool) Counts
	// tally adds how its runs have ended to a tally.
	tally(*Tally)
	// leases is how many its engine keeps, and which engine that is.
	leases() (engine any, n int)
}

// Roll is the list of the flows that are under way, and knows how the runs of the others ended.
type Roll struct {
	mu    sync.Mutex
	flows map[counted]struct{}
	past  Tally
}

func (l *Roll) enter(f counted) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.flows == nil {
		l.flows = make(map[counted]struct{})
	}
	l.flows[f] = struct{}{}
}

// leave takes a flow off the list, and keeps how its runs have ended.
func (l *Roll) leave(f counted) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, ok := l.flows[f]; !ok {
		return
	}
	delete(l.flows, f)
	f.tally(&l.past)
}

// Count looks at all flows. With ends, it also counts how runs have ended.
func (l *Roll) Count(now time.Time, ends bool) (c Counts) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if ends {
		c.Ends.noteAll(l.past)
	}
	for f := range l.flows {
		c.include(f.counts(now, ends))
	}
	return c
}

// Leases is how many leases the flows' engines keep.
func (l *Roll) Leases() (all int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	seen := make(map[any]bool, 1)
	for f := range l.flows {
		if engine, n := f.leases(); !seen[engine] {
			seen[engine] = true
			all += n
		}
	}
	return all
}

// handlers is what a look at the running handlers has found.
type handlers struct {
	at      time.Duration // of the look, since the flow's epoch
	looked  int           // runs looked at
	oldest  time.Duration // for which the oldest has run
	overdue int
	last    time.Duration // when the context of the last of these ended, since the epoch
}
