package batches

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/coretest/rig"
	"github.com/onceq/onceq/internal/faulty"
	"github.com/onceq/onceq/internal/must"
	"github.com/onceq/onceq/internal/peak"
	"github.com/onceq/onceq/onceqtest"
)

func TestBatchConcurrency(t *testing.T) {
	var busy peak.Gauge
	h := func(context.Context, *onceq.Job) error {
		busy.In()
		rig.Takes(time.Second)
		busy.Out()
		return nil
	}
	for n, took := range map[int]time.Duration{0: time.Second, -1: time.Second, 1: 7 * time.Second, 2: 4 * time.Second, 50: time.Second} {
		rig.Bubble(t, h, func(r *rig.Rig) {
			busy.Reset()
			var claimed atomic.Int32
			begin := time.Now()
			r.Store.Set(func(s *rig.Store) {
				s.OnClaim = func(rs []dedupe.ClaimRequest, cs []dedupe.Claim) []dedupe.Claim {
					if c := claimed.Add(int32(len(rs))); n > 0 && int(c) > n*(1+int(time.Since(begin)/time.Second)) {
						r.Errorf("%d claims after %v: more than there were slots", c, time.Since(begin))
					}
					return cs
				}
			})
			r.Batch(r.Context(), onceq.BatchOptions{Concurrency: n}, rig.Deliveries(rig.Numbered("k", 7)...)...)
			if d := time.Since(begin); d != took {
				t.Errorf("concurrency %d: 7 jobs of a second took %v, want %v", n, d, took)
			}
			if n > 0 && busy.Top() != min(n, 7) {
				t.Errorf("concurrency %d: %d handlers at once", n, busy.Top())
			}
		})
	}
}

// Groups of a batch go one after the other, unless they order nothing.
func TestBatchGroups(t *testing.T) {
	for unordered, took := range map[bool]time.Duration{false: 3 * time.Second, true: time.Second} {
		h := func(_ context.Context, j *onceq.Job) error {
			rig.Takes(time.Second)
			if string(j.Message.Body) == "b" && unordered {
				return rig.ErrBoom
			}
			return nil
		}
		rig.Bubble(t, h, func(r *rig.Rig) {
			begin := time.Now()
			got := r.Batch(r.Context(), onceq.BatchOptions{Unordered: unordered}, rig.Deliveries("g/a", "g/b", "g/c")...)
			if d := time.Since(begin); d != took {
				t.Errorf("unordered %v: took %v, want %v", unordered, d, took)
			}
			if unordered {
				r.WantEnds(got, "done", "retried", "done")
			} else {
				r.WantEnds(got, "done", "done", "done")
			}
		})
	}
}

// What a batch's Deadline does to a handler depends on how much of the time it had, not on who
// notices the end first.
func TestBatchDeadline(t *testing.T) {
	for _, c := range []struct {
		name  string
		waits func(ctx context.Context, at time.Time)
	}{
		{"by its context", func(ctx context.Context, _ time.Time) { <-ctx.Done() }},
		{"by its own timer", func(_ context.Context, at time.Time) { rig.Takes(time.Until(at)) }},
		{"late", func(_ context.Context, at time.Time) { rig.Takes(time.Until(at) + time.Second) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, parks := range []bool{false, true} {
				var at time.Time
				h := func(ctx context.Context, j *onceq.Job) error {
					switch body := string(j.Message.Body); body {
					case "early":
						rig.Takes(11 * time.Second)
						return nil
					default:
						if d, ok := ctx.Deadline(); !ok || !d.Equal(at) {
							t.Errorf("the handler's deadline is %v, want %v", d, at)
						}
						c.waits(ctx, at)
						if body == "done" {
							return nil
						}
						return rig.ErrBoom
					}
				}
				rig.Bubble(t, h, func(r *rig.Rig) {
					at = time.Now().Add(20 * time.Second)
					got := r.Batch(r.Context(), onceq.BatchOptions{Deadline: at, Concurrency: 3},
						rig.Lasting(25*time.Second, "whole", "done", "early", "tail")...)
					if parks {
						r.WantEnds(got, "parked", "done", "done", "parked")
						return
					}
					r.WantEnds(got, "retried", "done", "done", "handed-back")
					if d := got[0]; d.Report.ErrClass != onceq.ClassTimeout || d.Delay != time.Second {
						t.Errorf("the one that had the time: %v, class %q", d.Delay, d.Report.ErrClass)
					}
					if rec := r.Record("whole"); rec.Attempt != 1 {
						t.Errorf("the one that had the time has %d attempts, want 1", rec.Attempt)
					}
					if rec := r.Record("tail"); rec.Attempt != 0 || got[3].Delay != 0 {
						t.Errorf("the one that began late has %d attempts, and comes again after %v", rec.Attempt, got[3].Delay)
					}
				}, rig.Steady, rig.With(func(c *rig.Setup) {
					if parks {
						c.Defaults.Interrupted = dedupe.Park
					}
				}))
			}
		})
	}
}

