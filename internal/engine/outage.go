package engine

import (
	"log/slog"
	"sync"
	"time"
)

// TellAgain is how often an outage is told of while it lasts. Each line is to wake somebody, so
// none of them may be missed.
const TellAgain = 5 * time.Minute

// calm is how long something must be there, so that its next failure is another outage. What comes
// and goes faster has one outage, and one line each TellAgain.
const calm = 10 * time.Second

// Outage decides when a log is told of something that is away: when it has failed a few times,
// again while that lasts, and once when it is over.
type Outage struct {
	mu    sync.Mutex
	since time.Time // of the present failures; zero = it is there
	told  time.Time // of the last line about these failures, or about those before, if there was no calm between
	known bool      // a line has told of these
	last  time.Time // failure
	ended time.Time // when the failures before were over

	failing Part // what has not succeeded since
}

// Part is what may fail of one thing by itself. An outage is over when no part fails.
type Part uint8

// The parts.
const (
	Whole      Part = 1 << iota // of what has no parts
	partClaims                  // of the store
	partEnds
)

// Fails is told of a failure. tell reports whether that is worth a line, and lasts is how long the
// failures have lasted.
func (o *Outage) Fails(of Part, worth bool) (lasts time.Duration, tell bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now()
	if o.since.IsZero() || now.Sub(o.last) > TellAgain { // what failed last was given up, and nobody has asked since
		if now.Sub(o.ended) >= calm {
			o.told = time.Time{}
		}
		o.since, o.known, o.failing = now, false, 0
	}
	o.last = now
	o.failing |= of
	if !worth || !o.told.IsZero() && now.Sub(o.told) < TellAgain {
		return 0, false
	}
	o.told, o.known = now, true
	return now.Sub(o.since), true
}

// Succeeds is told of a success. tell reports whether an outage was told of that is over now, and
// lasted is how long it has lasted.
func (o *Outage) Succeeds(of Part) (lasted time.Duration, tell bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.failing &^= of; o.failing != 0 {
		return 0, false
	}
	now := time.Now()
	if o.known {
		lasted, tell = now.Sub(o.since), true
		o.told = now // a call that fails a moment later began before the end
	}
	if !o.since.IsZero() {
		o.ended = now
	}
	o.since, o.known = time.Time{}, false
	return lasted, tell
}

// ForSo says how long an outage lasts, as all lines about outages do.
func ForSo(lasts time.Duration) slog.Attr { return slog.Duration("since", lasts.Round(time.Second)) }

// Notice is the news that something is away, or there again.
type Notice struct {
	What  What
	Over  bool
	Since time.Time // the first failure
	Err   error     // the present one; nil where it is over
}

// What may be away.
type What uint8

// The dependencies.
const (
	TheStore What = iota + 1
	TheLetters
)
