package batches

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
	"github.com/onceq/onceq/internal/coretest/rig"
	"github.com/onceq/onceq/internal/faulty"
	"github.com/onceq/onceq/onceqtest"
)

// What is tested here is a Bulk that gathers when its worker stops, pauses, is limited or dies.

// lingers is a Bulk that gathers for a minute, and counts the jobs that its function gets.
func lingers(began *atomic.Int64) onceq.Handler {
	return onceq.Bulk(onceq.BulkOptions{Linger: time.Minute}, func(_ context.Context, js []*onceq.Job) []error {
		began.Add(int64(len(js)))
		return nil
	})
}

// A stop ends a gathering at once, however long its Linger, and whatever the policy: its jobs have
// not begun, so they are handed back, and no attempt counts.
func TestBulkThatGathersInADrain(t *testing.T) {
	for _, park := range []bool{false, true} {
		for _, drain := range []time.Duration{-1, 3 * time.Second, time.Hour} {
			t.Run(fmt.Sprintf("park %v, drain %v", park, drain), func(t *testing.T) {
				var began atomic.Int64
				options := []rig.Option{inBatches(100, lingers(&began)), rig.With(func(c *rig.Setup) { c.DrainTimeout = drain })}
				if park {
					options = append(options, rig.Parks)
				}
				rig.Bubble(t, nil, func(r *rig.Rig) {
					r.Start()
					r.Send("a", "b", "c")
					rig.Pass(10 * time.Second)
					at := time.Now()
					if err := r.Stop(); err != nil {
						t.Errorf("Run: %v", err)
					}
					if took := time.Since(at); took >= time.Second {
						t.Errorf("the drain took %v", took)
					}
					for _, k := range []string{"a", "b", "c"} {
						r.WantOutcomes(k, "handed-back")
						if rec := r.Record(k); rec.Status != dedupe.Released || rec.Attempt != 0 || rec.Started {
							t.Errorf("the record of %s is %+v", k, rec)
						}
					}
					if n := began.Load(); n != 0 {
						t.Errorf("%d jobs began", n)
					}
					r.NoLetters()
				}, options...)
			})
		}
	}
}

// A pause hands back at once what gathers. What a shared Bulk has from another worker begins.
func TestBulkThatGathersInAPause(t *testing.T) {
	var began atomic.Int64
	rig.Bubble(t, nil, func(r *rig.Rig) {
		second := rig.NewQueue(r.T, membroker.Options{})
		other := r.Worker(func(c *rig.Setup) { c.Broker, c.Scope, c.Queue = second, "second", "" })
		ctx, stop := context.WithCancel(r.Context())
		done := make(chan error, 1)
		go func() { done <- other.Run(ctx) }()
		r.Start()
		r.Send("a", "b")
		rig.Pass(time.Second)
		if err := onceq.Send(r.Context(), second.Broker, []broker.Outgoing{rig.Message("c")}); err != nil {
			t.Fatal(err)
		}
		rig.Pass(9 * time.Second)
		r.W.Pause()
		rig.Pass(time.Second)
		for _, k := range []string{"a", "b"} {
			r.WantOutcomes(k, "handed-back")
			if rec := r.Record(k); rec.Attempt != 0 {
				t.Errorf("what was handed back counts: %+v", rec)
			}
		}
		r.WantOutcomes("c", "done")
		r.W.Resume()
		rig.Pass(2 * time.Minute)
		if n := began.Load(); n != 3 {
			t.Errorf("%d jobs began, want 3", n)
		}
		r.WantStatus("a", dedupe.Done)
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}, inBatches(100, lingers(&began)))
}

// A job that comes to its batch when its worker has just stopped does not begin another gathering.
func TestBulkJoinedAfterAStop(t *testing.T) {
	var began atomic.Int64
	h := onceq.Chain(lingers(&began), func(next onceq.Handler) onceq.Handler {
		return onceq.HandlerFunc(func(ctx context.Context, j *onceq.Job) error {
			rig.Takes(2 * time.Second)
			return next.Handle(ctx, j)
		})
	})
	rig.Bubble(t, nil, func(r *rig.Rig) {
		r.Start()
		r.Send("a")
		rig.Pass(time.Second)
		at := time.Now()
		if err := r.Stop(); err != nil {
			t.Error(err)
		}
		if took := time.Since(at); took >= 2*time.Second {
			t.Errorf("the drain took %v", took)
		}
		r.WantOutcomes("a", "handed-back")
	}, inBatches(100, h))
}