// A handler has timed out only if it had at least half of the time.
func TestBatchDeadlineHalf(t *testing.T) {
	for first, want := range map[time.Duration]string{10 * time.Second: "retried", 10*time.Second + 1: "handed-back"} {
		h := func(ctx context.Context, j *onceq.Job) error {
			if string(j.Message.Body) == "first" {
				rig.Takes(first)
				return nil
			}
			<-ctx.Done()
			return rig.ErrBoom
		}
		rig.Bubble(t, h, func(r *rig.Rig) {
			got := r.Batch(r.Context(), onceq.BatchOptions{Deadline: time.Now().Add(20 * time.Second), Concurrency: 1}, rig.Lasting(25*time.Second, "first", "second")...)
			r.WantEnds(got, "done", want)
		})
	}
}

// A Deadline that is no earlier than the end of a delivery would leave no time to cut the handlers
// off, and none to write the ends.
func TestBatchDeadlineAfterUntil(t *testing.T) {
	for _, d := range []time.Duration{30*time.Second - 1, 30 * time.Second, time.Minute} {
		var ended atomic.Int32
		h := func(ctx context.Context, _ *onceq.Job) error {
			<-ctx.Done()
			ended.Add(1)
			return context.Cause(ctx)
		}
		rig.Bubble(t, h, func(r *rig.Rig) {
			begin := time.Now()
			got := r.Batch(r.Context(), onceq.BatchOptions{Deadline: begin.Add(d)}, rig.Lasting(30*time.Second, "a", "b")...)
			if took := time.Since(begin); d >= 30*time.Second && took != 25*time.Second {
				t.Errorf("Deadline after %v: took %v", d, took)
			}
			if d >= 30*time.Second {
				r.WantEnds(got, "retried", "retried")
				if c := got[0].Report.ErrClass; c != onceq.ClassTimeout {
					t.Errorf("Deadline after %v: the class is %q", d, c)
				}
			}
			rig.Pass(time.Minute)
			if n := ended.Load(); n != 2 {
				t.Errorf("Deadline after %v: %d handlers were told of the end, want 2", d, n)
			}
		})
	}
}

// A batch that is over before it begins claims nothing, and hands everything back.
func TestBatchThatIsOverBeforeItBegins(t *testing.T) {
	r := rig.New(t, rig.Never(t))
	ended, end := context.WithCancel(r.Context())
	end()
	ago := time.Now().Add(-time.Second)
	for range 1000 { // whoever is faster
		for _, got := range []map[int]onceq.Disposition{
			r.Batch(ended, onceq.BatchOptions{}, rig.Deliveries("a", "g/b", "g/c")...),
			r.Batch(r.Context(), onceq.BatchOptions{Deadline: ago}, rig.Deliveries("a", "g/b", "g/c")...),
			r.Batch(r.Context(), onceq.BatchOptions{}, rig.Lasting(-time.Second, "a", "g/b", "g/c")...),
			r.Batch(r.Context(), onceq.BatchOptions{Deadline: ago}, rig.Lasting(-time.Second, "a", "g/b", "g/c")...),
		} {
			r.WantEnds(got, "handed-back", "handed-back", "handed-back")
		}
	}
	if n := r.Store.Claims.Load(); n != 0 {
		t.Errorf("%d claims", n)
	}
}

