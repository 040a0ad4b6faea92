package onceq_test

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
	"github.com/onceq/onceq/internal/faulty"
	"github.com/onceq/onceq/onceqtest"
)

const hardEnd = onceq.DefaultDrainTimeout + onceq.DefaultSettleTimeout

// ends stops the worker, and checks how long that took.
func (r *rig) ends(least, most time.Duration) error {
	r.Helper()
	begin := time.Now()
	err := r.stop()
	if took := time.Since(begin); took < least || took > most {
		r.Errorf("the drain took %v, want %v to %v", took, least, most)
	}
	return err
}

func TestDrainLetsHandlersFinish(t *testing.T) {
	h := func(context.Context, *onceq.Job) error { takes(15 * time.Second); return nil }
	bubble(t, h, func(r *rig) {
		keys := numbered("k", 2*onceq.DefaultConcurrency) // as many are held unclaimed as are run
		r.send(keys...)
		r.start()
		pass(time.Second)
		if err := r.ends(14*time.Second, 14*time.Second); err != nil {
			t.Errorf("Run: %v", err)
		}
		done, never := 0, 0
		for _, k := range keys {
			switch got := r.seen.outcomes(k); {
			case slices.Equal(got, []string{"done"}):
				done++
			case len(got) == 0 && r.record(k).Status == 0:
				never++ // its key was not asked for
			default:
				t.Errorf("%q ended as %q, with the record %+v", k, got, r.record(k))
			}
		}
		if back := len(r.seen.of("")); done != onceq.DefaultConcurrency || never != back {
			t.Errorf("%d jobs are done, want %d; %d were never started, and %d handed back", done, onceq.DefaultConcurrency, never, back)
		}
		if d, err := r.q.Depth(r.Context()); err != nil || d.Visible != onceq.DefaultConcurrency {
			t.Errorf("the queue is %+v, %v; want %d visible at once", d, err, onceq.DefaultConcurrency)
		}
	})
}

func TestHandlerThatIgnoresItsContextIsAbandoned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		late := make(chan error, 1)
		r := newRig(t, func(context.Context, *onceq.Job) error { return <-late })
		r.send("stuck")
		r.start()
		pass(time.Second)
		err := r.ends(hardEnd, hardEnd)
		drain, ok := errors.AsType[*onceq.DrainError](err)
		if !ok || len(drain.Jobs) != 1 {
			t.Fatalf("Run answered %v, want a DrainError with one job", err)
		}
		m := r.record("stuck")
		if m.Status != dedupe.Claimed || r.store.settles.Load() != 0 {
			t.Errorf("abandoned, and yet released: %+v", m)
		}
		if r.q.acked("stuck") != 0 || len(r.q.delays("stuck")) != 0 {
			t.Error("abandoned, and yet settled in the queue")
		}
		if n := r.store.renews.Load(); n < 2 {
			t.Errorf("%d renewals: its leases must be kept until the end", n)
		}
		renews, extends := r.store.renews.Load(), r.q.extended("stuck")
		pass(time.Minute)
		if r.store.renews.Load() != renews || r.q.extended("stuck") != extends {
			t.Error("its leases are kept after the end")
		}
		late <- nil // nobody waits for it any more
		synctest.Wait()
		if m := r.record("stuck"); m.Status != dedupe.Claimed || r.store.settles.Load() != 0 || r.q.acked("stuck") != 0 {
			t.Errorf("the late return changed something: %+v", m)
		}
		// The next worker takes over.
		late <- nil
		r.run(time.Minute)
		r.wantStatus("stuck", dedupe.Done)
		r.wantQueue(0)
	})
}

func TestHandlerThatIgnoresItsContextButEndsInTime(t *testing.T) {
	h := func(context.Context, *onceq.Job) error { takes(23 * time.Second); return nil }
	bubble(t, h, func(r *rig) {
		r.send("a")
		r.start()
		pass(time.Second)
		if err := r.ends(22*time.Second, 22*time.Second); err != nil {
			t.Errorf("Run: %v", err)
		}
		r.wantStatus("a", dedupe.Done)
		r.wantQueue(0)
	})
}

func TestNoDrainTime(t *testing.T) {
	bubble(t, whenCut(errBoom), func(r *rig) {
		r.send("a")
		r.start()
		pass(time.Second)
		if err := r.ends(0, 0); err != nil {
			t.Errorf("Run: %v", err)
		}
		if rec := r.record("a"); rec.Status != dedupe.Released || rec.Attempt != 0 {
			t.Errorf("the record is %+v", rec)
		}
	}, with(func(c *setup) { c.DrainTimeout = -1 }))
}

// A receive that does not end must not keep Run beyond its hard end.
func TestReceiveThatDoesNotEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, returns(nil))
		free := make(chan struct{})
		r.q.SetFault(func(_ context.Context, c onceqtest.Call) faulty.Faults {
			if c.Op == onceqtest.Receive && c.N > 1 {
				<-free
			}
			return nil
		})
		r.send("a")
		r.start()
		pass(time.Second)
		if err := r.ends(0, hardEnd); err != nil {
			t.Errorf("Run: %v", err)
		}
		r.wantStatus("a", dedupe.Done)
		close(free)
	})
}

// What a receive brings after the end is given back.
func TestReceiveThatComesLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, never(t))
		free := make(chan struct{})
		r.q.onReceive = func(ms []*broker.Message) []*broker.Message {
			if len(ms) > 0 {
				<-free
			}
			return ms
		}
		r.send("a")
		r.start()
		pass(time.Second)
		if err := r.ends(0, hardEnd); err != nil {
			t.Errorf("Run: %v", err)
		}
		close(free)
		synctest.Wait()
		if got := r.q.delays("a"); !slices.Equal(got, []time.Duration{0}) {
			t.Errorf("nacked with %v, want 0s", got)
		}
	})
}

func TestHangingStoreAtTheHardEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, returns(nil), with(func(c *setup) { c.CallTimeout = time.Hour }))
		r.store.set(func(s *store) {
			s.fault = func(c onceqtest.Call) faulty.Faults { return faulty.Slow(10 * time.Minute) }
		})
		r.send("a")
		r.start()
		pass(time.Second)
		err := r.ends(hardEnd, hardEnd)
		if _, ok := errors.AsType[*onceq.DrainError](err); !ok {
			t.Errorf("Run answered %v", err)
		}
		pass(time.Hour) // the claim is answered long after the end
		if r.seen.started("a") != 0 {
			t.Error("the handler ran after the end")
		}
	})
}

func TestRunTwice(t *testing.T) {
	bubble(t, returns(nil), func(r *rig) {
		r.start()
		pass(time.Second)
		if err := r.w.Run(r.Context()); !errors.Is(err, onceq.ErrRunning) {
			t.Errorf("a second Run answered %v", err)
		}
		r.send("a")
		pass(time.Second)
		r.wantStatus("a", dedupe.Done)
		if err := r.stop(); err != nil {
			t.Errorf("Run: %v", err)
		}
		r.send("b")
		r.run(time.Second)
		r.wantStatus("b", dedupe.Done)
		r.wantQueue(0)
	})
}

func TestRunWithAnEndedContext(t *testing.T) {
	bubble(t, never(t), func(r *rig) {
		r.send("a")
		ctx, cancel := context.WithCancel(r.Context())
		cancel()
		if err := r.w.Run(ctx); err != nil {
			t.Errorf("Run: %v", err)
		}
		r.wantQueue(1)
	})
}

func TestClosedQueueEndsRun(t *testing.T) {
	bubble(t, returns(nil), func(r *rig) {
		ended := make(chan error, 1)
		go func() { ended <- r.w.Run(r.Context()) }()
		pass(time.Second)
		if err := r.q.Close(); err != nil {
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
	bubble(t, returns(nil), func(r *rig) {
		r.q.SetFault(missing(1))
		if err := r.w.Run(r.Context()); !errors.Is(err, broker.ErrNotFound) {
			t.Errorf("Run answered %v, want ErrNotFound", err)
		}
		r.q.SetFault(missing(2)) // it was there before: that will pass
		r.send("a")
		r.start()
		pass(time.Minute)
		r.send("b")
		pass(time.Minute)
		r.wantStatus("b", dedupe.Done)
		if n := r.log.count("receiving fails"); n != 1 {
			t.Errorf("%d log records", n)
		}
	})
}

func TestReceiveErrorsBackOff(t *testing.T) {
	bubble(t, returns(nil), func(r *rig) {
		var calls atomic.Int64
		r.q.SetFault(func(_ context.Context, c onceqtest.Call) faulty.Faults {
			calls.Add(1)
			return faulty.Fail(errBoom)
		})
		r.start()
		pass(10 * time.Minute)
		if n := calls.Load(); n < 100 || n > 300 {
			t.Errorf("%d calls in ten minutes, want one in up to five seconds", n)
		}
		r.q.SetFault(nil)
		r.send("a")
		pass(time.Minute)
		r.wantStatus("a", dedupe.Done)
	})
}

// A claim whose answer is lost when a drain or a pause begins may have been won. It is given back
// by its token, uncounted: the next worker need not wait for its lease, and no job becomes a letter
// without a start.
func TestClaimInDoubtIsGivenBack(t *testing.T) {
	for name, stop := range map[string]func(r *rig){
		"drain": func(r *rig) {
			if err := r.ends(0, onceq.DefaultSettleTimeout); err != nil {
				r.Errorf("Run: %v", err)
			}
			r.store.heals()
			r.w = r.worker(nil)
			r.start()
		},
		"pause": func(r *rig) {
			r.w.Pause()
			pass(onceq.DefaultSettleTimeout)
			r.store.heals()
			r.w.Resume()
		},
	} {
		for _, settles := range []faulty.Faults{nil, faulty.Lose(errBoom)} {
			t.Run(name, func(t *testing.T) {
				bubble(t, returns(nil), func(r *rig) {
					r.store.set(func(s *store) {
						s.fault = func(c onceqtest.Call) faulty.Faults {
							switch {
							case c.Op == onceqtest.Claim:
								return faulty.Lose(errBoom)
							case c.N == 1:
								return settles
							}
							return nil
						}
					})
					r.send("a")
					r.start()
					pass(2 * time.Second)
					stop(r)
					pass(5 * time.Second)
					r.wantOutcomes("a", "handed-back", "done")
					if rec := r.record("a"); rec.Attempt != 1 {
						t.Errorf("the record is %+v", rec)
					}
					r.noLetters()
					r.wantQueue(0)
				}, most(1))
			})
		}
	}
}

// A message whose claim was not won after all is handed back at once. It is not left until its
// delivery lapses.
func TestClaimInDoubtThatWasNotWon(t *testing.T) {
	for name, other := range map[string]bool{"no record": false, "another's": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, never(t), func(r *rig) {
				r.store.fails(errBoom, onceqtest.Claim)
				r.send("a")
				r.start()
				pass(time.Second)
				if other {
					r.store.occupy(t, "a", time.Hour, dedupe.Rerun)
				}
				if err := r.ends(0, onceq.DefaultSettleTimeout); err != nil {
					t.Errorf("Run: %v", err)
				}
				if got := r.q.delays("a"); !slices.Equal(got, []time.Duration{0}) {
					t.Errorf("nacked with %v", got)
				}
				r.wantOutcomes("a", "handed-back")
			})
		})
	}
}
