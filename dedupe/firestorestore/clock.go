package firestorestore

import (
	"sync"
	"time"
)

// This file owns the service's time: what is known of it, and how sure that is. Every answer with a
// time of the service feeds it. clock.mu guards all fields but wall and is never held during a
// request.

// margin is added to each lease, because two clocks may both be off.
const margin = time.Second

// maxStep is how far the host's two clocks may go apart before the time is learnt anew.
const maxStep = time.Second

// clock is the service's time: the host's time, corrected by the times in answers. The service has
// taken each of them between the request and its answer, which leaves an interval for the
// difference between the two clocks. All answers together leave a narrower one. The zero value
// knows nothing yet.
type clock struct {
	// wall is time.Now; tests put it off.
	wall func() time.Time

	mu    sync.Mutex
	known bool
	// The service's time less the host's is between these.
	least, most time.Duration
	// When the last answer was looked at, by the host's wall clock and by its monotonic one. If the
	// two have gone apart since, the host was suspended or its clock was set. Then what was learnt
	// before may be wrong.
	seenWall, seenMono time.Time
}

func (c *clock) host() time.Time {
	if c.wall != nil {
		return c.wall().Round(0)
	}
	return time.Now().Round(0)
}

// now is the service's time, and whether that is known. It is never ahead of the service's, so that
// nobody's lease ends by a guess, and behind it by no more than the quickest answer has taken.
func (c *clock) now() (t time.Time, known bool) {
	w := c.host()
	c.mu.Lock()
	defer c.mu.Unlock()
	return micro(w.Add(c.least)), c.known && !c.stepped(w)
}

// stepped reports whether the host was suspended, or its clock set, between the last answer and w.
// c.mu is held.
func (c *clock) stepped(w time.Time) bool {
	return (w.Sub(c.seenWall) - time.Since(c.seenMono)).Abs() > maxStep
}

// asked is when a request was sent, by both clocks of the host.
type asked struct{ wall, mono time.Time }

func (c *clock) ask() asked { return asked{c.host(), time.Now()} }

// observe learns from t, which the service has taken between a and now.
func (c *clock) observe(t time.Time, a asked) {
	answered, took := c.host(), time.Since(a.mono)
	least, most := t.Sub(answered), t.Sub(a.wall)
	c.mu.Lock()
	defer c.mu.Unlock()
	if (answered.Sub(a.wall) - took).Abs() > maxStep {
		c.known = false // the host slept on the way, or its clock was set
		return
	}
	// What contradicts the answers before it starts anew: the host's clock was set, or has run
	// away.
	if c.known && !c.stepped(answered) && least <= c.most && most >= c.least {
		least, most = max(least, c.least), min(most, c.most)
	}
	c.known, c.least, c.most = true, least, most
	c.seenWall, c.seenMono = answered, time.Now()
}

// spread is how much the answers leave open.
func (c *clock) spread() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.most - c.least
}

// reading is the service's time, and the host's just before it.
type reading struct{ now, sent time.Time }

// isMisled reports whether a write that was made at r, and carried out at t, was late by more than
// the host knows: it was suspended on the way, so to others the lease may have ended.
func (r reading) isMisled(t time.Time) bool {
	late := t.Sub(r.now)
	return late > time.Since(r.sent)+margin/2 || late < -margin/2
}