// A job's own Timeout is the job's failure, also in a batch's last second.
func TestBatchDeadlineAndTimeout(t *testing.T) {
	for _, one := range []bool{false, true} {
		for _, st := range []dedupe.Store{nil, onceq.NoStore} {
			rig.Bubble(t, func(ctx context.Context, j *onceq.Job) error {
				if string(j.Message.Body) == "first" {
					rig.Takes(15 * time.Second)
					return nil
				}
				<-ctx.Done()
				if !errors.Is(context.Cause(ctx), onceq.ErrTimeout) {
					t.Errorf("the cause is %v", context.Cause(ctx))
				}
				return context.Cause(ctx)
			}, func(r *rig.Rig) {
				if st != nil {
					r.Cfg.Store = st
				}
				begin := time.Now()
				ds := rig.Lasting(25*time.Second, "first", "second")
				ds[1].Message.Meta.Timeout = 2 * time.Second
				got := r.Batch(r.Context(), onceq.BatchOptions{Deadline: begin.Add(20 * time.Second), Concurrency: 1, OneLease: one}, ds...)
				r.WantEnds(got, "done", "retried")
				if took := time.Since(begin); took != 17*time.Second {
					t.Errorf("took %v", took)
				}
			})
		}
	}
}

// Nothing begins with less than MinTime left, and what has not begun was no attempt.
func TestBatchMinTime(t *testing.T) {
	h := func(context.Context, *onceq.Job) error { rig.Takes(6 * time.Second); return nil }
	rig.Bubble(t, h, func(r *rig.Rig) {
		begin := time.Now()
		got := r.Batch(r.Context(), onceq.BatchOptions{Deadline: begin.Add(20 * time.Second), MinTime: 10 * time.Second, Concurrency: 1},
			rig.Lasting(25*time.Second, "a", "b", "c", "d")...)
		r.WantEnds(got, "done", "done", "handed-back", "handed-back")
		r.WantStatus("c", 0)
		if took := time.Since(begin); took != 12*time.Second {
			t.Errorf("took %v", took)
		}
	})
	rig.Bubble(t, rig.Never(t), func(r *rig.Rig) {
		begin := time.Now()
		got := r.Batch(r.Context(), onceq.BatchOptions{Deadline: begin.Add(20 * time.Second), MinTime: time.Minute}, rig.Lasting(25*time.Second, "a", "b")...)
		r.WantEnds(got, "handed-back", "handed-back")
		if took := time.Since(begin); took != 0 || r.Store.Claims.Load() != 0 {
			t.Errorf("took %v and %d claims", took, r.Store.Claims.Load())
		}
	})
}

// A handler runs already when the time becomes too short for others. Its end is recorded, however
// long the store is away until then.
func TestBatchMinTimeDuringAnOutage(t *testing.T) {
	rig.Bubble(t, rig.Returns(nil), func(r *rig.Rig) {
		r.Store.Fails(rig.ErrBoom, onceqtest.Settle)
		go func() {
			rig.Takes(15 * time.Second)
			r.Store.Heals()
		}()
		got := r.Batch(r.Context(), onceq.BatchOptions{Deadline: time.Now().Add(time.Minute), MinTime: 59 * time.Second}, rig.Lasting(2*time.Minute, "a")...)
		r.WantEnds(got, "done")
	})
}

// What is answered as the time ends is answered before the return.
func TestBatchWaitsForWhomItTells(t *testing.T) {
	rig.Bubble(t, rig.Returns(nil), func(r *rig.Rig) {
		b := must.Get(r.Cfg.Batches())
		told := false
		b.Process(r.Context(), rig.Lasting(10*time.Second, "a"), nil, func(int, onceq.Disposition) {
			rig.Takes(20 * time.Second)
			told = true
		})
		if !told {
			t.Error("returned while its answer was being taken")
		}
	})
}

// A claim that was on its way when the time became too short is given back, uncounted.
func TestBatchMinTimeDuringAClaim(t *testing.T) {
	rig.Bubble(t, rig.Never(t), func(r *rig.Rig) {
		r.Store.Set(func(s *rig.Store) {
			s.Fault = func(c onceqtest.Call) (f faulty.Faults) {
				if c.Op == onceqtest.Claim {
					f = faulty.Slow(2 * time.Second)
				}
				return f
			}
		})
		got := r.Batch(r.Context(), onceq.BatchOptions{Deadline: time.Now().Add(20 * time.Second), MinTime: 19 * time.Second}, rig.Lasting(25*time.Second, "a")...)
		r.WantEnds(got, "handed-back")
		if rec := r.Record("a"); rec.Status != dedupe.Released || rec.Attempt != 0 {
			t.Errorf("the record is %+v", rec)
		}
	})
}

