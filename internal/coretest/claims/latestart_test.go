package claims

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/coretest/rig"
	"github.com/onceq/onceq/internal/faulty"
	"github.com/onceq/onceq/internal/must"
	"github.com/onceq/onceq/onceqtest"
)

// slowBeats lets no beat prolong a claim before its handler could start.
func slowBeats(c onceqtest.Call) (f faulty.Faults) {
	if c.Op == onceqtest.Renew {
		f = faulty.Slow(100 * time.Millisecond)
	}
	return f
}

// lateClaims makes the answers to the first claims come so long after their leases began.
func lateClaims(r *rig.Rig, claims int64, by time.Duration) {
	var n atomic.Int64
	r.Store.Set(func(s *rig.Store) {
		s.Fault = slowBeats
		s.OnClaim = func(_ []dedupe.ClaimRequest, cs []dedupe.Claim) []dedupe.Claim {
			if n.Add(1) <= claims {
				rig.Takes(by)
			}
			return cs
		}
	})
}

// A claim whose answer comes when its lease is over, or nearly so, starts no handler: somebody else
// may have the key. It is given back, and does not count.
func TestLateClaimStartsNothing(t *testing.T) {
	for name, o := range map[string]rig.Option{"rerun": func(*rig.Rig) {}, "park": rig.Parks} {
		for _, by := range []time.Duration{2600 * time.Millisecond, 2999 * time.Millisecond, 3 * time.Second, 4 * time.Second} {
			t.Run(name+" "+by.String(), func(t *testing.T) {
				rig.Bubble(t, rig.Returns(nil), func(r *rig.Rig) {
					lateClaims(r, 3, by)
					r.Send("a")
					r.Start()
					rig.Pass(time.Minute)
					if n := r.Seen.Started("a"); n != 1 {
						t.Errorf("%d starts", n)
					}
					got := r.Seen.Of("a")
					if n := len(got); n != 4 || got[n-1].Outcome != "done" || got[n-1].Attempt != 1 {
						t.Fatalf("the deliveries ended as %+v", got)
					}
					for _, rec := range got[:3] {
						// It has no class where the manager was first to say so.
						if rec.Outcome != "handed-back" || rec.ErrClass != onceq.ClassLease && rec.ErrClass != "" {
							t.Errorf("%s, class %q", rec.Outcome, rec.ErrClass)
						}
					}
					r.NoLetters()
				}, o, rig.Most(1), rig.With(func(c *rig.Setup) { c.Lease = 3 * time.Second }))
			})
		}
	}
}

// A claim whose answer is just in time starts its handler, with enough of its lease left for a
// beat.
func TestSlowClaimStarts(t *testing.T) {
	rig.Bubble(t, rig.Works(10*time.Second), func(r *rig.Rig) {
		lateClaims(r, 1, 2*time.Second)
		r.Send("a")
		r.RunFor(time.Minute)
		r.WantOutcomes("a", "done")
	}, rig.With(func(c *rig.Setup) { c.Lease = 3 * time.Second }))
}

// Two workers, of which one is answered late: the handlers never run at once.
func TestLateClaimOfAKeyThatIsTaken(t *testing.T) {
	var now, both atomic.Int64
	h := func(context.Context, *onceq.Job) error {
		if now.Add(1) > 1 {
			both.Add(1)
		}
		rig.Takes(5 * time.Second)
		now.Add(-1)
		return nil
	}
	rig.Bubble(t, h, func(r *rig.Rig) {
		r.Q.SetFault(func(_ context.Context, c onceqtest.Call) (f faulty.Faults) {
			if c.Op == onceqtest.Extend {
				f = faulty.Fail(rig.ErrBoom) // as in a partition
			}
			return f
		})
		lateClaims(r, 1, 4*time.Second)
		r.Send("a")
		r.Start()
		rig.Pass(100 * time.Millisecond)
		other, stop := r.Worker(func(c *rig.Setup) { c.Visibility = 30 * time.Second }), make(chan error, 1)
		ctx, cancel := context.WithCancel(r.Context())
		go func() { stop <- other.Run(ctx) }()
		rig.Pass(time.Minute)
		if both.Load() != 0 || r.Seen.Started("a") != 1 {
			t.Errorf("%d starts, %d at once", r.Seen.Started("a"), both.Load())
		}
		cancel()
		<-stop
	}, rig.Preset(membroker.SQSStandard), rig.With(func(c *rig.Setup) { c.Lease, c.Visibility = 3*time.Second, 3*time.Second }))
}

// The confirmation of the start prolongs the claim: what it took does not count against the
// handler.
func TestSlowConfirmationOfAStart(t *testing.T) {
	rig.Bubble(t, rig.Works(3*time.Second), func(r *rig.Rig) {
		r.Store.Set(func(s *rig.Store) {
			s.Fault = func(c onceqtest.Call) (f faulty.Faults) {
				switch {
				case c.Op != onceqtest.Renew:
				case c.N == 1: // the start's; then the beats'
					f = faulty.Slow(4900 * time.Millisecond)
				default:
					f = faulty.Fail(rig.ErrBoom)
				}
				return f
			}
		})
		r.Send("a")
		r.RunFor(time.Minute)
		r.WantOutcomes("a", "done")
	}, rig.Parks, rig.With(func(c *rig.Setup) { c.Lease = 6 * time.Second }))
}

