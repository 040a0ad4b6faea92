package life

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/coretest/rig"
	"github.com/onceq/onceq/internal/faulty"
	"github.com/onceq/onceq/onceqtest"
)

// The store is asked for claims one by one, and each takes long. A drain ends that: what was not
// asked for is handed back, and no attempt is lost.
func TestDividedClaimsEndWithTheDrain(t *testing.T) {
	keys := rig.Numbered("k", 40)
	rig.Bubble(t, rig.Returns(nil), func(r *rig.Rig) {
		r.Store.Set(func(s *rig.Store) {
			s.OnClaim = func(rs []dedupe.ClaimRequest, cs []dedupe.Claim) []dedupe.Claim {
				if len(rs) > 1 {
					panic("the store breaks on many keys")
				}
				rig.Takes(4 * time.Second)
				return cs
			}
		})
		r.Send(keys...)
		r.Start()
		rig.Pass(15 * time.Second)
		if err := r.Stop(); err != nil {
			t.Errorf("Run: %v", err)
		}
		asked := r.Store.Claims.Load()
		rig.Pass(10 * time.Minute)
		if n := r.Store.Claims.Load() - asked; n != 0 {
			t.Errorf("%d claims after Run has returned", n)
		}
		r.Store.Set(func(s *rig.Store) { s.OnClaim = nil })
		r.RunFor(10 * time.Minute)
		for _, k := range keys {
			r.WantStatus(k, dedupe.Done)
		}
		r.NoLetters()
	}, rig.Most(1), rig.With(func(c *rig.Setup) { c.Concurrency = 50 }))
}

// A claim that is won when Run has been given up is released: the attempt of a handler that never
// started does not count.
func TestClaimWonAfterTheHardEnd(t *testing.T) {
	rig.Bubble(t, rig.Returns(nil), func(r *rig.Rig) {
		r.Store.Set(func(s *rig.Store) {
			s.OnClaim = func(_ []dedupe.ClaimRequest, cs []dedupe.Claim) []dedupe.Claim {
				rig.Takes(10 * time.Second) // deaf to its context
				return cs
			}
		})
		r.Send("a")
		r.Start()
		rig.Pass(time.Second)
		if err := r.Stop(); err == nil {
			t.Error("Run has not told of the job that it gave up")
		}
		rig.Pass(time.Minute)
		r.Store.Set(func(s *rig.Store) { s.OnClaim = nil })
		r.RunFor(10 * time.Minute)
		r.WantStatus("a", dedupe.Done)
		r.NoLetters()
	}, rig.Most(1), rig.With(func(c *rig.Setup) { c.DrainTimeout, c.SettleTimeout = time.Second, time.Second }))
}

// A claim was answered Stale, and its repeat had no answer. It is given back like any claim in
// doubt.
func TestStaleClaimInDoubt(t *testing.T) {
	rig.BothWays(t, rig.Returns(nil), func(r *rig.Rig) {
		var n atomic.Int64
		r.Store.Set(func(s *rig.Store) {
			s.OnClaim = func(_ []dedupe.ClaimRequest, cs []dedupe.Claim) []dedupe.Claim {
				if n.Add(1) == 1 {
					s.Fails(rig.ErrBoom, onceqtest.Claim)
					cs[0] = dedupe.Claim{Outcome: dedupe.Stale}
				}
				return cs
			}
		})
		r.Send("a")
		r.Start()
		rig.Pass(3 * time.Second)
		if err := r.Stop(); err != nil {
			t.Errorf("Run: %v", err)
		}
		if got := r.Q.Delays("a"); len(got) != 1 || got[0] != 0 {
			t.Errorf("given back with the delays %v, want 0 once", got)
		}
	})
}

// A store whose leases are over before they were asked for is not asked in a busy loop.
func TestLeasesThatAreOver(t *testing.T) {
	rig.BothWays(t, rig.Returns(nil), func(r *rig.Rig) {
		r.Store.Set(func(s *rig.Store) {
			s.OnClaim = func(_ []dedupe.ClaimRequest, cs []dedupe.Claim) []dedupe.Claim {
				for i := range cs {
					cs[i].Lease.Deadline = time.Time{}
				}
				return cs
			}
		})
		r.Send("a")
		r.RunFor(time.Minute)
		if n := r.Store.Claims.Load(); n > 60 {
			t.Errorf("%d claims in a minute", n)
		}
		if r.Seen.Started("a") != 0 {
			t.Error("it ran under a lease that was over")
		}
	})
}

// A dead-letter queue that takes nothing for an hour keeps half of the places at most: healthy jobs
// go on.
func TestDeadLetterQueueAwayLeavesRoom(t *testing.T) {
	rig.Bubble(t, func(_ context.Context, j *onceq.Job) error {
		if strings.HasPrefix(j.Key().Key, "bad") {
			return onceq.Permanent(rig.ErrBoom)
		}
		return nil
	}, func(r *rig.Rig) {
		r.DLQ.SetFault(func(context.Context, onceqtest.Call) faulty.Faults { return faulty.Fail(rig.ErrBoom) })
		r.Send(rig.Numbered("bad", 10)...)
		r.Send(rig.Numbered("good", 100)...)
		r.Start()
		rig.Pass(time.Hour)
		for _, k := range rig.Numbered("good", 100) {
			r.WantStatus(k, dedupe.Done)
		}
		r.DLQ.SetFault(nil)
		rig.Pass(time.Hour)
		if n := len(r.Letters()); n < 10 {
			t.Errorf("%d letters, want one for each of ten", n)
		}
		r.WantQueue(0)
	})
}