// Under Park a start is recorded when the batch begins, in one call, and not when a job joins it.
// So a job whose worker dies while it gathers runs again. With a middleware around it, which may
// have done anything, it is recorded before that.
func TestBulkRecordsItsStarts(t *testing.T) {
	for _, wrapped := range []string{"", "Chain", "Mux", "Mux.Use"} {
		t.Run("in "+wrapped, func(t *testing.T) {
			var r *rig.Rig
			var begun sync.Once
			h := onceq.Bulk(onceq.BulkOptions{Linger: 5 * time.Second}, func(_ context.Context, js []*onceq.Job) []error {
				begun.Do(func() {
					for _, k := range []string{"a", "b", "c"} {
						if rec := r.Record(k); !rec.Started {
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
				m.On("mail", h, &onceq.JobOptions{Scope: rig.Scope})
				h = &m
			case "Mux.Use":
				m.On("mail", h, &onceq.JobOptions{Scope: rig.Scope})
				m.Use(middleware)
				h = &m
			}
			early := wrapped == "Chain" || wrapped == "Mux.Use"
			rig.Bubble(t, nil, func(it *rig.Rig) {
				r = it
				r.Start()
				for _, k := range []string{"a", "b", "c"} {
					o := rig.Message(k)
					if wrapped != "" && wrapped != "Chain" {
						o.Meta.Type = "mail"
					}
					r.Put(o)
				}
				rig.Pass(time.Second)
				for _, k := range []string{"a", "b", "c"} {
					if rec := r.Record(k); rec.Started != early {
						t.Errorf("%s gathers, and its record is %+v", k, rec)
					}
				}
				rig.Pass(5 * time.Second)
				for _, k := range []string{"a", "b", "c"} {
					r.WantOutcomes(k, "done")
				}
				if n := r.Store.Renews.Load(); !early && n != 1 {
					t.Errorf("%d calls recorded three starts, want 1", n)
				}
			}, inBatches(100, h), rig.Parks)
		})
	}
}

// The starts of a batch that is larger than a call of the store may be are recorded in several.
func TestBulkRecordsItsStartsInParts(t *testing.T) {
	got := newBatchesSeen()
	h := onceq.Bulk(onceq.BulkOptions{Max: 5}, func(_ context.Context, js []*onceq.Job) []error {
		got.note(js)
		return nil
	})
	rig.Bubble(t, nil, func(r *rig.Rig) {
		r.Send(rig.Numbered("k", 5)...)
		r.RunFor(time.Second)
		if ns := got.sizes(); !slices.Equal(ns, []int{5}) || r.Store.Renews.Load() != 3 {
			t.Errorf("batches of %v, and %d calls recorded the starts; want one of 5, and 3", ns, r.Store.Renews.Load())
		}
	}, inBatches(5, h), rig.Parks, func(r *rig.Rig) {
		r.Store.ChangeLimits = func(l dedupe.Limits) dedupe.Limits { l.MaxBatch = 2; return l }
	})
}

// Whose start is not confirmed does not begin, is not parked, and counts no attempt. The others of
// its batch begin.
func TestBulkWhoseStartIsNotConfirmed(t *testing.T) {
	for name, bad := range map[string]func(s *rig.Store){
		"its record errs": func(s *rig.Store) {
			s.OnRenew = func(rs []dedupe.Renewal, as []dedupe.Renewed) []dedupe.Renewed {
				for i := range rs {
					if rs[i].Started && rs[i].Key.Key == "b" {
						as[i] = dedupe.Renewed{Err: rig.ErrBoom}
					}
				}
				return as
			}
		},
		"its claim is lost": func(s *rig.Store) {
			s.OnRenew = func(rs []dedupe.Renewal, as []dedupe.Renewed) []dedupe.Renewed {
				for i := range rs {
					if rs[i].Started && rs[i].Key.Key == "b" {
						as[i] = dedupe.Renewed{Err: dedupe.ErrLeaseLost}
					}
				}
				return as
			}
		},
		"a call with it fails": func(s *rig.Store) {
			s.OnRenew = func(rs []dedupe.Renewal, as []dedupe.Renewed) []dedupe.Renewed {
				if slices.ContainsFunc(rs, func(q dedupe.Renewal) bool { return q.Started && q.Key.Key == "b" }) {
					return nil // fewer answers than were asked for, which is an error of the call
				}
				return as
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			var got *batchesSeen
			h := onceq.Bulk(onceq.BulkOptions{Max: 3}, func(_ context.Context, js []*onceq.Job) []error {
				got.note(js)
				return nil
			})
			rig.Bubble(t, nil, func(r *rig.Rig) {
				got = newBatchesSeen()
				r.Store.Set(bad)
				r.Send("a", "b", "c")
				r.Start()
				rig.Pass(8 * time.Second)
				if ns := got.sizes(); !slices.Equal(ns, []int{2}) {
					t.Errorf("batches of %v, want one of 2", ns)
				}
				r.WantOutcomes("a", "done")
				r.WantOutcomes("c", "done")
				ends := r.Seen.Outcomes("b")
				if len(ends) == 0 || slices.ContainsFunc(ends, func(o string) bool { return o != "handed-back" && o != "lease-lost" }) {
					t.Errorf("what has not begun ended as %q", ends)
				}
				if rec := r.Record("b"); rec.Attempt > 1 || rec.Status == dedupe.Parked {
					t.Errorf("the record is %+v", rec)
				}
				r.NoLetters()
			}, inBatches(3, h), rig.Parks, rig.Most(1), rig.Preset(membroker.SQSStandard))
		})
	}
}

// A store that cannot be asked for the starts keeps the batch from beginning, a drain from nothing.
func TestBulkDrainedWhileItsStartsAreConfirmed(t *testing.T) {
	for name, bad := range map[string]func(onceqtest.Call) faulty.Faults{
		"errors": func(c onceqtest.Call) faulty.Faults {
			if c.Op == onceqtest.Renew {
				return faulty.Fail(rig.ErrBoom)
			}
			return nil
		},
		"slow": rig.Bads(onceqtest.Renew, 1, faulty.Slow(3*time.Second)),
	} {
		t.Run(name, func(t *testing.T) {
			rig.Bubble(t, nil, func(r *rig.Rig) {
				r.Store.Set(func(s *rig.Store) { s.Fault = bad })
				r.Send("a", "b")
				r.Start()
				rig.Pass(time.Second)
				at := time.Now()
				if err := r.Stop(); err != nil {
					t.Errorf("Run: %v", err)
				}
				if took := time.Since(at); took >= 4*time.Second {
					t.Errorf("the drain took %v", took)
				}
				for _, k := range []string{"a", "b"} {
					if rec := r.Record(k); rec.Status != dedupe.Released || rec.Attempt != 0 || rec.Started {
						t.Errorf("the record of %s is %+v", k, rec)
					}
				}
				r.NoLetters()
			}, inBatches(2, onceq.Bulk(onceq.BulkOptions{Max: 2}, func(context.Context, []*onceq.Job) []error {
				t.Error("the batch has begun")
				return nil
			})), rig.Parks, rig.Most(1))
		})
	}
}

// Under an operator's limit a batch has all that can come when it has as many jobs as the limit, so
// it does not linger for more. What gathers when a limit is set begins then.
func TestBulkUnderALimit(t *testing.T) {
	var got *batchesSeen
	h := onceq.Bulk(onceq.BulkOptions{Max: 20, Linger: time.Minute}, func(_ context.Context, js []*onceq.Job) []error {
		got.note(js)
		return nil
	})
	rig.Bubble(t, nil, func(r *rig.Rig) {
		got = newBatchesSeen()
		limited := func(u *control.Rule) { u.Queue, u.Do, u.Slots = rig.Scope, control.Limit, 5 }
		r.Start()
		rig.Pass(time.Second)
		r.Send(rig.Numbered("early", 7)...)
		rig.Pass(10 * time.Second)
		got.want(t)
		r.Orders(time.Hour, limited)
		rig.Pass(rig.Bound)
		if ns := got.sizes(); !slices.Equal(ns, []int{7}) {
			t.Errorf("what gathered when the limit was set began as %v, want one batch of 7", ns)
		}
		r.Send(rig.Numbered("limited", 100)...)
		rig.Pass(10 * time.Second)
		if ns := got.sizes(); len(ns) != 21 || ns[1] != 5 || ns[20] != 5 {
			t.Errorf("under the limit there were batches of %v", ns)
		}
		r.Rules(func(rs *controlstore.Rules) { rs.Rules = nil })
		rig.Pass(rig.Bound)
		r.Send(rig.Numbered("after", 20)...)
		rig.Pass(10 * time.Second)
		if ns := got.sizes(); len(ns) != 22 || ns[0] != 20 {
			t.Errorf("after the limit there were batches of %v", ns)
		}
	}, inBatches(40, h), rig.Steered)
}
