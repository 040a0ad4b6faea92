package fakeserver

import "time"

// Alarm is a timer that rings when something is due, at a time in nanoseconds. It is ready to use,
// and belongs to its owner's lock, which whoever it rings must take.
type Alarm struct {
	timer *time.Timer
	due   int64
	set   bool
}

// Set lets ring be called, in a goroutine of its own, when due has come. One that is set to an
// earlier time stays so: it rings too early and is set anew, which is cheaper than to move it with
// each change. ring is the same at each call.
func (a *Alarm) Set(now, due int64, ring func()) {
	if a.set && a.due <= due {
		return
	}
	a.Stop()
	a.set, a.due = true, due
	if a.timer == nil {
		a.timer = time.AfterFunc(time.Duration(due-now), ring)
		return
	}
	a.timer.Reset(time.Duration(due - now))
}

// Rung tells the alarm that it rang.
func (a *Alarm) Rung() { a.set = false }

// Stop ends it, if it is set.
func (a *Alarm) Stop() {
	if a.set {
		a.timer.Stop()
		a.set = false
	}
}
