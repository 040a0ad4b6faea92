package onceq_test

import (
	"context"
	"errors"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
)

// forEver is what a user writes who wants no end.
const forEver = time.Duration(math.MaxInt64)

func TestDrainForEver(t *testing.T) {
	for _, set := range []func(c *setup){
		func(c *setup) { c.DrainTimeout = forEver },
		func(c *setup) { c.SettleTimeout = forEver },
		func(c *setup) { c.DrainTimeout, c.SettleTimeout = forEver, forEver },
	} {
		h := func(context.Context, *onceq.Job) error { takes(time.Hour); return nil }
		bubble(t, h, func(r *rig) {
			r.send("a")
			r.start()
			pass(time.Second)
			if err := r.stop(); err != nil {
				t.Errorf("Run: %v", err)
			}
			r.wantOutcomes("a", "done")
		}, with(set))
	}
}

func TestRetentionForEver(t *testing.T) {
	bubble(t, returns(errBoom), func(r *rig) {
		r.send("a")
		r.run(10 * time.Second)
		r.wantStatus("a", dedupe.Failed)
		r.wantOutcomes("a", "retried", "retried", "failed")
		if left := time.Until(r.record("a").Expires); left < 100*365*24*time.Hour {
			t.Errorf("the record is kept for %v", left)
		}
	}, steady, most(3), with(func(c *setup) { c.Retention = forEver }))
}

// Calls without a bound are as any others.
func TestCallTimeoutForEver(t *testing.T) {
	bubble(t, until(time.Minute), func(r *rig) {
		r.send("a")
		r.run(2 * time.Minute)
		r.wantOutcomes("a", "done")
	}, with(func(c *setup) { c.CallTimeout = forEver }))
	bubbleDo(t, func(d *doer) {
		v, err := d.do("a", nil, func(context.Context, *onceq.Job) (int, error) { return 1, nil })
		d.wants("with calls without a bound", v, err, 1, nil)
	}, with(func(c *setup) { c.CallTimeout = forEver }))
}

// A driver may say so where it knows no bound.
func TestLimitsForEver(t *testing.T) {
	bubble(t, until(10*time.Minute), func(r *rig) {
		r.q.limits = func(l broker.Limits) broker.Limits {
			l.MaxTotal, l.MaxHold, l.MaxWait = forEver, forEver, forEver
			return l
		}
		r.cfg.Pollers, r.cfg.Concurrency, r.cfg.Prefetch = 2, 1, -1
		r.w = r.worker(nil)
		r.start()
		pass(time.Minute)
		r.send("a", "b", "c")
		pass(5 * time.Minute)
		if d, err := r.q.Depth(r.Context()); err != nil || d.InFlight != 1 {
			t.Errorf("the queue is %+v, %v; one message may be held", d, err)
		}
		pass(30 * time.Minute)
		for _, k := range []string{"a", "b", "c"} {
			r.wantOutcomes(k, "done")
			if n := r.q.received(k); n != 1 {
				t.Errorf("%d receives of %q: its delivery was not extended", n, k)
			}
		}
		if n := r.log.count("nears the broker's limit"); n != 0 {
			t.Errorf("%d warnings", n)
		}
	})
}

func TestDeliveriesWithoutAnEnd(t *testing.T) {
	for name, d := range map[string]time.Duration{"in 280 years": 280 * 365 * 24 * time.Hour, "for ever": forEver} {
		for _, one := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				bubble(t, returns(nil), func(r *rig) {
					var asked []time.Duration
					r.store.set(func(s *store) {
						s.onClaim = func(rs []dedupe.ClaimRequest, cs []dedupe.Claim) []dedupe.Claim {
							asked = append(asked, rs[0].TTL)
							return cs
						}
					})
					got := r.batch(r.Context(), onceq.BatchOptions{OneLease: one}, lasting(d, "a")...)
					r.wantEnds(got, "done")
					want := onceq.DefaultLease
					if one {
						want = 12 * time.Hour
					}
					if !slices.Equal(asked, []time.Duration{want}) {
						t.Errorf("claimed for %v, want %v", asked, want)
					}
					if v := got[0].Record.Visibility; v != want {
						t.Errorf("the record tells of %v, want %v", v, want)
					}
				}, with(func(c *setup) { c.SettleTimeout = 20 * 365 * 24 * time.Hour }))
			})
		}
	}
}

// The key is held until a time that no Duration reaches.
func TestDoWaitsForAKeyHeldForEver(t *testing.T) {
	bubbleDo(t, func(d *doer) {
		d.store.occupy(t, "a", forEver, dedupe.Rerun)
		d.store.set(func(s *store) {
			s.onClaim = func(_ []dedupe.ClaimRequest, cs []dedupe.Claim) []dedupe.Claim {
				cs[0].Left = forEver
				return cs
			}
		})
		_, err := d.do("a", &onceq.DoOptions{Wait: time.Minute}, func(context.Context, *onceq.Job) (int, error) { return 0, nil })
		if busy := new(onceq.InProgressError); !errors.As(err, &busy) {
			t.Errorf("Do: %v", err)
		}
		if n := d.store.claims.Load(); n > 60 {
			t.Errorf("%d claims in a minute", n)
		}
	})
}
