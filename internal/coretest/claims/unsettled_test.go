package claims

import (
	"testing"
	"time"

	"github.com/onceq/onceq/internal/coretest/rig"
	"github.com/onceq/onceq/internal/faulty"
	"github.com/onceq/onceq/onceqtest"
)

// While as many ends wait for their record as there are slots, nothing is received, because it
// could not start.
func TestUnsettledJobsStopReceiving(t *testing.T) {
	rig.Bubble(t, rig.Returns(nil), func(r *rig.Rig) {
		r.Store.Fails(rig.ErrBoom, onceqtest.Settle)
		r.Send("a")
		r.Start()
		rig.Pass(time.Second)
		r.Send("b") // for the receive that waits already
		rig.Pass(time.Second)
		r.Send("c")
		rig.Pass(time.Minute)
		if n := r.Q.Received("c"); n != 0 {
			t.Errorf("the third was received")
		}
		r.Store.Heals()
		rig.Pass(time.Minute)
		r.WantQueue(0)
	}, rig.With(func(c *rig.Setup) { c.Concurrency, c.Pollers, c.Prefetch = 1, 1, 2 }))
}

// A claim that is on its way when a drain begins, and fails, is not tried again: its message goes
// back at once.
func TestClaimThatFailsAmidADrain(t *testing.T) {
	rig.Bubble(t, rig.Never(t), func(r *rig.Rig) {
		sent := make(chan struct{})
		r.Store.Set(func(s *rig.Store) {
			s.Fault = func(c onceqtest.Call) faulty.Faults {
				if c.Op != onceqtest.Claim {
					return nil
				}
				if c.N == 12 { // the pause after it is long
					close(sent)
				}
				return faulty.Slow(time.Second).With(faulty.Fail(rig.ErrBoom))
			}
		})
		r.Send("a")
		r.Start()
		<-sent
		begin := time.Now()
		if err := r.Stop(); err != nil {
			t.Errorf("Run: %v", err)
		}
		if took := time.Since(begin); took > 1100*time.Millisecond {
			t.Errorf("the drain took %v", took)
		}
		r.WantQueue(1)
	})
}

// A job whose end is on its way keeps its receipt, because its ack may be on its way, too.
func TestNoHandOverToAnEnd(t *testing.T) {
	rig.Bubble(t, rig.Returns(nil), func(r *rig.Rig) {
		r.Store.Fails(rig.ErrBoom, onceqtest.Settle)
		r.Send("a")
		r.Start()
		rig.Pass(time.Second)
		r.Q.Expire(t, "a")
		rig.Pass(time.Second)
		r.WantOutcomes("a", "in-progress")
		r.Store.Heals()
		rig.Pass(5 * time.Minute)
		r.WantQueue(0)
		if n := r.Seen.Started("a"); n != 1 {
			t.Errorf("it ran %d times", n)
		}
	})
}
