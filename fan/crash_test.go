package fan_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/fan"
	"github.com/onceq/onceq/internal/coretest/rig"
	"github.com/onceq/onceq/onceqtest"
)

// TestCrashesOfAParent: at each call of a parent's process it dies, before or after the call, or
// the call fails, or its answer is lost. Each child runs once all the same, and the parent adds up
// all of them once.
func TestCrashesOfAParent(t *testing.T) {
	t.Cleanup(fan.SetPart(20))
	const n = 47 // two parts and a bit
	slow := func(ctx context.Context, j *onceq.Job, i int) error {
		if i%25 == 3 {
			return after(4*time.Second)(ctx, j, i)
		}
		return nil
	}
	last := 0 // how often the run without a fault has made the call
	// cell plays one fault, and answers the calls that the process has made.
	cell := func(t *testing.T, f *onceqtest.Fault) (calls map[onceqtest.Op]int) {
		play(t, n, func(w *family) {
			w.works(slow)
			w.Send("p")
			p, store, queue := rig.Mortal(w.Store, w.Q)
			if f != nil {
				p.At(*f)
			}
			c := w.c
			c.To = p.Producer(w.children)
			stop := w.Beside(func(s *rig.Setup) {
				s.Store, s.Broker, s.DeadLetter = store, queue, p.Sender(w.DLQ)
				s.Handler = p.Handler(onceq.HandlerFunc(func(ctx context.Context, j *onceq.Job) error {
					err := w.totalOf(ctx, j, store, c)
					select {
					case <-p.Dead():
						<-ctx.Done() // a dead process goes no further
					default:
					}
					return err
				}))
			})
			rig.Pass(40 * time.Second)
			stop()
			if f != nil {
				w.RunFor(2 * time.Minute)
				// Saves of one instant share a call, or do not. So the last call may not come, and
				// such a cell is a run without a fault.
				for _, missed := range p.Missed() {
					if missed.N < last {
						t.Errorf("the parent's process did not come by %v", missed)
					}
				}
			}
			w.wants("p")
			calls = map[onceqtest.Op]int{}
			for _, op := range []onceqtest.Op{onceqtest.Renew, onceqtest.Send, onceqtest.Get, onceqtest.Settle, onceqtest.Nack} {
				calls[op] = p.Calls(op)
			}
		}, rig.Steady)
		return calls
	}
	var calls map[onceqtest.Op]int
	t.Run("none", func(t *testing.T) { calls = cell(t, nil) })
	if calls[onceqtest.Send] < 3 || calls[onceqtest.Get] < 6 || calls[onceqtest.Renew] < 4 {
		t.Fatalf("the parent made %v: it has no gaps", calls)
	}
	for op, most := range calls {
		last = most
		for at := 1; at <= most; at++ {
			if at > 3 && at < most-1 && at%29 != 0 {
				continue // those of a part are alike, and those of a look
			}
			for _, kind := range []onceqtest.FaultKind{onceqtest.CrashBefore, onceqtest.CrashAfter, onceqtest.Fail, onceqtest.LoseReply} {
				f := onceqtest.Fault{Op: op, N: at, Kind: kind}
				t.Run(fmt.Sprintf("%v", f), func(t *testing.T) { cell(t, &f) })
			}
		}
	}
}
