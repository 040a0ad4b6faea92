package claims

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/coretest/rig"
	"github.com/onceq/onceq/internal/faulty"
	"github.com/onceq/onceq/onceqtest"
)

// A redelivery that waited for a slot was extended meanwhile; the job that gets its receipt must
// know.
func TestHandOverAfterAWait(t *testing.T) {
	h := func(_ context.Context, j *onceq.Job) error {
		if string(j.Message.Body) == "a" {
			rig.Takes(10 * time.Minute)
		} else {
			rig.Takes(2 * time.Minute)
		}
		return nil
	}
	rig.Bubble(t, h, func(r *rig.Rig) {
		r.Send("a", "b")
		r.Start()
		rig.Pass(time.Second)
		r.Q.Expire(t, "a")
		rig.Pass(11 * time.Minute)
		r.WantQueue(0)
		r.WantOutcomes("a", "handed-over", "done")
		if n := r.Q.Received("a"); n != 2 {
			t.Errorf("%d receives, want 2", n)
		}
	}, rig.With(func(c *rig.Setup) { c.Concurrency = 2 }), rig.Preset(membroker.SQSStandard))
}

// While one redelivery looks for the job that runs, the key of another is still being found. The
// race detector finds out whether the two share fields.
func TestHandOverBesideAnAdmission(t *testing.T) {
	admitted := 0
	h := func(context.Context, *onceq.Job) error { rig.Takes(time.Minute); return nil }
	rig.Bubble(t, h, func(r *rig.Rig) {
		r.Store.Set(func(s *rig.Store) {
			s.Fault = func(c onceqtest.Call) (f faulty.Faults) {
				if c.Op == onceqtest.Claim && c.N == 2 {
					f = faulty.Slow(2 * time.Second)
				}
				return f
			}
		})
		r.Send("a")
		r.Start()
		for range 2 {
			rig.Pass(time.Second)
			r.Q.Expire(t, "a")
		}
		rig.Pass(2 * time.Minute)
		r.WantOutcomes("a", "handed-over", "handed-over", "done")
	}, rig.With(func(c *rig.Setup) {
		c.Concurrency = 3
		c.Key = func(m *broker.Message) (dedupe.Key, error) {
			if admitted++; admitted == 3 {
				rig.Takes(2 * time.Second)
			}
			return dedupe.Key{Key: m.Meta.Key}, nil
		}
	}))
}

// Jobs that are done pile up neither in memory nor in the manager when the queue is slow to take
// their acks.
func TestSlowAcksHoldReceivingBack(t *testing.T) {
	rig.Bubble(t, func(context.Context, *onceq.Job) error { return nil }, func(r *rig.Rig) {
		r.Q.SetFault(func(_ context.Context, c onceqtest.Call) (f faulty.Faults) {
			if c.Op == onceqtest.Ack {
				f = faulty.Slow(time.Second)
			}
			return f
		})
		for range 20 {
			r.Send(rig.Numbered("k"+time.Now().Format("150405.000")+"-", 100)...)
			rig.Pass(time.Millisecond)
		}
		r.Start()
		rig.Pass(1500 * time.Millisecond)
		d, err := r.Q.Depth(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if d.InFlight > 600 {
			t.Errorf("%d messages are held", d.InFlight)
		}
		rig.Pass(time.Minute)
		r.WantQueue(0)
	}, rig.Preset(membroker.SQSStandard), rig.With(func(c *rig.Setup) { c.Concurrency = 10 }))
}

// TestWholeCallErrorRefusesNobody: an error of the whole call says nothing of any entry, whatever
// it wraps. One bad entry must not dead-letter its neighbours.
func TestWholeCallErrorRefusesNobody(t *testing.T) {
	rig.Bubble(t, rig.Returns(nil), func(r *rig.Rig) {
		r.Store.Fault = func(c onceqtest.Call) faulty.Faults {
			if c.Op == onceqtest.Claim && c.N == 1 {
				return faulty.Fail(fmt.Errorf("the statement failed: %w", dedupe.ErrBadKey))
			}
			return nil
		}
		r.Send("a", "b")
		r.RunFor(time.Minute)
		r.WantStatus("a", dedupe.Done)
		r.WantStatus("b", dedupe.Done)
		r.NoLetters()
	})
}