// A store that does not answer is not waited for, and nothing runs unclaimed. What runs already
// goes on, and its end is recorded when the store is back.
func TestBatchOutage(t *testing.T) {
	h := func(_ context.Context, j *onceq.Job) error {
		if string(j.Message.Body) != "a" {
			t.Errorf("%s ran", j.Message.Body)
		}
		rig.Takes(30 * time.Second)
		return nil
	}
	rig.Bubble(t, h, func(r *rig.Rig) {
		go func() {
			rig.Takes(time.Second)
			r.Store.Fails(rig.ErrBoom, onceqtest.Claim, onceqtest.Settle)
			rig.Takes(50 * time.Second)
			r.Store.Heals()
		}()
		r.Store.Set(func(s *rig.Store) {
			s.Fault = func(c onceqtest.Call) (f faulty.Faults) {
				if c.Op == onceqtest.Claim && c.N > 1 {
					f = faulty.Fail(rig.ErrBoom)
				}
				return f
			}
		})
		var ended sync.Map
		b := must.Get(r.Cfg.Batches())
		begin := time.Now()
		ds := rig.Lasting(10*time.Minute, append([]string{"g/a", "g/b", "h/b"}, rig.Numbered("k", 20)...)...)
		ds[2].Message.Meta.Key = "a" // so that its claim goes with the next batch
		o := onceq.BatchOptions{Concurrency: 5, Outage: 8 * time.Second, OneLease: true, Deadline: begin.Add(9 * time.Minute)}
		r.Store.Set(func(s *rig.Store) {
			s.OnClaim = func(rs []dedupe.ClaimRequest, cs []dedupe.Claim) []dedupe.Claim {
				for i, q := range rs { // of the first call only a is answered
					if q.Key.Key != "a" {
						cs[i] = dedupe.Claim{Err: rig.ErrBoom}
					}
				}
				return cs
			}
		})
		b.Process(r.Context(), ds, &o, func(i int, d onceq.Disposition) {
			ended.Store(i, time.Since(begin))
			switch {
			case i == 0:
				if d.Action != onceq.Ack {
					t.Errorf("the one that ran was answered %+v", d)
				}
			case i == 1: // in the lane of the one that ran
				if d.Action != onceq.Nack {
					t.Errorf("its follower was answered %+v", d)
				}
			case d.Action != onceq.Nack || d.Report.Outcome != "store-unreachable" || d.Delay < 15*time.Second || d.Delay > 30*time.Second:
				t.Errorf("delivery %d was answered %v after %v, %q", i, d.Action, d.Delay, d.Report.Outcome)
			}
		})
		for i := 2; i < len(ds); i++ {
			if at, _ := ended.Load(i); at.(time.Duration) > 12*time.Second {
				t.Errorf("delivery %d was handed back after %v", i, at)
			}
		}
		if took := time.Since(begin); took < 51*time.Second || took > 60*time.Second {
			t.Errorf("took %v: the end of what ran is to be recorded when the store is back", took)
		}
		r.WantStatus("a", dedupe.Done)
		if n := r.Logged.Count("the store does not answer; claims"); n != 1 {
			t.Errorf("the log tells %d times of the outage", n)
		}
	})
}

// One lease for the whole time: nothing is renewed, and nobody can take the key before the delivery
// has ended.
func TestBatchOneLease(t *testing.T) {
	h := func(context.Context, *onceq.Job) error { rig.Takes(9 * time.Minute); return nil }
	rig.Bubble(t, h, func(r *rig.Rig) {
		begin := time.Now()
		go func() {
			rig.Takes(8 * time.Minute)
			if rec := r.Record("a"); rec.LeaseUntil.Sub(begin) != 10*time.Minute+5*time.Second {
				t.Errorf("the lease ends after %v", rec.LeaseUntil.Sub(begin))
			}
			got := r.Batch(r.Context(), onceq.BatchOptions{OneLease: true}, rig.Deliveries("a")...)
			r.WantEnds(got, "in-progress")
		}()
		got := r.Batch(r.Context(), onceq.BatchOptions{OneLease: true}, rig.Lasting(10*time.Minute, "a")...)
		r.WantEnds(got, "done")
		if n := r.Store.Renews.Load(); n != 0 {
			t.Errorf("%d renewals", n)
		}
		if rec := got[0].Report; rec.Heartbeat || rec.Beats != 0 || rec.Visibility != 10*time.Minute+5*time.Second {
			t.Errorf("the job report is %+v", rec)
		}
		if n := r.Store.Claims.Load() + r.Store.Settles.Load(); n != 3 { // and the claim of the second delivery
			t.Errorf("%d calls of the store", n)
		}
	})
}

