package engine

import (
	"slices"
	"time"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
)

// This file owns looking at a flow and at an engine from outside: what runs, and what answers.
// Whoever shows numbers or health calls it. The flow's lock guards its numbers, which it keeps
// anyway, so that the hot path pays for the tally of outcomes alone.

// Close takes the flow from the lists of those that are under way. Its host calls it once, when it
// waits for nothing of the flow any more.
func (f *Flow[J]) Close() {
	f.en.Own.leave(f)
	f.en.all.leave(f)
}

func (f *Flow[J]) tally(to *Tally) {
	f.mu.Lock()
	defer f.mu.Unlock()
	to.noteAll(f.ends)
}

func (f *Flow[J]) leases() (engine any, n int) { return f.en, f.en.Held() }

func (f *Flow[J]) counts(at time.Time, ends bool) (c Counts) {
	f.mu.Lock()
	defer f.mu.Unlock()
	c.Slots, c.Busy, c.Held, c.Unsettled = f.slots(), f.busy, f.pending+f.followers, f.unsettled
	c.Paused = f.paused
	if f.turned != 0 {
		c.Turned = f.epoch.Add(f.turned)
	}
	if f.stopped {
		c.Stopped = f.epoch.Add(f.since)
	}
	if ends {
		c.Ends.noteAll(f.ends)
	}
	if f.busy == 0 {
		return c
	}
	now := at.Sub(f.epoch)
	h := f.handlers(now)
	c.Overdue, c.Oldest = h.overdue, h.oldest+now-h.at
	if h.overdue >= f.slots() {
		c.Stuck = now - h.last
	}
	return c
}

// A look at more than lookMost runs serves for lookAgain, because who asks for health asks often.
const (
	lookMost  = 64
	lookAgain = time.Second
)

// handlers looks at those that run. The caller holds the lock.
func (f *Flow[J]) handlers(now time.Duration) handlers {
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

// Job is a handler that runs, as Jobs saw it.
type Job struct {
	Message *broker.Message
	Key     dedupe.Key
	Began   time.Time
	Attempt int
	Fence   uint64
	Overdue bool // its context has ended
}

// Jobs are at most the most oldest handlers that run, the oldest first, and how many others do.
func (f *Flow[J]) Jobs(most int) (js []Job, more int) {
	f.mu.Lock()
	for r := f.live; r != nil; r = r.next {
		if r.at() == running {
			js = append(js, Job{r.Message, r.Key, f.epoch.Add(r.began), int(r.Attempt), r.Fence, !r.ctx.EndedAt().IsZero()})
		}
	}
	f.mu.Unlock()
	slices.SortFunc(js, func(a, b Job) int { return a.Began.Compare(b.Began) })
	if more = max(0, len(js)-most); more > 0 {
		js = slices.Clip(js[:most])
	}
	return js, more
}

// Patience is for how long a call that failed counts as failing: by then it was repeated, if
// anybody still wanted its answer.
func (en *Engine[J]) Patience() time.Duration { return 2 * (longestPause + en.o.CallTimeout) }

// longestPause is the longest pause of retry.Pause.
const longestPause = 5 * time.Second

// Store tells how the store answers.
func (en *Engine[J]) Store(now time.Time) Vital { return en.o.Pulse.Read(now, en.Patience()) }

// BeatsLate is how late the scheduler of beats is, beyond a lease's whole time; 0 = it is not.
func (en *Engine[J]) BeatsLate(now time.Time) time.Duration {
	return max(0, en.leases.Late(now)-min(en.o.Lease, en.o.Visibility))
}

// Letters tells how the dead-letter queue takes letters. A message whose letter was not taken may
// have been given back, and nobody asks again before it comes.
func (en *Engine[J]) Letters(now time.Time) Vital {
	return en.lettersPulse.Read(now, en.Patience()+refusedFor)
}
