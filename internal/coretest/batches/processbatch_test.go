package onceq_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/faulty"
	"github.com/onceq/onceq/internal/peak"
	"github.com/onceq/onceq/onceqtest"
)

// batch runs the deliveries within the bounds, and checks that each was answered once.
func (r *rig) batch(ctx context.Context, o onceq.BatchOptions, ds ...onceq.Delivery) map[int]onceq.Disposition {
	r.Helper()
	b, err := r.cfg.batches()
	if err != nil {
		r.Fatal(err)
	}
	got := processed{ds: make(map[int]onceq.Disposition)}
	b.Process(ctx, ds, &o, func(i int, d onceq.Disposition) {
		got.mu.Lock()
		defer got.mu.Unlock()
		if _, twice := got.ds[i]; twice {
			r.Errorf("delivery %d was answered twice", i)
		}
		got.ds[i] = d
	})
	got.mu.Lock()
	defer got.mu.Unlock()
	if len(got.ds) != len(ds) {
		r.Errorf("%d of %d deliveries were answered: %+v", len(got.ds), len(ds), got.ds)
	}
	return got.ds
}

// lasting makes the deliveries end d from now.
func lasting(d time.Duration, texts ...string) []onceq.Delivery {
	ds := deliveries(texts...)
	for i := range ds {
		ds[i].Until = time.Now().Add(d)
	}
	return ds
}

// outcomesOf are the names of the outcomes, in the deliveries' order.
func outcomesOf(got map[int]onceq.Disposition) []string {
	os := make([]string, len(got))
	for i, d := range got {
		os[i] = string(d.Record.Outcome)
	}
	return os
}

func (r *rig) wantEnds(got map[int]onceq.Disposition, want ...string) {
	r.Helper()
	if os := outcomesOf(got); !slices.Equal(os, want) {
		r.Errorf("the deliveries ended as %q, want %q", os, want)
	}
}