// Without an Until there is no time to cover: the claim is renewed as ever.
func TestBatchOneLeaseWithoutUntil(t *testing.T) {
	rig.Bubble(t, func(context.Context, *onceq.Job) error { rig.Takes(5 * time.Minute); return nil }, func(r *rig.Rig) {
		got := r.Batch(r.Context(), onceq.BatchOptions{OneLease: true}, rig.Deliveries("a")...)
		r.WantEnds(got, "done")
		if rec := got[0].Report; !rec.Heartbeat || rec.Beats < 10 {
			t.Errorf("the job report is %+v", rec)
		}
	})
}

// When ProcessBatch has returned, nothing is left that works: neither a settlement that was to be
// repeated, nor a letter, nor the timer of a job's Timeout.
func TestBatchLeavesNothingBehind(t *testing.T) {
	for _, op := range []onceqtest.Op{onceqtest.Settle, onceqtest.Claim, onceqtest.Letter} {
		h := func(_ context.Context, j *onceq.Job) error {
			if strings.HasPrefix(string(j.Message.Body), "x") {
				return onceq.Permanent(rig.ErrBoom)
			}
			if strings.HasPrefix(string(j.Message.Body), "z") {
				rig.Takes(time.Hour)
			}
			return nil
		}
		rig.Bubble(t, h, func(r *rig.Rig) {
			var p onceqtest.Process
			r.Cfg.DeadLetter = p.Sender(r.DLQ)
			r.Store.Fails(rig.ErrBoom, op)
			if op == onceqtest.Letter {
				r.DLQ.SetFault(func(context.Context, onceqtest.Call) faulty.Faults { return faulty.Fail(rig.ErrBoom) })
			}
			got := r.Batch(r.Context(), onceq.BatchOptions{Deadline: time.Now().Add(20 * time.Second), OneLease: true},
				rig.Lasting(25*time.Second, "a", "x", "z")...)
			if got[2].Action == onceq.Ack {
				t.Errorf("the one that ignores its context was answered %+v", got[2])
			}
			calls := func() int64 {
				return r.Store.Claims.Load() + r.Store.Renews.Load() + r.Store.Settles.Load() + int64(p.Calls(onceqtest.Letter))
			}
			before := calls()
			r.Store.Heals()
			r.DLQ.SetFault(nil)
			rig.Pass(2 * time.Hour)
			if n := calls() - before; n != 0 {
				t.Errorf("%s fails: %d calls after the return", op, n)
			}
		}, rig.With(func(c *rig.Setup) { c.SettleTimeout = time.Hour; c.Defaults.Timeout = 90 * time.Minute }))
	}
}

// When the time is over, some calls still wait for the calls before them. They do not
// go out after the return.
func TestBatchLeavesNothingWaitingBehind(t *testing.T) {
	for _, fails := range []error{nil, onceq.Permanent(rig.ErrBoom)} {
		h := func(_ context.Context, j *onceq.Job) error { // a begins a call that hangs, and b has to wait for it
			rig.Takes(map[string]time.Duration{"a": 8500 * time.Millisecond, "b": 8700 * time.Millisecond}[string(j.Message.Body)])
			return fails
		}
		rig.Bubble(t, h, func(r *rig.Rig) {
			var p onceqtest.Process
			p.At(onceqtest.Fault{Op: onceqtest.Letter, Times: -1, Kind: onceqtest.Slow, Delay: 1 << 62})
			r.Cfg.DeadLetter = p.Sender(r.DLQ)
			if fails == nil {
				r.Store.Set(func(s *rig.Store) {
					s.Fault = rig.Bads(onceqtest.Settle, 1<<62, faulty.Hang())
				})
			}
			got := r.Batch(r.Context(), onceq.BatchOptions{Deadline: time.Now().Add(5 * time.Second)}, rig.Lasting(10*time.Second, "a", "b")...)
			r.WantEnds(got, "abandoned", "abandoned")
			rig.Pass(time.Hour)
			if n := r.Store.Settles.Load() + int64(p.Calls(onceqtest.Letter)); fails == nil && n != 1 || fails != nil && n != 3 {
				t.Errorf("%v: %d settlements and letters", fails, n)
			}
		})
	}
}
