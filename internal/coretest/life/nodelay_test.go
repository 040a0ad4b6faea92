package life

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/coretest/rig"
)

// A queue that takes no delay with a nack: the worker holds the message until its delay is over,
// and no slot meanwhile. A drain gives it back at once.
func TestQueueWithoutNackDelays(t *testing.T) {
	h := func(_ context.Context, j *onceq.Job) error {
		if j.Key().Key == "a" {
			return onceq.RetryAfter(10*time.Minute, rig.ErrBoom)
		}
		return nil
	}
	for name, c := range map[string]struct {
		extends bool
		again   time.Duration // when the message comes again
	}{"held": {true, 10 * time.Minute}, "where the queue cannot extend": {false, 25 * time.Second}} {
		t.Run(name, func(t *testing.T) {
			rig.Bubble(t, h, func(r *rig.Rig) {
				r.Q.ChangeLimits = func(l broker.Limits) broker.Limits {
					l.MaxNack, l.Extends = 0, c.extends
					return l
				}
				r.W = r.Worker(nil)
				r.Send("a", "b")
				r.Start()
				rig.Pass(c.again - time.Second)
				r.WantOutcomes("b", "done")
				if n := r.Q.Received("a"); n != 1 {
					t.Errorf("%d receives within the delay", n)
				}
				rig.Pass(2 * time.Second)
				if n := r.Q.Received("a"); n != 2 {
					t.Errorf("%d receives, want another one after the delay", n)
				}
				if err := r.Stop(); err != nil {
					t.Errorf("Run: %v", err)
				}
				// The receive that waits when the drain begins may bring it once more.
				ds := r.Q.Delays("a")
				if d, err := r.Q.Depth(r.Context()); err != nil || d.Visible != 1 || len(ds) < 2 || len(ds) > 3 || slices.Max(ds) > 0 {
					t.Errorf("after the drain the queue is %+v, %v, and it was nacked with %v", d, err, ds)
				}
			}, rig.With(func(c *rig.Setup) { c.Concurrency = 1 }))
		})
	}
}
