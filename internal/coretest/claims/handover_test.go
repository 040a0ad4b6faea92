package onceq_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/faulty"
	"github.com/onceq/onceq/onceqtest"
)

// A redelivery that waited for a slot was extended meanwhile; the job that gets its receipt must
// know.
func TestHandOverAfterAWait(t *testing.T) {
	h := func(_ context.Context, j *onceq.Job) error {
		if string(j.Message.Body) == "a" {
			takes(10 * time.Minute)
		} else {
			takes(2 * time.Minute)
		}
		return nil
	}
	bubble(t, h, func(r *rig) {
		r.send("a", "b")
		r.start()
		pass(time.Second)
		r.q.expire(t, "a")
		pass(11 * time.Minute)
		r.wantQueue(0)
		r.wantOutcomes("a", "handed-over", "done")
		if n := r.q.received("a"); n != 2 {
			t.Errorf("%d receives, want 2", n)
		}
	}, with(func(c *setup) { c.Concurrency = 2 }), preset(membroker.SQSStandard))
}

// While one redelivery looks for the job that runs, the key of another is still being found. The
// race detector finds out whether the two share fields.
func TestHandOverBesideAnAdmission(t *testing.T) {
	admitted := 0
	h := func(context.Context, *onceq.Job) error { takes(time.Minute); return nil }
	bubble(t, h, func(r *rig) {
		r.store.set(func(s *store) {
			s.fault = func(c onceqtest.Call) (f faulty.Faults) {
				if c.Op == onceqtest.Claim && c.N == 2 {
					f = faulty.Slow(2 * time.Second)
				}
				return f
			}
		})
		r.send("a")
		r.start()
		for range 2 {
			pass(time.Second)
			r.q.expire(t, "a")
		}
		pass(2 * time.Minute)
		r.wantOutcomes("a", "handed-over", "handed-over", "done")
	}, with(func(c *setup) {
		c.Concurrency = 3
		c.Key = func(m *broker.Message) (dedupe.Key, error) {
			if admitted++; admitted == 3 {
				takes(2 * time.Second)
			}
			return dedupe.Key{Key: m.Meta.Key}, nil
		}
	}))
}

// Jobs that are done pile up neither in memory nor in the manager when the queue is slow to take
// their acks.
func TestSlowAcksHoldReceivingBack(t *testing.T) {
	bubble(t, func(context.Context, *onceq.Job) error { return nil }, func(r *rig) {
		r.q.SetFault(func(_ context.Context, c onceqtest.Call) (f faulty.Faults) {
			if c.Op == onceqtest.Ack {
				f = faulty.Slow(time.Second)
			}
			return f
		})
		for range 20 {
			r.send(numbered("k"+time.Now().Format("150405.000")+"-", 100)...)
			pass(time.Millisecond)
		}
		r.start()
		pass(1500 * time.Millisecond)
		d, err := r.q.Depth(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if d.InFlight > 600 {
			t.Errorf("%d messages are held", d.InFlight)
		}
		pass(time.Minute)
		r.wantQueue(0)
	}, preset(membroker.SQSStandard), with(func(c *setup) { c.Concurrency = 10 }))
}

// TestWholeCallErrorRefusesNobody: an error of the whole call says nothing of any entry, whatever
// it wraps. One bad entry must not dead-letter its neighbours.
func TestWholeCallErrorRefusesNobody(t *testing.T) {
	bubble(t, returns(nil), func(r *rig) {
		r.store.fault = func(c onceqtest.Call) faulty.Faults {
			if c.Op == onceqtest.Claim && c.N == 1 {
				return faulty.Fail(fmt.Errorf("the statement failed: %w", dedupe.ErrBadKey))
			}
			return nil
		}
		r.send("a", "b")
		r.run(time.Minute)
		r.wantStatus("a", dedupe.Done)
		r.wantStatus("b", dedupe.Done)
		r.noLetters()
	})
}
