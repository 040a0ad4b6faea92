package matrix

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/onceq/onceq/onceqtest"
)

// episode is trouble that lasts longer than a lease, where a cell's is one call.
type episode struct {
	name string
	ops  []onceqtest.Op // that go wrong; none = the host stands still
	kind onceqtest.FaultKind
	// whole: the worker that lived through it, without a deploy, ran the handler once.
	whole bool
}

var (
	storeOps = []onceqtest.Op{onceqtest.Claim, onceqtest.Start, onceqtest.Renew, onceqtest.Settle, onceqtest.Get}
	episodes = []episode{
		{name: "store-away", ops: storeOps, kind: onceqtest.Fail},
		{name: "store-hangs", ops: storeOps, kind: onceqtest.Slow},
		{name: "extend-hangs", ops: []onceqtest.Op{onceqtest.Extend}, kind: onceqtest.Slow, whole: true},
		{name: "extend-fails", ops: []onceqtest.Op{onceqtest.Extend, onceqtest.Ack, onceqtest.Nack}, kind: onceqtest.Fail, whole: true},
		{name: "host-stands", kind: onceqtest.Stall},
	}
)

// befall lets the episode begin, for all calls of the process.
func (e episode) befall(k *worker, lasts time.Duration) {
	if e.kind == onceqtest.Stall {
		k.At(onceqtest.Fault{Kind: e.kind, Delay: lasts})
		return
	}
	for _, op := range e.ops {
		f := onceqtest.Fault{Op: op, Kind: e.kind, For: lasts}
		if e.kind == onceqtest.Slow {
			f.Delay = math.MaxInt64 // until the call's context ends
		}
		k.At(f)
	}
}

// TestEpisodes lets one worker, whose job takes longer than each of them, live through an episode
// of two leases; with a deploy in the middle of it, too: the worker is drained and another takes
// its place. In virtual time only, which is what costs nothing.
func TestEpisodes(t *testing.T) {
	const lasts = time.Minute
	for _, open := range []func() *backend{memory, sqlite, func() *backend { return memory().onSQS(false) }, func() *backend { return memory().onSQS(true) }} {
		b := open()
		b.long = lasts + lasts/2
		t.Run(b.name, func(t *testing.T) {
			for _, m := range modes {
				if b.missing(m) != "" {
					continue
				}
				left := b.leftOut(t)
				for i, e := range episodes {
					if left(i) {
						continue
					}
					for _, deploy := range []bool{false, true} {
						t.Run(fmt.Sprintf("%s/%s/deploy=%v", m, e.name, deploy), func(t *testing.T) {
							b.in(t, func(t *testing.T) { live(t, b, m, e, lasts, deploy) })
						})
					}
				}
			}
		})
	}
}

func live(t *testing.T, b *backend, m mode, e episode, lasts time.Duration, deploy bool) {
	w := newWorld(t, b, m, scenario{name: "episode", copies: 1, long: true})
	first := w.start("A")
	w.until("the handler runs", func() bool { return w.started() > 0 })
	<-time.After(b.second)
	e.befall(first, lasts)
	var second *worker
	if deploy {
		<-time.After(lasts / 2)
		first.stop()
		second = w.start("B")
		e.befall(second, lasts/2)
	}
	w.until("the queue is empty", w.isEmpty)
	first.end()
	if second != nil {
		second.end()
	}
	<-time.After(lasts) // a host that still stands goes on
	if err := first.ran(); err != nil && !deploy {
		t.Errorf("Run: %v", err)
	}
	letters := w.dead()
	w.checkPromise(letters)
	w.audit.check(t, w.record())
	w.checkStale()
	if n := w.started(); e.whole && !deploy && n != 1 {
		t.Errorf("the handler was started %d times, and the store confirmed its claim all the time", n)
	}
	if t.Failed() {
		t.Log(w.tell(letters))
	}
}

// started is how often a handler has begun.
func (w *world) started() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.runs
}
