package worlds

import (
	"sync"
	"time"

	"github.com/onceq/onceq/internal/coretest/rig"
	"github.com/onceq/onceq/internal/faulty"
	"github.com/onceq/onceq/onceqtest"
)

// An Episode is trouble that lasts. The draws of single calls that go wrong seldom make one. Nobody
// crashes because of an episode, and a deploy may come in the middle of it.
type Episode uint8

// The episodes.
const (
	noEpisode   Episode = iota
	StoreAway           // every call of the store fails at once
	StoreHangs          // every call of the store hangs until its context ends
	ExtendHangs         // every extension hangs until its context ends
	QueueAway           // every call of the queue but a receive fails at once
	HostStands          // one host stands still, with its handlers and its calls
	LastEpisode = HostStands
)

func (e Episode) String() string {
	return [...]string{"none", "store-away", "store-hangs", "extend-hangs", "queue-away", "host-stands"}[e]
}

// Weather is which episode is on, for all hosts of a test.
type Weather struct {
	mu    sync.Mutex
	on    Episode
	until time.Time
	still *Machine // of HostStands
}

// Begin starts an episode that lasts d. still is the host that stands still; nil = none.
func (w *Weather) Begin(e Episode, d time.Duration, still *Machine) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.on, w.until, w.still = e, time.Now().Add(d), still
}

// left is how long the episode goes on; 0 = another one is on, or none.
func (w *Weather) left(e Episode) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.on != e {
		return 0
	}
	return max(0, time.Until(w.until))
}

// StoreFault is what the episode makes of a call of the store.
func (w *Weather) StoreFault() (f faulty.Faults, bad bool) {
	switch {
	case w.left(StoreAway) > 0:
		return faulty.Fail(rig.ErrBoom), true
	case w.left(StoreHangs) > 0:
		return faulty.Hang(), true
	}
	return nil, false
}

// QueueFault is what the episode makes of a call of a queue.
func (w *Weather) QueueFault(c onceqtest.Call) (f faulty.Faults, bad bool) {
	switch {
	case w.left(ExtendHangs) > 0 && c.Op == onceqtest.Extend:
		return faulty.Slow(w.left(ExtendHangs)).With(faulty.Fail(rig.ErrBoom)), true
	case w.left(QueueAway) > 0 && c.Op != onceqtest.Receive:
		return faulty.Fail(rig.ErrBoom), true
	}
	return nil, false
}

// standStill keeps who calls it until the host m goes on. A host that stands still does not see
// that a context has ended.
func (w *Weather) standStill(m *Machine) {
	w.mu.Lock()
	d := time.Until(w.until)
	stands := w.on == HostStands && w.still == m
	w.mu.Unlock()
	if stands && d > 0 {
		m.stood.Store(true)
		rig.Takes(d)
	}
}
