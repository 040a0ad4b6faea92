package matrix

import (
	"fmt"
	"testing"
	"time"

	"github.com/onceq/onceq/control"
	"github.com/onceq/onceq/internal/controlstore"
	"github.com/onceq/onceq/onceqtest"
)

// pausedKinds are the faults of TestPaused: the others are the same with rules and without.
var pausedKinds = []onceqtest.FaultKind{onceqtest.CrashBefore, onceqtest.CrashAfter, onceqtest.Fail, onceqtest.LoseReply}

// ruled is how long the operator's pause lasts.
const ruled = 20 * time.Second

// TestPaused is the crash matrix with operators: each call of a worker that reads rules and keeps a
// seat goes wrong, its calls for these too, and in the middle an operator pauses the queue. The
// worker that takes over starts during the pause. The promise holds as without rules, and nobody
// begins a job while the pause holds.
func TestPaused(t *testing.T) {
	for _, open := range []func() *backend{memory, sqlite} {
		b := open()
		b.steered = 2 * time.Second
		t.Run(b.name, func(t *testing.T) {
			for _, m := range []mode{completeTx, rerun, park} {
				if b.missing(m) != "" || m == rerun && b.transactions {
					continue
				}
				for _, s := range scenarios {
					if s.name != "success" && s.name != "retry" {
						continue
					}
					t.Run(fmt.Sprint(m, "-", s.name), func(t *testing.T) {
						t.Parallel()
						b.paused(t, m, s)
					})
				}
			}
		})
	}
}

// paused finds the calls of a scenario with a pause, and lets each go wrong.
func (b *backend) paused(t *testing.T, m mode, s scenario) {
	var calls []onceqtest.Call
	b.in(t, func(t *testing.T) { calls = playPaused(t, b, m, s, nil) })
	if t.Failed() {
		return
	}
	left := b.leftOut(t)
	for i, c := range calls {
		if c.N > 2 || left(i) {
			continue // one look at the rules is as another
		}
		for _, kind := range pausedKinds {
			t.Run(fmt.Sprintf("%s-%d-%s", c.Op, c.N, kind), func(t *testing.T) {
				t.Parallel()
				fault := onceqtest.Fault{Op: c.Op, N: c.N, Kind: kind}
				b.in(t, func(t *testing.T) { playPaused(t, b, m, s, &fault) })
			})
		}
	}
}

// playPaused plays a cell. The operator pauses the queue as soon as the handler has begun, or the
// worker is dead.
func playPaused(t *testing.T, b *backend, m mode, s scenario, fault *onceqtest.Fault) []onceqtest.Call {
	w := newWorld(t, b, m, s)
	var faults []onceqtest.Fault
	if fault != nil {
		faults = append(faults, *fault)
	}
	first := w.start("A", faults...)
	var second *worker
	var ends time.Time
	runs := 0 // before the second worker began
	for (!w.isEmpty() || ends.IsZero()) && time.Since(w.begun) < b.patience {
		if ends.IsZero() && (w.began() > 0 || first.isDead()) {
			ends = w.pause(ruled)
		}
		if second == nil && first.isDead() && !ends.IsZero() {
			runs = w.began()
			w.timePasses(first)
			second = w.start("B")
		}
		if second != nil && time.Now().Before(ends) && w.began() > runs {
			t.Errorf("the worker that started during the pause has begun a job %v before its end", time.Until(ends))
			runs = w.began()
		}
		<-time.After(b.grain())
	}
	took := time.Since(w.begun)
	first.end()
	if second != nil {
		second.end()
	}
	<-time.After(b.second)
	letters := w.dead()
	if !w.isEmpty() {
		t.Errorf("the queue is not empty after %v", took)
	}
	w.checkRun()
	w.checkPromise(letters)
	w.audit.check(t, w.record())
	w.checkStale()
	if t.Failed() {
		t.Logf("%v under %v, %v:\n%s", fault, m, s.name, w.tell(letters))
	}
	return first.Trace()
}

// began is how often a handler has begun.
func (w *world) began() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.runs
}

// pause is the operator's word. It answers when the pause ends.
func (w *world) pause(d time.Duration) time.Time {
	w.Helper()
	until := time.Now().Add(d)
	_, err := controlstore.Change(w.Context(), w.db.store(), func(rs *controlstore.Rules) error {
		rs.Rules = append(rs.Rules, control.Rule{Do: control.Pause, Until: until, By: "ana", Reason: "matrix"})
		return nil
	})
	if err != nil {
		w.Fatal(err)
	}
	return until
}
