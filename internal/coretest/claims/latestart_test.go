package onceq_test

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
	"github.com/onceq/onceq/internal/faulty"
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
func (r *rig) lateClaims(claims int64, by time.Duration) {
	var n atomic.Int64
	r.store.set(func(s *store) {
		s.fault = slowBeats
		s.onClaim = func(_ []dedupe.ClaimRequest, cs []dedupe.Claim) []dedupe.Claim {
			if n.Add(1) <= claims {
				takes(by)
			}
			return cs
		}
	})
}

// A claim whose answer comes when its lease is over, or nearly so, starts no handler: somebody else
// may have the key. It is given back, and does not count.
func TestLateClaimStartsNothing(t *testing.T) {
	for name, o := range map[string]option{"rerun": func(*rig) {}, "park": parks} {
		for _, by := range []time.Duration{2600 * time.Millisecond, 2999 * time.Millisecond, 3 * time.Second, 4 * time.Second} {
			t.Run(name+" "+by.String(), func(t *testing.T) {
				bubble(t, returns(nil), func(r *rig) {
					r.lateClaims(3, by)
					r.send("a")
					r.start()
					pass(time.Minute)
					if n := r.seen.started("a"); n != 1 {
						t.Errorf("%d starts", n)
					}
					got := r.seen.of("a")
					if n := len(got); n != 4 || got[n-1].Outcome != "done" || got[n-1].Attempt != 1 {
						t.Fatalf("the deliveries ended as %+v", got)
					}
					for _, rec := range got[:3] {
						// It has no class where the manager was first to say so.
						if rec.Outcome != "handed-back" || rec.ErrClass != onceq.ClassLease && rec.ErrClass != "" {
							t.Errorf("%s, class %q", rec.Outcome, rec.ErrClass)
						}
					}
					r.noLetters()
				}, o, most(1), with(func(c *setup) { c.Lease = 3 * time.Second }))
			})
		}
	}
}

// A claim whose answer is just in time starts its handler, with enough of its lease left for a
// beat.
func TestSlowClaimStarts(t *testing.T) {
	bubble(t, until(10*time.Second), func(r *rig) {
		r.lateClaims(1, 2*time.Second)
		r.send("a")
		r.run(time.Minute)
		r.wantOutcomes("a", "done")
	}, with(func(c *setup) { c.Lease = 3 * time.Second }))
}

// Two workers, of which one is answered late: the handlers never run at once.
func TestLateClaimOfAKeyThatIsTaken(t *testing.T) {
	var now, both atomic.Int64
	h := func(context.Context, *onceq.Job) error {
		if now.Add(1) > 1 {
			both.Add(1)
		}
		takes(5 * time.Second)
		now.Add(-1)
		return nil
	}
	bubble(t, h, func(r *rig) {
		r.q.SetFault(func(_ context.Context, c onceqtest.Call) (f faulty.Faults) {
			if c.Op == onceqtest.Extend {
				f = faulty.Fail(errBoom) // as in a partition
			}
			return f
		})
		r.lateClaims(1, 4*time.Second)
		r.send("a")
		r.start()
		pass(100 * time.Millisecond)
		other, stop := r.worker(func(c *setup) { c.Visibility = 30 * time.Second }), make(chan error, 1)
		ctx, cancel := context.WithCancel(r.Context())
		go func() { stop <- other.Run(ctx) }()
		pass(time.Minute)
		if both.Load() != 0 || r.seen.started("a") != 1 {
			t.Errorf("%d starts, %d at once", r.seen.started("a"), both.Load())
		}
		cancel()
		<-stop
	}, preset(membroker.SQSStandard), with(func(c *setup) { c.Lease, c.Visibility = 3*time.Second, 3*time.Second }))
}

// The confirmation of the start prolongs the claim: what it took does not count against the
// handler.
func TestSlowConfirmationOfAStart(t *testing.T) {
	bubble(t, until(3*time.Second), func(r *rig) {
		r.store.set(func(s *store) {
			s.fault = func(c onceqtest.Call) (f faulty.Faults) {
				switch {
				case c.Op != onceqtest.Renew:
				case c.N == 1: // the start's; then the beats'
					f = faulty.Slow(4900 * time.Millisecond)
				default:
					f = faulty.Fail(errBoom)
				}
				return f
			}
		})
		r.send("a")
		r.run(time.Minute)
		r.wantOutcomes("a", "done")
	}, parks, with(func(c *setup) { c.Lease = 6 * time.Second }))
}

