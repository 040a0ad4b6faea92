package engine

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/onceq/onceq/internal/verdict"
)

// This file owns what is known of a dependency's health: when it last answered, and since when it
// has not. Those who call the store and the queues note each answer and each failure; whoever asks
// for health reads. An answer costs one atomic store a batch. p.mu guards the failures alone.

// Pulse knows how one kind of call to something goes. The zero value has seen no call.
type Pulse struct {
	answered atomic.Int64 // when, in nanoseconds of the wall clock; 0 = never
	failed   atomic.Int64 // when it last had no answer; the same

	mu    sync.Mutex
	since time.Time // the first failure after the last answer
	last  time.Time // the last failure
	err   string    // of it
	back  time.Time // when the last outage was over
}

// awayAfter is how long something must have failed, and been asked again, to count as away.
const awayAfter = time.Second

// Answers notes an answer that came now.
func (p *Pulse) Answers(now time.Time) {
	before := p.answered.Swap(now.UnixNano())
	if p.failed.Load() <= before {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.last.Sub(p.since) >= awayAfter {
		p.back = now
	}
}

// Misses notes that a call had no answer.
func (p *Pulse) Misses(err error) {
	now, text := time.Now(), verdict.Text(err)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.last.IsZero() || p.answered.Load() >= p.last.UnixNano() {
		p.since = now
	}
	p.last, p.err = now, text
	p.failed.Store(now.UnixNano())
}

// Vital is what a pulse tells.
type Vital struct {
	Seen    time.Time // the last answer
	Failing time.Time // since when it fails; zero = it does not
	Last    time.Time // while it fails: the last failure
	Back    time.Time // when the last outage was over
	Err     string    // while it fails
}

// IsAway reports whether it has failed for long enough to count as away.
func (v *Vital) IsAway() bool { return !v.Failing.IsZero() && v.Last.Sub(v.Failing) >= awayAfter }

// Read tells how it goes. What has not failed for a while was given up, and counts as well.
func (p *Pulse) Read(now time.Time, while time.Duration) (v Vital) {
	at := p.answered.Load()
	if at != 0 {
		v.Seen = time.Unix(0, at)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	v.Back = p.back
	if !p.last.IsZero() && p.last.UnixNano() > at && now.Sub(p.last) <= while {
		v.Failing, v.Last, v.Err = p.since, p.last, p.err
	}
	return v
}

// and joins two pulses of one thing: it was seen when either was, and fails since the earlier.
func (v Vital) and(o Vital) Vital {
	v.Seen = latest(v.Seen, o.Seen)
	if !o.Failing.IsZero() && (v.Failing.IsZero() || o.Failing.Before(v.Failing)) {
		v.Failing, v.Err = o.Failing, o.Err
	}
	v.Last, v.Back = latest(v.Last, o.Last), latest(v.Back, o.Back)
	return v
}

// StorePulse knows how a store answers.
type StorePulse struct{ claims, ends, beats Pulse }

// Read tells how the store answers. A renewal that fails counts only where nothing else has had an
// answer since, because nobody repeats it when its job has ended.
func (s *StorePulse) Read(now time.Time, while time.Duration) Vital {
	v := s.claims.Read(now, while).and(s.ends.Read(now, while))
	b := s.beats.Read(now, while)
	if !b.Failing.IsZero() && v.Seen.After(b.Last) {
		b = Vital{Seen: b.Seen, Back: b.Back}
	}
	return v.and(b)
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
