package life

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/coretest/rig"
	"github.com/onceq/onceq/internal/faulty"
	"github.com/onceq/onceq/onceqtest"
)

func TestDrainLetsHandlersFinish(t *testing.T) {
	h := func(context.Context, *onceq.Job) error { rig.Takes(15 * time.Second); return nil }
	rig.Bubble(t, h, func(r *rig.Rig) {
		keys := rig.Numbered("k", 2*onceq.DefaultConcurrency) // as many are held unclaimed as are run
		r.Send(keys...)
		r.Start()
		rig.Pass(time.Second)
		if err := r.Ends(14*time.Second, 14*time.Second); err != nil {
			t.Errorf("Run: %v", err)
		}
		done, never := 0, 0
		for _, k := range keys {
			switch got := r.Seen.Outcomes(k); {
			case slices.Equal(got, []string{"done"}):
				done++
			case len(got) == 0 && r.Record(k).Status == 0:
				never++ // its key was not asked for
			default:
				t.Errorf("%q ended as %q, with the record %+v", k, got, r.Record(k))
			}
		}
		if back := len(r.Seen.Of("")); done != onceq.DefaultConcurrency || never != back {
			t.Errorf("%d jobs are done, want %d; %d were never started, and %d handed back", done, onceq.DefaultConcurrency, never, back)
		}
		if d, err := r.Q.Depth(r.Context()); err != nil || d.Visible != onceq.DefaultConcurrency {
			t.Errorf("the queue is %+v, %v; want %d visible at once", d, err, onceq.DefaultConcurrency)
		}
	})
}

func TestHandlerThatIgnoresItsContextIsAbandoned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		late := make(chan error, 1)
		r := rig.New(t, func(context.Context, *onceq.Job) error { return <-late })
		r.Send("stuck")
		r.Start()
		rig.Pass(time.Second)
		err := r.Ends(rig.HardEnd, rig.HardEnd)
		drain, ok := errors.AsType[*onceq.DrainError](err)
		if !ok || len(drain.Jobs) != 1 {
			t.Fatalf("Run answered %v, want a DrainError with one job", err)
		}
		m := r.Record("stuck")
		if m.Status != dedupe.Claimed || r.Store.Settles.Load() != 0 {
			t.Errorf("abandoned, and yet released: %+v", m)
		}
		if r.Q.Acked("stuck") != 0 || len(r.Q.Delays("stuck")) != 0 {
			t.Error("abandoned, and yet settled in the queue")
		}
		if n := r.Store.Renews.Load(); n < 2 {
			t.Errorf("%d renewals: its leases must be kept until the end", n)
		}
		renews, extends := r.Store.Renews.Load(), r.Q.Extended("stuck")
		rig.Pass(time.Minute)
		if r.Store.Renews.Load() != renews || r.Q.Extended("stuck") != extends {
			t.Error("its leases are kept after the end")
		}
		late <- nil // nobody waits for it any more
		synctest.Wait()
		if m := r.Record("stuck"); m.Status != dedupe.Claimed || r.Store.Settles.Load() != 0 || r.Q.Acked("stuck") != 0 {
			t.Errorf("the late return changed something: %+v", m)
		}
		// The next worker takes over.
		late <- nil
		r.RunFor(time.Minute)
		r.WantStatus("stuck", dedupe.Done)
		r.WantQueue(0)
	})
}

func TestHandlerThatIgnoresItsContextButEndsInTime(t *testing.T) {
	h := func(context.Context, *onceq.Job) error { rig.Takes(23 * time.Second); return nil }
	rig.Bubble(t, h, func(r *rig.Rig) {
		r.Send("a")
		r.Start()
		rig.Pass(time.Second)
		if err := r.Ends(22*time.Second, 22*time.Second); err != nil {
			t.Errorf("Run: %v", err)
		}
		r.WantStatus("a", dedupe.Done)
		r.WantQueue(0)
	})
}

func TestNoDrainTime(t *testing.T) {
	rig.BothWays(t, rig.WhenCut(rig.ErrBoom), func(r *rig.Rig) {
		r.Send("a")
		r.Start()
		rig.Pass(time.Second)
		if err := r.Ends(0, 0); err != nil {
			t.Errorf("Run: %v", err)
		}
		if rec := r.Record("a"); rec.Status != dedupe.Released || rec.Attempt != 0 {
			t.Errorf("the record is %+v", rec)
		}
	}, rig.With(func(c *rig.Setup) { c.DrainTimeout = -1 }))
}