// A run that is cut off between its claim and its start does not start: by the batch's end, or
// because its claim is lost.
func TestCutRunDoesNotStart(t *testing.T) {
	t.Run("claim lost while the start is confirmed", func(t *testing.T) {
		rig.Bubble(t, rig.Never(t), func(r *rig.Rig) {
			r.Store.Set(func(s *rig.Store) {
				s.OnRenew = func(rs []dedupe.Renewal, as []dedupe.Renewed) []dedupe.Renewed {
					if !rs[0].Started {
						as[0] = dedupe.Renewed{Err: dedupe.ErrLeaseLost}
					}
					return as
				}
				s.Fault = rig.Bads(onceqtest.Renew, 1, faulty.Slow(4*time.Second))
			})
			r.Send("a")
			r.Start()
			rig.Pass(5 * time.Second)
			r.WantOutcomes("a", "lease-lost")
			if n := r.Store.Settles.Load(); n != 0 {
				t.Errorf("%d settlements", n)
			}
			r.Store.Heals()
		}, rig.Parks, rig.With(func(c *rig.Setup) { c.Lease = 6 * time.Second }))
	})
	t.Run("the caller of Do has gone", func(t *testing.T) {
		rig.BubbleDo(t, func(d *rig.Doer) {
			ctx, cancel := context.WithCancel(d.Context())
			d.Store.Set(func(s *rig.Store) {
				s.OnClaim = func(_ []dedupe.ClaimRequest, cs []dedupe.Claim) []dedupe.Claim { cancel(); return cs }
			})
			_, err := onceq.Do(ctx, d.P, dedupe.Key{Key: "a"}, nil, func(context.Context, *onceq.Job) (int, error) {
				t.Error("it has started")
				return 0, nil
			})
			if no := new(onceq.NotRunError); !errors.As(err, &no) || !errors.Is(err, context.Canceled) {
				t.Errorf("%v", err)
			}
			rig.Pass(time.Second)
			if rec := d.Record("a"); rec.Status != dedupe.Released || rec.Attempt != 0 {
				t.Errorf("the record is %+v", rec)
			}
		})
	})
}

// Do and ProcessBatch start nothing under such a claim either.
func TestLateClaimOfDo(t *testing.T) {
	rig.BubbleDo(t, func(d *rig.Doer) {
		lateClaims(d.Rig, 1, 4*time.Second)
		v, err := d.Do("a", nil, func(context.Context, *onceq.Job) (int, error) { t.Error("it has started"); return 1, nil })
		if no := new(onceq.NotRunError); !errors.As(err, &no) {
			t.Errorf("%d, %v", v, err)
		}
		v, err = d.Do("a", nil, func(context.Context, *onceq.Job) (int, error) { return 1, nil })
		d.Wants("again", v, err, 1, nil)
	}, rig.With(func(c *rig.Setup) { c.Lease = 3 * time.Second }))
}

func TestLateClaimOfABatch(t *testing.T) {
	for _, one := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			r := rig.New(t, rig.Never(t), rig.With(func(c *rig.Setup) { c.Lease = 3 * time.Second }))
			b := must.Get(r.Cfg.Batches())
			r.Send("a")
			ms, err := r.Q.Receive(t.Context(), broker.ReceiveOptions{Max: 10})
			if err != nil || len(ms) != 1 {
				t.Fatal(len(ms), err)
			}
			r.Store.Set(func(s *rig.Store) {
				s.Fault = slowBeats
				s.OnClaim = func(_ []dedupe.ClaimRequest, cs []dedupe.Claim) []dedupe.Claim {
					rig.Takes(4 * time.Second)
					cs[0].Lease.Deadline = time.Now().Add(-time.Second)
					return cs
				}
			})
			var got onceq.Disposition
			d := onceq.Delivery{Message: ms[0], Until: time.Now().Add(time.Minute)}
			b.Process(t.Context(), []onceq.Delivery{d}, &onceq.BatchOptions{OneLease: one}, func(_ int, d onceq.Disposition) { got = d })
			if got.Action != onceq.Nack || got.Report.Outcome != "handed-back" {
				t.Errorf("OneLease %v: %+v", one, got)
			}
			if rec := r.Record("a"); rec.Status != dedupe.Released || rec.Attempt != 0 {
				t.Errorf("the record is %+v", rec)
			}
			rig.Pass(time.Minute) // for a beat that is still in flight
		})
	}
}

// The worker warns, once, of a Lease that one slow call of the store may use up.
func TestShortLeaseIsWarnedOf(t *testing.T) {
	for lease, want := range map[time.Duration]int{9999 * time.Millisecond: 1, 10 * time.Second: 0} {
		rig.Bubble(t, rig.Returns(nil), func(r *rig.Rig) {
			r.RunFor(time.Second)
			if n := r.Logged.Count("Lease is below twice CallTimeout"); n != want {
				t.Errorf("%v: %d warnings", lease, n)
			}
		}, rig.With(func(c *rig.Setup) { c.Lease = lease }))
	}
	rig.Bubble(t, rig.Returns(nil), func(r *rig.Rig) {
		r.RunFor(time.Second)
		if n := r.Logged.Count("Lease is below"); n != 0 {
			t.Errorf("%d warnings without a store", n)
		}
	}, rig.NoStore, rig.With(func(c *rig.Setup) { c.Lease = time.Second }))
}