func TestBatchConcurrency(t *testing.T) {
	var busy peak.Gauge
	h := func(context.Context, *onceq.Job) error {
		busy.In()
		takes(time.Second)
		busy.Out()
		return nil
	}
	for n, took := range map[int]time.Duration{0: time.Second, -1: time.Second, 1: 7 * time.Second, 2: 4 * time.Second, 50: time.Second} {
		bubble(t, h, func(r *rig) {
			busy.Reset()
			var claimed atomic.Int32
			begin := time.Now()
			r.store.set(func(s *store) {
				s.onClaim = func(rs []dedupe.ClaimRequest, cs []dedupe.Claim) []dedupe.Claim {
					if c := claimed.Add(int32(len(rs))); n > 0 && int(c) > n*(1+int(time.Since(begin)/time.Second)) {
						r.Errorf("%d claims after %v: more than there were slots", c, time.Since(begin))
					}
					return cs
				}
			})
			r.batch(r.Context(), onceq.BatchOptions{Concurrency: n}, deliveries(numbered("k", 7)...)...)
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
			takes(time.Second)
			if string(j.Message.Body) == "b" && unordered {
				return errBoom
			}
			return nil
		}
		bubble(t, h, func(r *rig) {
			begin := time.Now()
			got := r.batch(r.Context(), onceq.BatchOptions{Unordered: unordered}, deliveries("g/a", "g/b", "g/c")...)
			if d := time.Since(begin); d != took {
				t.Errorf("unordered %v: took %v, want %v", unordered, d, took)
			}
			if unordered {
				r.wantEnds(got, "done", "retried", "done")
			} else {
				r.wantEnds(got, "done", "done", "done")
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
		{"by its own timer", func(_ context.Context, at time.Time) { takes(time.Until(at)) }},
		{"late", func(_ context.Context, at time.Time) { takes(time.Until(at) + time.Second) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, parks := range []bool{false, true} {
				var at time.Time
				h := func(ctx context.Context, j *onceq.Job) error {
					switch body := string(j.Message.Body); body {
					case "early":
						takes(11 * time.Second)
						return nil
					default:
						if d, ok := ctx.Deadline(); !ok || !d.Equal(at) {
							t.Errorf("the handler's deadline is %v, want %v", d, at)
						}
						c.waits(ctx, at)
						if body == "done" {
							return nil
						}
						return errBoom
					}
				}
				bubble(t, h, func(r *rig) {
					at = time.Now().Add(20 * time.Second)
					got := r.batch(r.Context(), onceq.BatchOptions{Deadline: at, Concurrency: 3},
						lasting(25*time.Second, "whole", "done", "early", "tail")...)
					if parks {
						r.wantEnds(got, "parked", "done", "done", "parked")
						return
					}
					r.wantEnds(got, "retried", "done", "done", "handed-back")
					if d := got[0]; d.Record.ErrClass != onceq.ClassTimeout || d.Delay != time.Second {
						t.Errorf("the one that had the time: %v, class %q", d.Delay, d.Record.ErrClass)
					}
					if rec := r.record("whole"); rec.Attempt != 1 {
						t.Errorf("the one that had the time has %d attempts, want 1", rec.Attempt)
					}
					if rec := r.record("tail"); rec.Attempt != 0 || got[3].Delay != 0 {
						t.Errorf("the one that began late has %d attempts, and comes again after %v", rec.Attempt, got[3].Delay)
					}
				}, steady, with(func(c *setup) {
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
				takes(first)
				return nil
			}
			<-ctx.Done()
			return errBoom
		}
		bubble(t, h, func(r *rig) {
			got := r.batch(r.Context(), onceq.BatchOptions{Deadline: time.Now().Add(20 * time.Second), Concurrency: 1}, lasting(25*time.Second, "first", "second")...)
			r.wantEnds(got, "done", want)
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
		bubble(t, h, func(r *rig) {
			begin := time.Now()
			got := r.batch(r.Context(), onceq.BatchOptions{Deadline: begin.Add(d)}, lasting(30*time.Second, "a", "b")...)
			if took := time.Since(begin); d >= 30*time.Second && took != 25*time.Second {
				t.Errorf("Deadline after %v: took %v", d, took)
			}
			if d >= 30*time.Second {
				r.wantEnds(got, "retried", "retried")
				if c := got[0].Record.ErrClass; c != onceq.ClassTimeout {
					t.Errorf("Deadline after %v: the class is %q", d, c)
				}
			}
			pass(time.Minute)
			if n := ended.Load(); n != 2 {
				t.Errorf("Deadline after %v: %d handlers were told of the end, want 2", d, n)
			}
		})
	}
}

// A batch that is over before it begins claims nothing, and hands everything back.
func TestBatchThatIsOverBeforeItBegins(t *testing.T) {
	r := newRig(t, never(t))
	ended, end := context.WithCancel(r.Context())
	end()
	ago := time.Now().Add(-time.Second)
	for range 1000 { // whoever is faster
		for _, got := range []map[int]onceq.Disposition{
			r.batch(ended, onceq.BatchOptions{}, deliveries("a", "g/b", "g/c")...),
			r.batch(r.Context(), onceq.BatchOptions{Deadline: ago}, deliveries("a", "g/b", "g/c")...),
			r.batch(r.Context(), onceq.BatchOptions{}, lasting(-time.Second, "a", "g/b", "g/c")...),
			r.batch(r.Context(), onceq.BatchOptions{Deadline: ago}, lasting(-time.Second, "a", "g/b", "g/c")...),
		} {
			r.wantEnds(got, "handed-back", "handed-back", "handed-back")
		}
	}
	if n := r.store.claims.Load(); n != 0 {
		t.Errorf("%d claims", n)
	}
}

// A job's own Timeout is the job's failure, also in a batch's last second.
func TestBatchDeadlineAndTimeout(t *testing.T) {
	for _, one := range []bool{false, true} {
		for _, st := range []dedupe.Store{nil, onceq.NoStore} {
			bubble(t, func(ctx context.Context, j *onceq.Job) error {
				if string(j.Message.Body) == "first" {
					takes(15 * time.Second)
					return nil
				}
				<-ctx.Done()
				if !errors.Is(context.Cause(ctx), onceq.ErrTimeout) {
					t.Errorf("the cause is %v", context.Cause(ctx))
				}
				return context.Cause(ctx)
			}, func(r *rig) {
				if st != nil {
					r.cfg.Store = st
				}
				begin := time.Now()
				ds := lasting(25*time.Second, "first", "second")
				ds[1].Message.Meta.Timeout = 2 * time.Second
				got := r.batch(r.Context(), onceq.BatchOptions{Deadline: begin.Add(20 * time.Second), Concurrency: 1, OneLease: one}, ds...)
				r.wantEnds(got, "done", "retried")
				if took := time.Since(begin); took != 17*time.Second {
					t.Errorf("took %v", took)
				}
			})
		}
	}
}

// Nothing begins with less than MinTime left, and what has not begun was no attempt.
func TestBatchMinTime(t *testing.T) {
	h := func(context.Context, *onceq.Job) error { takes(6 * time.Second); return nil }
	bubble(t, h, func(r *rig) {
		begin := time.Now()
		got := r.batch(r.Context(), onceq.BatchOptions{Deadline: begin.Add(20 * time.Second), MinTime: 10 * time.Second, Concurrency: 1},
			lasting(25*time.Second, "a", "b", "c", "d")...)
		r.wantEnds(got, "done", "done", "handed-back", "handed-back")
		r.wantStatus("c", 0)
		if took := time.Since(begin); took != 12*time.Second {
			t.Errorf("took %v", took)
		}
	})
	bubble(t, never(t), func(r *rig) {
		begin := time.Now()
		got := r.batch(r.Context(), onceq.BatchOptions{Deadline: begin.Add(20 * time.Second), MinTime: time.Minute}, lasting(25*time.Second, "a", "b")...)
		r.wantEnds(got, "handed-back", "handed-back")
		if took := time.Since(begin); took != 0 || r.store.claims.Load() != 0 {
			t.Errorf("took %v and %d claims", took, r.store.claims.Load())
		}
	})
}

// A handler runs already when the time becomes too short for others. Its end is recorded, however
// long the store is away until then.
func TestBatchMinTimeDuringAnOutage(t *testing.T) {
	bubble(t, returns(nil), func(r *rig) {
		r.store.fails(errBoom, onceqtest.Settle)
		go func() {
			takes(15 * time.Second)
			r.store.heals()
		}()
		got := r.batch(r.Context(), onceq.BatchOptions{Deadline: time.Now().Add(time.Minute), MinTime: 59 * time.Second}, lasting(2*time.Minute, "a")...)
		r.wantEnds(got, "done")
	})
}

// What is answered as the time ends is answered before the return.
func TestBatchWaitsForWhomItTells(t *testing.T) {
	bubble(t, returns(nil), func(r *rig) {
		b, err := r.cfg.batches()
		if err != nil {
			t.Fatal(err)
		}
		told := false
		b.Process(r.Context(), lasting(10*time.Second, "a"), nil, func(int, onceq.Disposition) {
			takes(20 * time.Second)
			told = true
		})
		if !told {
			t.Error("returned while its answer was being taken")
		}
	})
}

// A claim that was on its way when the time became too short is given back, uncounted.
func TestBatchMinTimeDuringAClaim(t *testing.T) {
	bubble(t, never(t), func(r *rig) {
		r.store.set(func(s *store) {
			s.fault = func(c onceqtest.Call) (f faulty.Faults) {
				if c.Op == onceqtest.Claim {
					f = faulty.Slow(2 * time.Second)
				}
				return f
			}
		})
		got := r.batch(r.Context(), onceq.BatchOptions{Deadline: time.Now().Add(20 * time.Second), MinTime: 19 * time.Second}, lasting(25*time.Second, "a")...)
		r.wantEnds(got, "handed-back")
		if rec := r.record("a"); rec.Status != dedupe.Released || rec.Attempt != 0 {
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
		takes(30 * time.Second)
		return nil
	}
	bubble(t, h, func(r *rig) {
		go func() {
			takes(time.Second)
			r.store.fails(errBoom, onceqtest.Claim, onceqtest.Settle)
			takes(50 * time.Second)
			r.store.heals()
		}()
		r.store.set(func(s *store) {
			s.fault = func(c onceqtest.Call) (f faulty.Faults) {
				if c.Op == onceqtest.Claim && c.N > 1 {
					f = faulty.Fail(errBoom)
				}
				return f
			}
		})
		var ended sync.Map
		b, err := r.cfg.batches()
		if err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		ds := lasting(10*time.Minute, append([]string{"g/a", "g/b", "h/b"}, numbered("k", 20)...)...)
		ds[2].Message.Meta.Key = "a" // so that its claim goes with the next batch
		o := onceq.BatchOptions{Concurrency: 5, Outage: 8 * time.Second, OneLease: true, Deadline: begin.Add(9 * time.Minute)}
		r.store.set(func(s *store) {
			s.onClaim = func(rs []dedupe.ClaimRequest, cs []dedupe.Claim) []dedupe.Claim {
				for i, q := range rs { // of the first call only a is answered
					if q.Key.Key != "a" {
						cs[i] = dedupe.Claim{Err: errBoom}
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
			case d.Action != onceq.Nack || d.Record.Outcome != "store-unreachable" || d.Delay < 15*time.Second || d.Delay > 30*time.Second:
				t.Errorf("delivery %d was answered %v after %v, %q", i, d.Action, d.Delay, d.Record.Outcome)
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
		r.wantStatus("a", dedupe.Done)
		if n := r.log.count("the store does not answer; claims"); n != 1 {
			t.Errorf("the log tells %d times of the outage", n)
		}
	})
}

// One lease for the whole time: nothing is renewed, and nobody can take the key before the delivery
// has ended.
func TestBatchOneLease(t *testing.T) {
	h := func(context.Context, *onceq.Job) error { takes(9 * time.Minute); return nil }
	bubble(t, h, func(r *rig) {
		begin := time.Now()
		go func() {
			takes(8 * time.Minute)
			if rec := r.record("a"); rec.LeaseUntil.Sub(begin) != 10*time.Minute+5*time.Second {
				t.Errorf("the lease ends after %v", rec.LeaseUntil.Sub(begin))
			}
			got := r.batch(r.Context(), onceq.BatchOptions{OneLease: true}, deliveries("a")...)
			r.wantEnds(got, "in-progress")
		}()
		got := r.batch(r.Context(), onceq.BatchOptions{OneLease: true}, lasting(10*time.Minute, "a")...)
		r.wantEnds(got, "done")
		if n := r.store.renews.Load(); n != 0 {
			t.Errorf("%d renewals", n)
		}
		if rec := got[0].Record; rec.Heartbeat || rec.Beats != 0 || rec.Visibility != 10*time.Minute+5*time.Second {
			t.Errorf("the timing record is %+v", rec)
		}
		if n := r.store.claims.Load() + r.store.settles.Load(); n != 3 { // and the claim of the second delivery
			t.Errorf("%d calls of the store", n)
		}
	})
}

// Without an Until there is no time to cover: the claim is renewed as ever.
func TestBatchOneLeaseWithoutUntil(t *testing.T) {
	bubble(t, func(context.Context, *onceq.Job) error { takes(5 * time.Minute); return nil }, func(r *rig) {
		got := r.batch(r.Context(), onceq.BatchOptions{OneLease: true}, deliveries("a")...)
		r.wantEnds(got, "done")
		if rec := got[0].Record; !rec.Heartbeat || rec.Beats < 10 {
			t.Errorf("the timing record is %+v", rec)
		}
	})
}

// closedQueue is a dead-letter queue that can be made to fail.
type closedQueue struct {
	broker.Sender
	refuse atomic.Bool
	calls  atomic.Int64
}

func (q *closedQueue) Send(ctx context.Context, ms []broker.Outgoing) ([]string, error) {
	q.calls.Add(1)
	if q.refuse.Load() {
		return nil, errBoom
	}
	return q.Sender.Send(ctx, ms)
}

// When ProcessBatch has returned, nothing is left that works: neither a settlement that was to be
// repeated, nor a letter, nor the timer of a job's Timeout.
func TestBatchLeavesNothingBehind(t *testing.T) {
	for _, op := range []onceqtest.Op{onceqtest.Settle, onceqtest.Claim, onceqtest.Letter} {
		h := func(_ context.Context, j *onceq.Job) error {
			if strings.HasPrefix(string(j.Message.Body), "x") {
				return onceq.Permanent(errBoom)
			}
			if strings.HasPrefix(string(j.Message.Body), "z") {
				takes(time.Hour)
			}
			return nil
		}
		bubble(t, h, func(r *rig) {
			letters := &closedQueue{Sender: r.dlq}
			r.cfg.DeadLetter = letters
			r.store.fails(errBoom, op)
			if op == onceqtest.Letter {
				letters.refuse.Store(true)
			}
			got := r.batch(r.Context(), onceq.BatchOptions{Deadline: time.Now().Add(20 * time.Second), OneLease: true},
				lasting(25*time.Second, "a", "x", "z")...)
			if got[2].Action == onceq.Ack {
				t.Errorf("the one that ignores its context was answered %+v", got[2])
			}
			calls := func() int64 {
				return r.store.claims.Load() + r.store.renews.Load() + r.store.settles.Load() + letters.calls.Load()
			}
			before := calls()
			r.store.heals()
			letters.refuse.Store(false)
			pass(2 * time.Hour)
			if n := calls() - before; n != 0 {
				t.Errorf("%s fails: %d calls after the return", op, n)
			}
		}, with(func(c *setup) { c.SettleTimeout = time.Hour; c.Defaults.Timeout = 90 * time.Minute }))
	}
}

// When the time is over, some calls still wait for the calls before them. They do not
// go out after the return.
func TestBatchLeavesNothingWaitingBehind(t *testing.T) {
	for _, fails := range []error{nil, onceq.Permanent(errBoom)} {
		h := func(_ context.Context, j *onceq.Job) error { // a begins a call that hangs, and b has to wait for it
			takes(map[string]time.Duration{"a": 8500 * time.Millisecond, "b": 8700 * time.Millisecond}[string(j.Message.Body)])
			return fails
		}
		bubble(t, h, func(r *rig) {
			slow := &slowQueue{Sender: r.dlq}
			r.cfg.DeadLetter = slow
			if fails == nil {
				r.store.set(func(s *store) {
					s.fault = bads(onceqtest.Settle, 1<<62, faulty.Hang())
				})
			}
			got := r.batch(r.Context(), onceq.BatchOptions{Deadline: time.Now().Add(5 * time.Second)}, lasting(10*time.Second, "a", "b")...)
			r.wantEnds(got, "abandoned", "abandoned")
			pass(time.Hour)
			if n := r.store.settles.Load() + slow.calls.Load(); fails == nil && n != 1 || fails != nil && n != 3 {
				t.Errorf("%v: %d settlements and letters", fails, n)
			}
		})
	}
}

// slowQueue is a dead-letter queue whose calls hang.
type slowQueue struct {
	broker.Sender
	calls atomic.Int64
}

func (q *slowQueue) Send(ctx context.Context, _ []broker.Outgoing) ([]string, error) {
	q.calls.Add(1)
	<-ctx.Done()
	return nil, ctx.Err()
}