// A run that is cut off between its claim and its start does not start: by the batch's end, or
// because its claim is lost.
func TestCutRunDoesNotStart(t *testing.T) {
	t.Run("claim lost while the start is confirmed", func(t *testing.T) {
		bubble(t, never(t), func(r *rig) {
			r.store.set(func(s *store) {
				s.onRenew = func(rs []dedupe.Renewal, as []dedupe.Renewed) []dedupe.Renewed {
					if !rs[0].Started {
						as[0] = dedupe.Renewed{Err: dedupe.ErrLeaseLost}
					}
					return as
				}
				s.fault = bads(onceqtest.Renew, 1, faulty.Slow(4*time.Second))
			})
			r.send("a")
			r.start()
			pass(5 * time.Second)
			r.wantOutcomes("a", "lease-lost")
			if n := r.store.settles.Load(); n != 0 {
				t.Errorf("%d settlements", n)
			}
			r.store.heals()
		}, parks, with(func(c *setup) { c.Lease = 6 * time.Second }))
	})
	t.Run("the caller of Do has gone", func(t *testing.T) {
		bubbleDo(t, func(d *doer) {
			ctx, cancel := context.WithCancel(d.Context())
			d.store.set(func(s *store) {
				s.onClaim = func(_ []dedupe.ClaimRequest, cs []dedupe.Claim) []dedupe.Claim { cancel(); return cs }
			})
			_, err := onceq.Do(ctx, d.p, dedupe.Key{Key: "a"}, nil, func(context.Context, *onceq.Job) (int, error) {
				t.Error("it has started")
				return 0, nil
			})
			if no := new(onceq.NotRunError); !errors.As(err, &no) || !errors.Is(err, context.Canceled) {
				t.Errorf("%v", err)
			}
			pass(time.Second)
			if rec := d.record("a"); rec.Status != dedupe.Released || rec.Attempt != 0 {
				t.Errorf("the record is %+v", rec)
			}
		})
	})
}

// Do and ProcessBatch start nothing under such a claim either.
func TestLateClaimOfDo(t *testing.T) {
	bubbleDo(t, func(d *doer) {
		d.lateClaims(1, 4*time.Second)
		v, err := d.do("a", nil, func(context.Context, *onceq.Job) (int, error) { t.Error("it has started"); return 1, nil })
		if no := new(onceq.NotRunError); !errors.As(err, &no) {
			t.Errorf("%d, %v", v, err)
		}
		v, err = d.do("a", nil, func(context.Context, *onceq.Job) (int, error) { return 1, nil })
		d.wants("again", v, err, 1, nil)
	}, with(func(c *setup) { c.Lease = 3 * time.Second }))
}

func TestLateClaimOfABatch(t *testing.T) {
	for _, one := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, never(t), with(func(c *setup) { c.Lease = 3 * time.Second }))
			b, err := r.cfg.batches()
			if err != nil {
				t.Fatal(err)
			}
			r.send("a")
			ms, err := r.q.Receive(t.Context(), broker.ReceiveOptions{Max: 10})
			if err != nil || len(ms) != 1 {
				t.Fatal(len(ms), err)
			}
			r.store.set(func(s *store) {
				s.fault = slowBeats
				s.onClaim = func(_ []dedupe.ClaimRequest, cs []dedupe.Claim) []dedupe.Claim {
					takes(4 * time.Second)
					cs[0].Lease.Deadline = time.Now().Add(-time.Second)
					return cs
				}
			})
			var got onceq.Disposition
			d := onceq.Delivery{Message: ms[0], Until: time.Now().Add(time.Minute)}
			b.Process(t.Context(), []onceq.Delivery{d}, &onceq.BatchOptions{OneLease: one}, func(_ int, d onceq.Disposition) { got = d })
			if got.Action != onceq.Nack || got.Record.Outcome != "handed-back" {
				t.Errorf("OneLease %v: %+v", one, got)
			}
			if rec := r.record("a"); rec.Status != dedupe.Released || rec.Attempt != 0 {
				t.Errorf("the record is %+v", rec)
			}
			pass(time.Minute) // for a beat that is still in flight
		})
	}
}

// The worker warns, once, of a Lease that one slow call of the store may use up.
func TestShortLeaseIsWarnedOf(t *testing.T) {
	for lease, want := range map[time.Duration]int{9999 * time.Millisecond: 1, 10 * time.Second: 0} {
		bubble(t, returns(nil), func(r *rig) {
			r.run(time.Second)
			if n := r.log.count("Lease is below twice CallTimeout"); n != want {
				t.Errorf("%v: %d warnings", lease, n)
			}
		}, with(func(c *setup) { c.Lease = lease }))
	}
	bubble(t, returns(nil), func(r *rig) {
		r.run(time.Second)
		if n := r.log.count("Lease is below"); n != 0 {
			t.Errorf("%d warnings without a store", n)
		}
	}, noStore, with(func(c *setup) { c.Lease = time.Second }))
}
