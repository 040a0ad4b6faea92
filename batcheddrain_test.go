package onceq_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/control"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/controlstore"
	"github.com/onceq/onceq/internal/faulty"
	"github.com/onceq/onceq/onceqtest"
)

// What is tested here is a Batched that gathers when its worker stops, pauses, is limited or dies.

// lingers is a Batched that gathers for a minute, and counts the jobs that its function gets.
func lingers(began *atomic.Int64) onceq.Handler {
	return onceq.Batched(onceq.BatchedOptions{Linger: time.Minute}, func(_ context.Context, js []*onceq.Job) []error {
		began.Add(int64(len(js)))
		return nil
	})
}

// A stop ends a gathering at once, however long its Linger, and whatever the policy: its jobs have
// not begun, so they are handed back, and no attempt counts.
func TestBatchedThatGathersInADrain(t *testing.T) {
	for _, park := range []bool{false, true} {
		for _, drain := range []time.Duration{-1, 3 * time.Second, time.Hour} {
			t.Run(fmt.Sprintf("park %v, drain %v", park, drain), func(t *testing.T) {
				var began atomic.Int64
				options := []option{inBatches(100, lingers(&began)), with(func(c *setup) { c.DrainTimeout = drain })}
				if park {
					options = append(options, parks)
				}
				bubble(t, nil, func(r *rig) {
					r.start()
					r.send("a", "b", "c")
					pass(10 * time.Second)
					at := time.Now()
					if err := r.stop(); err != nil {
						t.Errorf("Run: %v", err)
					}
					if took := time.Since(at); took >= time.Second {
						t.Errorf("the drain took %v", took)
					}
					for _, k := range []string{"a", "b", "c"} {
						r.wantOutcomes(k, "handed-back")
						if rec := r.record(k); rec.Status != dedupe.Released || rec.Attempt != 0 || rec.Started {
							t.Errorf("the record of %s is %+v", k, rec)
						}
					}
					if n := began.Load(); n != 0 {
						t.Errorf("%d jobs began", n)
					}
					r.noLetters()
				}, options...)
			})
		}
	}
}

// A pause hands back at once what gathers. What a shared Batched has from another worker begins.
func TestBatchedThatGathersInAPause(t *testing.T) {
	var began atomic.Int64
	bubble(t, nil, func(r *rig) {
		second := newQueue(r.T, membroker.Options{})
		other := r.worker(func(c *setup) { c.Broker, c.Scope, c.Queue = second, "second", "" })
		ctx, stop := context.WithCancel(r.Context())
		done := make(chan error, 1)
		go func() { done <- other.Run(ctx) }()
		r.start()
		r.send("a", "b")
		pass(time.Second)
		if err := onceq.Send(r.Context(), second.Broker, []broker.Outgoing{message("c")}); err != nil {
			t.Fatal(err)
		}
		pass(9 * time.Second)
		r.w.Pause()
		pass(time.Second)
		for _, k := range []string{"a", "b"} {
			r.wantOutcomes(k, "handed-back")
			if rec := r.record(k); rec.Attempt != 0 {
				t.Errorf("what was handed back counts: %+v", rec)
			}
		}
		r.wantOutcomes("c", "done")
		r.w.Resume()
		pass(2 * time.Minute)
		if n := began.Load(); n != 3 {
			t.Errorf("%d jobs began, want 3", n)
		}
		r.wantStatus("a", dedupe.Done)
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}, inBatches(100, lingers(&began)))
}

// A job that comes to its batch when its worker has just stopped does not begin another gathering.
func TestBatchedJoinedAfterAStop(t *testing.T) {
	var began atomic.Int64
	h := onceq.Chain(lingers(&began), func(next onceq.Handler) onceq.Handler {
		return onceq.HandlerFunc(func(ctx context.Context, j *onceq.Job) error {
			takes(2 * time.Second)
			return next.Handle(ctx, j)
		})
	})
	bubble(t, nil, func(r *rig) {
		r.start()
		r.send("a")
		pass(time.Second)
		at := time.Now()
		if err := r.stop(); err != nil {
			t.Error(err)
		}
		if took := time.Since(at); took >= 2*time.Second {
			t.Errorf("the drain took %v", took)
		}
		r.wantOutcomes("a", "handed-back")
	}, inBatches(100, h))
}

