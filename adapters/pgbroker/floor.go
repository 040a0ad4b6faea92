package pgbroker

import (
	"sync"
	"time"
)

// This file owns the floor: from which due time on a look reads the index. Receives call begin and
// end around each look, from many goroutines; mu guards all of it.
//
// Every message that was taken leaves a dead entry in the index. While somebody's transaction keeps
// vacuum from removing them, a look that begins at the front of the index reads all of them, and
// each is slower than the one before. So a look begins where the last one took its highest due
// time. What lies before that is found by a full look: what a slow transaction has committed, what
// was rolled back under SKIP LOCKED, what another process gave back. A full look goes when twenty
// times as long as the last one took has passed, so that all of them together take a twentieth of
// the time.

const (
	// slack is how late an insertion may be committed and still be found from the floor.
	slack = 100 * time.Millisecond
	// rarity is how much of the time is left for ordinary looks.
	rarity = 20
	// maxBetween bounds how long a late commit waits for its full look.
	maxBetween = 4 * time.Second
)

type floor struct {
	mu sync.Mutex
	at time.Time // zero = the front of the index
	// lowered counts how often a full look has set the floor back, so that a look that began before
	// does not raise it over what is left there.
	lowered int
	next    time.Time // when the next full look goes
}

// start is where a look begins.
type start struct {
	full    bool
	at      time.Time
	lowered int
}

// text is the argument of the statement.
func (s start) text() string {
	if s.full || s.at.IsZero() {
		return "-infinity"
	}
	return s.at.UTC().Format("2006-01-02T15:04:05.999999Z")
}

// begin says where the next look begins.
func (f *floor) begin() start {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	if now.Before(f.next) && !f.at.IsZero() {
		return start{at: f.at, lowered: f.lowered}
	}
	// Others begin at the floor until this one has answered, or was not answered for so long.
	f.next = now.Add(maxBetween)
	return start{full: true, lowered: f.lowered}
}

func (f *floor) beginFull() start {
	f.mu.Lock()
	defer f.mu.Unlock()
	return start{full: true, lowered: f.lowered}
}

// end notes what a look has found in the time that it took: the highest due time, zero = none, and
// whether there may be more behind it.
func (f *floor) end(s start, took time.Duration, highest time.Time, filled bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if s.full {
		f.next = time.Now().Add(min(rarity*took, maxBetween))
	}
	if highest.IsZero() {
		return
	}
	at := highest.Add(-slack)
	switch {
	case s.full && filled && at.Before(f.at):
		f.at = at
		f.lowered++
	case s.lowered == f.lowered && at.After(f.at):
		f.at = at
	}
}

// putOff lets the next full look wait for what the last one did for this long, apart from taking.
func (f *floor) putOff(took time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if next := time.Now().Add(min(rarity*took, maxBetween)); next.After(f.next) {
		f.next = next
	}
}
