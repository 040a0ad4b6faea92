package onceq_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/faulty"
	"github.com/onceq/onceq/onceqtest"
)

// The store is asked for claims one by one, and each takes long. A drain ends that: what was not
// asked for is handed back, and no attempt is lost.
func TestDividedClaimsEndWithTheDrain(t *testing.T) {
	keys := numbered("k", 40)
	bubble(t, returns(nil), func(r *rig) {
		r.store.set(func(s *store) {
			s.onClaim = func(rs []dedupe.ClaimRequest, cs []dedupe.Claim) []dedupe.Claim {
				if len(rs) > 1 {
					panic("the store breaks on many keys")
				}
				takes(4 * time.Second)
				return cs
			}
		})
		r.send(keys...)
		r.start()
		pass(15 * time.Second)
		if err := r.stop(); err != nil {
			t.Errorf("Run: %v", err)
		}
		asked := r.store.claims.Load()
		pass(10 * time.Minute)
		if n := r.store.claims.Load() - asked; n != 0 {
			t.Errorf("%d claims after Run has returned", n)
		}
		r.store.set(func(s *store) { s.onClaim = nil })
		r.run(10 * time.Minute)
		for _, k := range keys {
			r.wantStatus(k, dedupe.Done)
		}
		r.noLetters()
	}, most(1), with(func(c *setup) { c.Concurrency = 50 }))
}

// A claim that is won when Run has been given up is released: the attempt of a handler that never
// started does not count.
func TestClaimWonAfterTheHardEnd(t *testing.T) {
	bubble(t, returns(nil), func(r *rig) {
		r.store.set(func(s *store) {
			s.onClaim = func(_ []dedupe.ClaimRequest, cs []dedupe.Claim) []dedupe.Claim {
				takes(10 * time.Second) // deaf to its context
				return cs
			}
		})
		r.send("a")
		r.start()
		pass(time.Second)
		if err := r.stop(); err == nil {
			t.Error("Run has not told of the job that it gave up")
		}
		pass(time.Minute)
		r.store.set(func(s *store) { s.onClaim = nil })
		r.run(10 * time.Minute)
		r.wantStatus("a", dedupe.Done)
		r.noLetters()
	}, most(1), with(func(c *setup) { c.DrainTimeout, c.SettleTimeout = time.Second, time.Second }))
}

// A claim was answered Stale, and its repeat had no answer. It is given back like any claim in
// doubt.
func TestStaleClaimInDoubt(t *testing.T) {
	bubble(t, returns(nil), func(r *rig) {
		var n atomic.Int64
		r.store.set(func(s *store) {
			s.onClaim = func(_ []dedupe.ClaimRequest, cs []dedupe.Claim) []dedupe.Claim {
				if n.Add(1) == 1 {
					s.fails(errBoom, onceqtest.Claim)
					cs[0] = dedupe.Claim{Outcome: dedupe.Stale}
				}
				return cs
			}
		})
		r.send("a")
		r.start()
		pass(3 * time.Second)
		if err := r.stop(); err != nil {
			t.Errorf("Run: %v", err)
		}
		if got := r.q.delays("a"); len(got) != 1 || got[0] != 0 {
			t.Errorf("given back with the delays %v, want 0 once", got)
		}
	})
}

// A store whose leases are over before they were asked for is not asked in a busy loop.
func TestLeasesThatAreOver(t *testing.T) {
	bubble(t, returns(nil), func(r *rig) {
		r.store.set(func(s *store) {
			s.onClaim = func(_ []dedupe.ClaimRequest, cs []dedupe.Claim) []dedupe.Claim {
				for i := range cs {
					cs[i].Lease.Deadline = time.Time{}
				}
				return cs
			}
		})
		r.send("a")
		r.run(time.Minute)
		if n := r.store.claims.Load(); n > 60 {
			t.Errorf("%d claims in a minute", n)
		}
		if r.seen.started("a") != 0 {
			t.Error("it ran under a lease that was over")
		}
	})
}

// A dead-letter queue that takes nothing for an hour keeps half of the places at most: healthy jobs
// go on.
func TestDeadLetterQueueAwayLeavesRoom(t *testing.T) {
	bubble(t, func(_ context.Context, j *onceq.Job) error {
		if strings.HasPrefix(j.Key().Key, "bad") {
			return onceq.Permanent(errBoom)
		}
		return nil
	}, func(r *rig) {
		r.dlq.SetFault(func(context.Context, onceqtest.Call) faulty.Faults { return faulty.Fail(errBoom) })
		r.send(numbered("bad", 10)...)
		r.send(numbered("good", 100)...)
		r.start()
		pass(time.Hour)
		for _, k := range numbered("good", 100) {
			r.wantStatus(k, dedupe.Done)
		}
		r.dlq.SetFault(nil)
		pass(time.Hour)
		if n := len(r.letters()); n < 10 {
			t.Errorf("%d letters, want one for each of ten", n)
		}
		r.wantQueue(0)
	})
}