// A receive that does not end must not keep Run beyond its hard end.
func TestReceiveThatDoesNotEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := rig.New(t, rig.Returns(nil))
		free := make(chan struct{})
		r.Q.SetFault(func(_ context.Context, c onceqtest.Call) faulty.Faults {
			if c.Op == onceqtest.Receive && c.N > 1 {
				<-free
			}
			return nil
		})
		r.Send("a")
		r.Start()
		rig.Pass(time.Second)
		if err := r.Ends(0, rig.HardEnd); err != nil {
			t.Errorf("Run: %v", err)
		}
		r.WantStatus("a", dedupe.Done)
		close(free)
	})
}

// What a receive brings after the end is given back.
func TestReceiveThatComesLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := rig.New(t, rig.Never(t))
		free := make(chan struct{})
		r.Q.OnReceive = func(ms []*broker.Message) []*broker.Message {
			if len(ms) > 0 {
				<-free
			}
			return ms
		}
		r.Send("a")
		r.Start()
		rig.Pass(time.Second)
		if err := r.Ends(0, rig.HardEnd); err != nil {
			t.Errorf("Run: %v", err)
		}
		close(free)
		synctest.Wait()
		if got := r.Q.Delays("a"); !slices.Equal(got, []time.Duration{0}) {
			t.Errorf("nacked with %v, want 0s", got)
		}
	})
}

func TestHangingStoreAtTheHardEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := rig.New(t, rig.Returns(nil), rig.With(func(c *rig.Setup) { c.CallTimeout = time.Hour }))
		r.Store.Set(func(s *rig.Store) {
			s.Fault = func(c onceqtest.Call) faulty.Faults { return faulty.Slow(10 * time.Minute) }
		})
		r.Send("a")
		r.Start()
		rig.Pass(time.Second)
		err := r.Ends(rig.HardEnd, rig.HardEnd)
		if _, ok := errors.AsType[*onceq.DrainError](err); !ok {
			t.Errorf("Run answered %v", err)
		}
		rig.Pass(time.Hour) // the claim is answered long after the end
		if r.Seen.Started("a") != 0 {
			t.Error("the handler ran after the end")
		}
	})
}

func TestRunTwice(t *testing.T) {
	rig.Bubble(t, rig.Returns(nil), func(r *rig.Rig) {
		r.Start()
		rig.Pass(time.Second)
		if err := r.W.Run(r.Context()); !errors.Is(err, onceq.ErrRunning) {
			t.Errorf("a second Run answered %v", err)
		}
		r.Send("a")
		rig.Pass(time.Second)
		r.WantStatus("a", dedupe.Done)
		if err := r.Stop(); err != nil {
			t.Errorf("Run: %v", err)
		}
		r.Send("b")
		r.RunFor(time.Second)
		r.WantStatus("b", dedupe.Done)
		r.WantQueue(0)
	})
}

func TestRunWithAnEndedContext(t *testing.T) {
	rig.Bubble(t, rig.Never(t), func(r *rig.Rig) {
		r.Send("a")
		ctx, cancel := context.WithCancel(r.Context())
		cancel()
		if err := r.W.Run(ctx); err != nil {
			t.Errorf("Run: %v", err)
		}
		r.WantQueue(1)
	})
}

func TestClosedQueueEndsRun(t *testing.T) {
	rig.Bubble(t, rig.Returns(nil), func(r *rig.Rig) {
		ended := make(chan error, 1)
		go func() { ended <- r.W.Run(r.Context()) }()
		rig.Pass(time.Second)
		if err := r.Q.Close(); err != nil {
			t.Fatal(err)
		}
		if err := <-ended; !errors.Is(err, broker.ErrClosed) {
			t.Errorf("Run answered %v, want ErrClosed", err)
		}
	})
}

