package sqlitewriter

import (
	"math/bits"
	"time"
)

// This file owns how those get the file who neither write through the writer nor know it: other
// programs, and transactions on other connections. They wait in SQLite's busy handler, whose pauses
// grow from 1 to 100 ms. Between two of its transactions the writer frees the file for an instant,
// which such a one hits by chance, after a dozen seconds or never.
//
// So a writer that is never idle leaves the file alone for a while now and then. Writers of several
// processes do it at the same moments of the clock, because one of them alone would only make room
// for the others. How often depends on who came: a writer in whose pauses nobody writes gives away
// a twenty-fifth of its time, and a fifth right after somebody came. The goroutine of Writer.run
// alone has it, and nothing is locked.

const (
	// Another writer of ours waits no longer than this between two tries.
	breather = 300 * time.Microsecond

	// In most of the first 200 ms of its waiting another program looks at least each 26 ms.
	shortPause = 26 * time.Millisecond
	longPause  = 80 * time.Millisecond
	// Each is double the one before it, so that a rare pause is at the moment of a frequent one.
	mostOften = 125 * time.Millisecond
	steps     = 4

	leastOften = mostOften << steps
	// remembered is for how long a visit makes the pauses as frequent as they get. Twice that time
	// afterwards they are half as frequent, and so on.
	remembered = time.Second
	// settled ends a pause early: somebody came, and since then nobody.
	settled = 5 * time.Millisecond
	// look is how often a pause looks whether somebody came.
	look = time.Millisecond
)

// others is what a writer knows of them.
type others struct {
	seen   time.Time     // when one of them last wrote in a pause
	paused time.Time     // when the last pause was to begin
	idled  time.Duration // for how long there was nothing to write since then
}

// rhythm says how often, and for how long, the file is left alone.
func (o *others) rhythm(now time.Time) (every, lasts time.Duration) {
	n := steps
	if !o.seen.IsZero() {
		n = min(n, bits.Len64(uint64(max(0, now.Sub(o.seen))/remembered)))
	}
	every = mostOften << n
	return every, min(max(every/5, shortPause), longPause)
}

// due reports whether it is time for a pause, when it began and when it ends.
func (o *others) due(now time.Time) (begins, end time.Time, due bool) {
	every, lasts := o.rhythm(now)
	begins = now.Truncate(every)
	end = begins.Add(lasts)
	return begins, end, now.Before(end) && begins.After(o.paused)
}

// rest leaves the file alone: for a breather, or for a pause where it is time. version tells by
// another number that another connection has written.
func (o *others) rest(version func() (int64, bool)) {
	now := time.Now()
	begins, end, due := o.due(now)
	if !due {
		<-time.After(breather)
		return
	}
	idled, since := o.idled, begins.Sub(o.paused)
	o.paused, o.idled = begins, 0
	before, ok := version()
	if !ok || idled > min(since, leastOften)/4 { // who came, came then
		<-time.After(breather)
		return
	}
	var last time.Time
	for ; now.Before(end) && (last.IsZero() || now.Sub(last) < settled); now = time.Now() {
		<-time.After(look)
		if v, ok := version(); ok && v != before {
			before, last = v, time.Now()
			o.seen = last
		}
	}
}