// Under Park a start is recorded when the batch begins, in one call, and not when a job joins it.
// So a job whose worker dies while it gathers runs again. With a middleware around it, which may
// have done anything, it is recorded before that.
func TestBatchedRecordsItsStarts(t *testing.T) {
	for _, wrapped := range []string{"", "Chain", "Mux", "Mux.Use"} {
		t.Run("in "+wrapped, func(t *testing.T) {
			var r *rig
			var begun sync.Once
			h := onceq.Batched(onceq.BatchedOptions{Linger: 5 * time.Second}, func(_ context.Context, js []*onceq.Job) []error {
				begun.Do(func() {
					for _, k := range []string{"a", "b", "c"} {
						if rec := r.record(k); !rec.Started {
							t.Errorf("f runs, and the start of %s is not recorded: %+v", k, rec)
						}
					}
				})
				return nil
			})
			middleware := func(next onceq.Handler) onceq.Handler { return onceq.HandlerFunc(next.Handle) }
			var m onceq.Mux
			switch wrapped {
			case "Chain":
				h = onceq.Chain(h, middleware)
			case "Mux":
				m.On("mail", h, &onceq.JobOptions{Scope: scope})
				h = &m
			case "Mux.Use":
				m.On("mail", h, &onceq.JobOptions{Scope: scope})
				m.Use(middleware)
				h = &m
			}
			early := wrapped == "Chain" || wrapped == "Mux.Use"
			bubble(t, nil, func(it *rig) {
				r = it
				r.start()
				for _, k := range []string{"a", "b", "c"} {
					o := message(k)
					if wrapped != "" && wrapped != "Chain" {
						o.Meta.Type = "mail"
					}
					r.put(o)
				}
				pass(time.Second)
				for _, k := range []string{"a", "b", "c"} {
					if rec := r.record(k); rec.Started != early {
						t.Errorf("%s gathers, and its record is %+v", k, rec)
					}
				}
				pass(5 * time.Second)
				for _, k := range []string{"a", "b", "c"} {
					r.wantOutcomes(k, "done")
				}
				if n := r.store.renews.Load(); !early && n != 1 {
					t.Errorf("%d calls recorded three starts, want 1", n)
				}
			}, inBatches(100, h), parks)
		})
	}
}

// Whose start is not confirmed does not begin, is not parked, and counts no attempt. The others of
// its batch begin.
func TestBatchedWhoseStartIsNotConfirmed(t *testing.T) {
	for name, bad := range map[string]func(s *store){
		"its record errs": func(s *store) {
			s.onRenew = func(rs []dedupe.Renewal, as []dedupe.Renewed) []dedupe.Renewed {
				for i := range rs {
					if rs[i].Started && rs[i].Key.Key == "b" {
						as[i] = dedupe.Renewed{Err: errBoom}
					}
				}
				return as
			}
		},
		"its claim is lost": func(s *store) {
			s.onRenew = func(rs []dedupe.Renewal, as []dedupe.Renewed) []dedupe.Renewed {
				for i := range rs {
					if rs[i].Started && rs[i].Key.Key == "b" {
						as[i] = dedupe.Renewed{Err: dedupe.ErrLeaseLost}
					}
				}
				return as
			}
		},
		"a call with it fails": func(s *store) {
			s.onRenew = func(rs []dedupe.Renewal, as []dedupe.Renewed) []dedupe.Renewed {
				if slices.ContainsFunc(rs, func(q dedupe.Renewal) bool { return q.Started && q.Key.Key == "b" }) {
					return nil // fewer answers than were asked for, which is an error of the call
				}
				return as
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			var got *batchesSeen
			h := onceq.Batched(onceq.BatchedOptions{Max: 3}, func(_ context.Context, js []*onceq.Job) []error {
				got.note(js)
				return nil
			})
			bubble(t, nil, func(r *rig) {
				got = newBatchesSeen()
				r.store.set(bad)
				r.send("a", "b", "c")
				r.start()
				pass(8 * time.Second)
				if ns := got.sizes(); !slices.Equal(ns, []int{2}) {
					t.Errorf("batches of %v, want one of 2", ns)
				}
				r.wantOutcomes("a", "done")
				r.wantOutcomes("c", "done")
				ends := r.seen.outcomes("b")
				if len(ends) == 0 || slices.ContainsFunc(ends, func(o string) bool { return o != "handed-back" && o != "lease-lost" }) {
					t.Errorf("what has not begun ended as %q", ends)
				}
				if rec := r.record("b"); rec.Attempt > 1 || rec.Status == dedupe.Parked {
					t.Errorf("the record is %+v", rec)
				}
				r.noLetters()
			}, inBatches(3, h), parks, most(1), preset(membroker.SQSStandard))
		})
	}
}

