package onceq_test

import (
	"testing"
	"time"

	"github.com/onceq/onceq/internal/faulty"
	"github.com/onceq/onceq/onceqtest"
)

// While as many ends wait for their record as there are slots, nothing is received, because it
// could not start.
func TestUnsettledJobsStopReceiving(t *testing.T) {
	bubble(t, returns(nil), func(r *rig) {
		r.store.fails(errBoom, onceqtest.Settle)
		r.send("a")
		r.start()
		pass(time.Second)
		r.send("b") // for the receive that waits already
		pass(time.Second)
		r.send("c")
		pass(time.Minute)
		if n := r.q.received("c"); n != 0 {
			t.Errorf("the third was received")
		}
		r.store.heals()
		pass(time.Minute)
		r.wantQueue(0)
	}, with(func(c *setup) { c.Concurrency, c.Pollers, c.Prefetch = 1, 1, 2 }))
}

// A claim that is on its way when a drain begins, and fails, is not tried again: its message goes
// back at once.
func TestClaimThatFailsAmidADrain(t *testing.T) {
	bubble(t, never(t), func(r *rig) {
		sent := make(chan struct{})
		r.store.set(func(s *store) {
			s.fault = func(c onceqtest.Call) faulty.Faults {
				if c.Op != onceqtest.Claim {
					return nil
				}
				if c.N == 12 { // the pause after it is long
					close(sent)
				}
				return faulty.Slow(time.Second).With(faulty.Fail(errBoom))
			}
		})
		r.send("a")
		r.start()
		<-sent
		begin := time.Now()
		if err := r.stop(); err != nil {
			t.Errorf("Run: %v", err)
		}
		if took := time.Since(begin); took > 1100*time.Millisecond {
			t.Errorf("the drain took %v", took)
		}
		r.wantQueue(1)
	})
}

// A job whose end is on its way keeps its receipt, because its ack may be on its way, too.
func TestNoHandOverToAnEnd(t *testing.T) {
	bubble(t, returns(nil), func(r *rig) {
		r.store.fails(errBoom, onceqtest.Settle)
		r.send("a")
		r.start()
		pass(time.Second)
		r.q.expire(t, "a")
		pass(time.Second)
		r.wantOutcomes("a", "in-progress")
		r.store.heals()
		pass(5 * time.Minute)
		r.wantQueue(0)
		if n := r.seen.started("a"); n != 1 {
			t.Errorf("it ran %d times", n)
		}
	})
}
