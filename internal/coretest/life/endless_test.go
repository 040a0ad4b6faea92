package life

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/coretest/rig"
)

func TestDrainForEver(t *testing.T) {
	for _, set := range []func(c *rig.Setup){
		func(c *rig.Setup) { c.DrainTimeout = rig.ForEver },
		func(c *rig.Setup) { c.SettleTimeout = rig.ForEver },
		func(c *rig.Setup) { c.DrainTimeout, c.SettleTimeout = rig.ForEver, rig.ForEver },
	} {
		h := func(context.Context, *onceq.Job) error { rig.Takes(time.Hour); return nil }
		rig.Bubble(t, h, func(r *rig.Rig) {
			r.Send("a")
			r.Start()
			rig.Pass(time.Second)
			if err := r.Stop(); err != nil {
				t.Errorf("Run: %v", err)
			}
			r.WantOutcomes("a", "done")
		}, rig.With(set))
	}
}

func TestRetentionForEver(t *testing.T) {
	rig.Bubble(t, rig.Returns(rig.ErrBoom), func(r *rig.Rig) {
		r.Send("a")
		r.RunFor(10 * time.Second)
		r.WantStatus("a", dedupe.Failed)
		r.WantOutcomes("a", "retried", "retried", "failed")
		if left := time.Until(r.Record("a").Expires); left < 100*365*24*time.Hour {
			t.Errorf("the record is kept for %v", left)
		}
	}, rig.Steady, rig.Most(3), rig.With(func(c *rig.Setup) { c.Retention = rig.ForEver }))
}

// Calls without a bound are as any others.
func TestCallTimeoutForEver(t *testing.T) {
	rig.Bubble(t, rig.Works(time.Minute), func(r *rig.Rig) {
		r.Send("a")
		r.RunFor(2 * time.Minute)
		r.WantOutcomes("a", "done")
	}, rig.With(func(c *rig.Setup) { c.CallTimeout = rig.ForEver }))
	rig.BubbleDo(t, func(d *rig.Doer) {
		v, err := d.Do("a", nil, func(context.Context, *onceq.Job) (int, error) { return 1, nil })
		d.Wants("with calls without a bound", v, err, 1, nil)
	}, rig.With(func(c *rig.Setup) { c.CallTimeout = rig.ForEver }))
}

// A driver may say so where it knows no bound.
func TestLimitsForEver(t *testing.T) {
	rig.Bubble(t, rig.Works(10*time.Minute), func(r *rig.Rig) {
		r.Q.ChangeLimits = func(l broker.Limits) broker.Limits {
			l.MaxTotal, l.MaxHold, l.MaxWait = rig.ForEver, rig.ForEver, rig.ForEver
			return l
		}
		r.Cfg.Pollers, r.Cfg.Concurrency, r.Cfg.Prefetch = 2, 1, -1
		r.W = r.Worker(nil)
		r.Start()
		rig.Pass(time.Minute)
		r.Send("a", "b", "c")
		rig.Pass(5 * time.Minute)
		if d, err := r.Q.Depth(r.Context()); err != nil || d.InFlight != 1 {
			t.Errorf("the queue is %+v, %v; one message may be held", d, err)
		}
		rig.Pass(30 * time.Minute)
		for _, k := range []string{"a", "b", "c"} {
			r.WantOutcomes(k, "done")
			if n := r.Q.Received(k); n != 1 {
				t.Errorf("%d receives of %q: its delivery was not extended", n, k)
			}
		}
		if n := r.Logged.Count("nears the broker's limit"); n != 0 {
			t.Errorf("%d warnings", n)
		}
	})
}

func TestDeliveriesWithoutAnEnd(t *testing.T) {
	for name, d := range map[string]time.Duration{"in 280 years": 280 * 365 * 24 * time.Hour, "for ever": rig.ForEver} {
		for _, one := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				rig.Bubble(t, rig.Returns(nil), func(r *rig.Rig) {
					var asked []time.Duration
					r.Store.Set(func(s *rig.Store) {
						s.OnClaim = func(rs []dedupe.ClaimRequest, cs []dedupe.Claim) []dedupe.Claim {
							asked = append(asked, rs[0].TTL)
							return cs
						}
					})
					got := r.Batch(r.Context(), onceq.BatchOptions{OneLease: one}, rig.Lasting(d, "a")...)
					r.WantEnds(got, "done")
					want := onceq.DefaultLease
					if one {
						want = 12 * time.Hour
					}
					if !slices.Equal(asked, []time.Duration{want}) {
						t.Errorf("claimed for %v, want %v", asked, want)
					}
					if v := got[0].Report.Visibility; v != want {
						t.Errorf("the record tells of %v, want %v", v, want)
					}
				}, rig.With(func(c *rig.Setup) { c.SettleTimeout = 20 * 365 * 24 * time.Hour }))
			})
		}
	}
}

// The key is held until a time that no Duration reaches.
func TestDoWaitsForAKeyHeldForEver(t *testing.T) {
	rig.BubbleDo(t, func(d *rig.Doer) {
		d.Store.Occupy(t, "a", rig.ForEver, dedupe.Rerun)
		d.Store.Set(func(s *rig.Store) {
			s.OnClaim = func(_ []dedupe.ClaimRequest, cs []dedupe.Claim) []dedupe.Claim {
				cs[0].Left = rig.ForEver
				return cs
			}
		})
		_, err := d.Do("a", &onceq.DoOptions{Wait: time.Minute}, func(context.Context, *onceq.Job) (int, error) { return 0, nil })
		if busy := new(onceq.InProgressError); !errors.As(err, &busy) {
			t.Errorf("Do: %v", err)
		}
		if n := d.Store.Claims.Load(); n > 60 {
			t.Errorf("%d claims in a minute", n)
		}
	})
}