// A store that cannot be asked for the starts keeps the batch from beginning, a drain from nothing.
func TestBatchedDrainedWhileItsStartsAreConfirmed(t *testing.T) {
	for name, bad := range map[string]func(onceqtest.Call) faulty.Faults{
		"errors": func(c onceqtest.Call) faulty.Faults {
			if c.Op == onceqtest.Renew {
				return faulty.Fail(errBoom)
			}
			return nil
		},
		"slow": bads(onceqtest.Renew, 1, faulty.Slow(3*time.Second)),
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, nil, func(r *rig) {
				r.store.set(func(s *store) { s.fault = bad })
				r.send("a", "b")
				r.start()
				pass(time.Second)
				at := time.Now()
				if err := r.stop(); err != nil {
					t.Errorf("Run: %v", err)
				}
				if took := time.Since(at); took >= 4*time.Second {
					t.Errorf("the drain took %v", took)
				}
				for _, k := range []string{"a", "b"} {
					if rec := r.record(k); rec.Status != dedupe.Released || rec.Attempt != 0 || rec.Started {
						t.Errorf("the record of %s is %+v", k, rec)
					}
				}
				r.noLetters()
			}, inBatches(2, onceq.Batched(onceq.BatchedOptions{Max: 2}, func(context.Context, []*onceq.Job) []error {
				t.Error("the batch has begun")
				return nil
			})), parks, most(1))
		})
	}
}

// Under an operator's limit a batch has all that can come when it has as many jobs as the limit, so
// it does not linger for more. What gathers when a limit is set begins then.
func TestBatchedUnderALimit(t *testing.T) {
	var got *batchesSeen
	h := onceq.Batched(onceq.BatchedOptions{Max: 20, Linger: time.Minute}, func(_ context.Context, js []*onceq.Job) []error {
		got.note(js)
		return nil
	})
	bubble(t, nil, func(r *rig) {
		got = newBatchesSeen()
		limited := func(u *control.Rule) { u.Queue, u.Do, u.Slots = scope, control.Limit, 5 }
		r.start()
		pass(time.Second)
		r.send(numbered("early", 7)...)
		pass(10 * time.Second)
		got.want(t)
		r.orders(time.Hour, limited)
		pass(bound)
		if ns := got.sizes(); !slices.Equal(ns, []int{7}) {
			t.Errorf("what gathered when the limit was set began as %v, want one batch of 7", ns)
		}
		r.send(numbered("limited", 100)...)
		pass(10 * time.Second)
		if ns := got.sizes(); len(ns) != 21 || ns[1] != 5 || ns[20] != 5 {
			t.Errorf("under the limit there were batches of %v", ns)
		}
		r.rules(func(rs *controlstore.Rules) { rs.Rules = nil })
		pass(bound)
		r.send(numbered("after", 20)...)
		pass(10 * time.Second)
		if ns := got.sizes(); len(ns) != 22 || ns[0] != 20 {
			t.Errorf("after the limit there were batches of %v", ns)
		}
	}, inBatches(40, h), steered)
}
