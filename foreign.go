package onceq

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/onceq/onceq/internal/engine"
)

// foreign holds back messages of producers that know nothing of onceq, where ProcessorConfig.Key is
// missing that would find their keys: it is the worker's configuration that is wrong, and not the
// messages. Else the first start on a queue that exists already would empty it into the dead-letter
// queue.
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
	foreignLongest = engine.KeptFor
)

// left is how long the message may be held back yet. Where its age is not known, that of the
// Processor counts.
func (f *foreign) left(r *run, epoch time.Time) time.Duration {
	most := foreignMost
	if keeps := time.Duration(f.keeps.Load()); keeps > 0 {
		most = keeps / 2
	}
	since := r.Message.Published
	if since.IsZero() {
		since = epoch
	}
	return most - time.Since(since)
}

// tells is true at the first such message, and then each engine.TellAgain while they come.
func (f *foreign) tells() (since time.Duration, tell bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	if f.first.IsZero() {
		f.first = now
	}
	if !f.told.IsZero() && now.Sub(f.told) < engine.TellAgain {
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