func TestMissingQueue(t *testing.T) {
	missing := func(from int) faulty.Func {
		return func(_ context.Context, c onceqtest.Call) faulty.Faults {
			if c.Op == onceqtest.Receive && c.N >= from && c.N < from+5 {
				return faulty.Fail(broker.ErrNotFound)
			}
			return nil
		}
	}
	rig.Bubble(t, rig.Returns(nil), func(r *rig.Rig) {
		r.Q.SetFault(missing(1))
		if err := r.W.Run(r.Context()); !errors.Is(err, broker.ErrNotFound) {
			t.Errorf("Run answered %v, want ErrNotFound", err)
		}
		r.Q.SetFault(missing(2)) // it was there before: that will pass
		r.Send("a")
		r.Start()
		rig.Pass(time.Minute)
		r.Send("b")
		rig.Pass(time.Minute)
		r.WantStatus("b", dedupe.Done)
		if n := r.Logged.Count("receiving fails"); n != 1 {
			t.Errorf("%d log records", n)
		}
	})
}

func TestReceiveErrorsBackOff(t *testing.T) {
	rig.Bubble(t, rig.Returns(nil), func(r *rig.Rig) {
		var calls atomic.Int64
		r.Q.SetFault(func(_ context.Context, c onceqtest.Call) faulty.Faults {
			calls.Add(1)
			return faulty.Fail(rig.ErrBoom)
		})
		r.Start()
		rig.Pass(10 * time.Minute)
		if n := calls.Load(); n < 100 || n > 300 {
			t.Errorf("%d calls in ten minutes, want one in up to five seconds", n)
		}
		r.Q.SetFault(nil)
		r.Send("a")
		rig.Pass(time.Minute)
		r.WantStatus("a", dedupe.Done)
	})
}

// A claim whose answer is lost when a drain or a pause begins may have been won. It is given back
// by its token, uncounted: the next worker need not wait for its lease, and no job becomes a letter
// without a start.
func TestClaimInDoubtIsGivenBack(t *testing.T) {
	for name, stop := range map[string]func(r *rig.Rig){
		"drain": func(r *rig.Rig) {
			if err := r.Ends(0, onceq.DefaultSettleTimeout); err != nil {
				r.Errorf("Run: %v", err)
			}
			r.Store.Heals()
			r.W = r.Worker(nil)
			r.Start()
		},
		"pause": func(r *rig.Rig) {
			r.W.Pause()
			rig.Pass(onceq.DefaultSettleTimeout)
			r.Store.Heals()
			r.W.Resume()
		},
	} {
		for _, settles := range []faulty.Faults{nil, faulty.Lose(rig.ErrBoom)} {
			t.Run(name, func(t *testing.T) {
				rig.BothWays(t, rig.Returns(nil), func(r *rig.Rig) {
					r.Store.Set(func(s *rig.Store) {
						s.Fault = func(c onceqtest.Call) faulty.Faults {
							switch {
							case c.Op == onceqtest.Claim:
								return faulty.Lose(rig.ErrBoom)
							case c.N == 1:
								return settles
							}
							return nil
						}
					})
					r.Send("a")
					r.Start()
					rig.Pass(2 * time.Second)
					stop(r)
					rig.Pass(5 * time.Second)
					r.WantOutcomes("a", "handed-back", "done")
					if rec := r.Record("a"); rec.Attempt != 1 {
						t.Errorf("the record is %+v", rec)
					}
					r.NoLetters()
					r.WantQueue(0)
				}, rig.Most(1))
			})
		}
	}
}

// A message whose claim was not won after all is handed back at once. It is not left until its
// delivery lapses.
func TestClaimInDoubtThatWasNotWon(t *testing.T) {
	for name, other := range map[string]bool{"no record": false, "another's": true} {
		t.Run(name, func(t *testing.T) {
			rig.BothWays(t, rig.Never(t), func(r *rig.Rig) {
				r.Store.Fails(rig.ErrBoom, onceqtest.Claim)
				r.Send("a")
				r.Start()
				rig.Pass(time.Second)
				if other {
					r.Store.Occupy(t, "a", time.Hour, dedupe.Rerun)
				}
				if err := r.Ends(0, onceq.DefaultSettleTimeout); err != nil {
					t.Errorf("Run: %v", err)
				}
				if got := r.Q.Delays("a"); !slices.Equal(got, []time.Duration{0}) {
					t.Errorf("nacked with %v", got)
				}
				r.WantOutcomes("a", "handed-back")
			})
		})
	}
}
