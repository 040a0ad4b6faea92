package onceq

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/onceq/onceq/internal/engine"
)

// foreign holds back messages of producers that do not use onceq, where no ProcessorConfig.Key
// finds their keys. The worker's configuration is wrong then, and not the messages. Without
// foreign, the first start on a queue that exists already would empty it into the dead-letter
// queue.
//
// holdForeign asks it about each message that has no key. The Worker tells it for how long the
// queue keeps messages.
type foreign struct {
	met      atomic.Bool  // a message with a key of ours has come, so one without a key is the exception
	keeps    atomic.Int64 // the queue's retention, as a Duration; 0 = unknown
	receives atomic.Int64 // after so many the queue moves a message away; 0 = never, or unknown

	mu          sync.Mutex
	first, told time.Time
}

// How long a message without a key is held back. In all, it is at most half of the time for which
// the queue keeps messages, or foreignMost where that time is not known. Each time it is given back
// for foreignLeast. Where the queue counts its receives, they are spread over the time there is,
// but by no more than foreignLongest each, so that whoever has mended the configuration need not
// wait longer.
const (
	foreignMost    = 24 * time.Hour
	foreignLeast   = 5 * time.Minute
	foreignLongest = engine.KeptFor
)

// left is for how much longer the message may be held back. Where its age is not known, it counts
// from epoch, when its Worker or Batches was made.
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

// tells reports whether it is time to log: at the first such message, and then each
// engine.TellAgain while they come. since is how long ago the first one came.
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

// meet notes that a message with a key of ours has come.
func (f *foreign) meet() {
	if !f.met.Load() { // a store for every message would be shared by all processors
		f.met.Store(true)
	}
}
