package onceq

import (
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/onceq/onceq/internal/verdict"
)

// foreign holds back messages of producers that know nothing of onceq, where Config.Key is missing
// that would find their keys: it is the worker's configuration that is wrong, and not the messages.
// Else the first start on a queue that exists already would empty it into the dead-letter queue.
//
// begin asks it for each message that has no key. The Worker tells it what the queue keeps.
type foreign struct {
	met      atomic.Bool  // a message with a key of ours has come, so one without is the exception
	keeps    atomic.Int64 // the queue's retention, as a Duration; 0 = unknown
	receives atomic.Int64 // after so many the queue moves a message away; 0 = never, or unknown

	mu          sync.Mutex
	first, told time.Time
}

// How long a message without a key is held back: at most for half of what the queue keeps messages,
// or foreignMost where that is not known. It is given back for foreignLeast at a time. Where the
// queue counts its receives they are spread over the time there is, but whoever has mended the
// configuration need not wait longer than foreignLongest.
const (
	foreignMost    = 24 * time.Hour
	foreignLeast   = 5 * time.Minute
	foreignLongest = keptFor
)

// holdForeign gives a message back that was refused because it has no key, and reports whether it
// has.
func (p *Processor) holdForeign(r *run, no *refusal) bool {
	f := &p.foreign
	if no.class != ClassNoKey || p.c.Key != nil || f.met.Load() {
		return false
	}
	left := f.left(r, p.epoch)
	if left <= 0 {
		return false
	}
	wait := foreignLeast
	if p.holdsBack(r) {
		wait = keptFor // it stays in the queue in the end, too
	}
	if receives := int(f.receives.Load()); receives > 0 && r.message.Attempt > 0 {
		more := receives - r.message.Attempt
		if more <= 0 {
			return false // the queue would move it away, and nobody would know why
		}
		wait = min(max(wait, left/time.Duration(more)), foreignLongest)
	}
	if since, tell := f.tells(); tell {
		p.c.Logger.LogAttrs(r.f.t.base, slog.LevelError,
			"onceq: messages have no key, because their producer does not use onceq; they are held back. Set Config.Key, which finds the key of such a message",
			forSo(since), slog.String("job", r.name()), slog.Duration("letter_in", left.Round(time.Second)))
	}
	r.verdict.Class, r.verdict.Text = no.class, verdict.Text(no.err)
	p.finish(r, Disposition{Action: Nack, Delay: min(wait, left)}, OutcomeKept)
	return true
}

// left is how long the message may be held back yet. Where its age is not known, that of the
// Processor counts.
func (f *foreign) left(r *run, epoch time.Time) time.Duration {
	most := foreignMost
	if keeps := time.Duration(f.keeps.Load()); keeps > 0 {
		most = keeps / 2
	}
	since := r.message.Published
	if since.IsZero() {
		since = epoch
	}
	return most - time.Since(since)
}

// tells is true at the first such message, and then each tellAgain while they come.
func (f *foreign) tells() (since time.Duration, tell bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	if f.first.IsZero() {
		f.first = now
	}
	if !f.told.IsZero() && now.Sub(f.told) < tellAgain {
		return 0, false
	}
	f.told = now
	return now.Sub(f.first), true
}

// meet is told of a message with a key of ours.
func (f *foreign) meet() {
	if !f.met.Load() { // a store for every message would be shared by all processors
		f.met.Store(true)
	}
}
