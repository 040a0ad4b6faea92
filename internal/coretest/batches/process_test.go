package batches

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/coretest/rig"
	"github.com/onceq/onceq/onceqtest"
)

func TestProcessAnswersEachDelivery(t *testing.T) {
	h := func(_ context.Context, j *onceq.Job) error {
		switch string(j.Message.Body) {
		case "bad":
			return onceq.Permanent(rig.ErrBoom)
		case "later":
			return onceq.RetryAfter(time.Hour, rig.ErrBoom)
		case "panic":
			panic("boom")
		}
		return nil
	}
	rig.Bubble(t, h, func(r *rig.Rig) {
		r.Store.Occupy(r.T, "taken", 10*time.Minute, dedupe.Rerun)
		q := r.Store.Occupy(r.T, "done", time.Minute, dedupe.Rerun)
		r.Store.EndClaim(r.T, q, dedupe.Settlement{To: dedupe.Done, Result: []byte("42")})
		got := r.Process(r.Context(), rig.Deliveries("good", "bad", "later", "panic", "taken", "done")...)
		for i, want := range []onceq.Disposition{
			{Action: onceq.Ack, Claimed: dedupe.Won},
			{Action: onceq.Ack, Claimed: dedupe.Won},
			{Action: onceq.Nack, Claimed: dedupe.Won, Delay: time.Hour},
			{Action: onceq.Nack, Claimed: dedupe.Won, Delay: time.Second},
			{Action: onceq.Nack, Claimed: dedupe.InProgress},
			{Action: onceq.Ack, Claimed: dedupe.AlreadyDone},
		} {
			d := got[i]
			if d.Action != want.Action || d.Claimed != want.Claimed || want.Delay != 0 && d.Delay != want.Delay {
				t.Errorf("delivery %d: %v %v after %v, want %v %v after %v", i, d.Action, d.Claimed, d.Delay, want.Action, want.Claimed, want.Delay)
			}
		}
		if d := got[4]; d.Delay < 10*time.Minute {
			t.Errorf("the one in progress comes again after %v", d.Delay)
		}
		if d := got[5]; string(d.Report.Result) != "42" {
			t.Errorf("the result is %q", d.Report.Result)
		}
		r.Letter(onceq.ClassPermanent)
	}, rig.Steady)
}

func TestProcessRunsABatchAtOnce(t *testing.T) {
	h := func(context.Context, *onceq.Job) error { rig.Takes(time.Second); return nil }
	rig.Bubble(t, h, func(r *rig.Rig) {
		begin := time.Now()
		r.Process(r.Context(), rig.Deliveries(rig.Numbered("k", 50)...)...)
		if took := time.Since(begin); took != time.Second {
			t.Errorf("50 jobs of a second took %v", took)
		}
		if n := r.Store.Claims.Load(); n != 1 {
			t.Errorf("%d claim calls for one batch", n)
		}
	})
}

func TestProcessNothing(t *testing.T) {
	rig.Bubble(t, rig.Never(t), func(r *rig.Rig) {
		r.Process(r.Context())
		got := r.Process(r.Context(), onceq.Delivery{})
		if d := got[0]; d.Action != onceq.Leave {
			t.Errorf("a delivery without a message was answered %v", d.Action)
		}
	})
}

func TestProcessSameKeyTwice(t *testing.T) {
	h := func(context.Context, *onceq.Job) error { rig.Takes(time.Second); return nil }
	rig.Bubble(t, h, func(r *rig.Rig) {
		got := r.Process(r.Context(), rig.Deliveries("a", "a")...)
		if got[0].Action == got[1].Action || got[0].Action+got[1].Action != onceq.Ack+onceq.Nack {
			t.Errorf("answered %v and %v, want one ack and one nack", got[0].Action, got[1].Action)
		}
		if n := r.Seen.Started("a"); n != 1 {
			t.Errorf("%d runs", n)
		}
	})
}

func TestProcessGroups(t *testing.T) {
	var mu sync.Mutex
	var ran []string
	h := func(_ context.Context, j *onceq.Job) error {
		rig.Takes(time.Second)
		mu.Lock()
		defer mu.Unlock()
		ran = append(ran, string(j.Message.Body))
		if string(j.Message.Body) == "g2" {
			return rig.ErrBoom
		}
		return nil
	}
	rig.Bubble(t, h, func(r *rig.Rig) {
		got := r.Process(r.Context(), rig.Deliveries("g/g1", "g/g2", "g/g3", "g/g4", "h/h1", "h/h2", "x")...)
		for i, want := range []onceq.Action{onceq.Ack, onceq.Nack, onceq.Nack, onceq.Nack, onceq.Ack, onceq.Ack, onceq.Ack} {
			if got[i].Action != want {
				t.Errorf("delivery %d: %v, want %v", i, got[i].Action, want)
			}
		}
		if got[2].Delay != 0 || got[3].Delay != 0 {
			t.Errorf("the followers come again after %v and %v, want at once", got[2].Delay, got[3].Delay)
		}
		if slices.Contains(ran, "g3") || slices.Index(ran, "g1") > slices.Index(ran, "g2") || slices.Index(ran, "h1") > slices.Index(ran, "h2") {
			t.Errorf("the order was %q", ran)
		}
	})
}

func TestProcessEndsBeforeUntil(t *testing.T) {
	for _, c := range []struct {
		name string
		h    onceq.HandlerFunc
		want onceq.Action
		at   time.Duration // of the return, at most
	}{
		{"obeys", rig.WhenCut(rig.ErrBoom), onceq.Nack, 25 * time.Second},
		{"obeys, done", rig.WhenCut(nil), onceq.Ack, 25 * time.Second},
		{"is late, done", func(context.Context, *onceq.Job) error { rig.Takes(27 * time.Second); return nil }, onceq.Ack, 27 * time.Second},
		{"ignores", func(context.Context, *onceq.Job) error { rig.Takes(time.Hour); return nil }, onceq.Leave, 29 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			rig.Bubble(t, c.h, func(r *rig.Rig) {
				begin := time.Now()
				ds := rig.Deliveries("a")
				ds[0].Until = begin.Add(30 * time.Second)
				got := r.Process(r.Context(), ds...)
				if got[0].Action != c.want {
					t.Errorf("answered %v, want %v", got[0].Action, c.want)
				}
				if took := time.Since(begin); took > c.at {
					t.Errorf("returned after %v, want %v", took, c.at)
				}
				if rec := r.Record("a"); c.want == onceq.Nack && (rec.Status != dedupe.Released || rec.Attempt != 0) {
					t.Errorf("the record is %+v", rec)
				}
				if c.want == onceq.Leave {
					rig.Pass(2 * time.Hour)
					if rec := r.Record("a"); rec.Status != dedupe.Claimed {
						t.Errorf("the late return changed the record: %+v", rec)
					}
				}
			})
		})
	}
}

// Where a delivery ends at a known time, its claim's lease ends soon after that, so that the next
// delivery need not wait.
func TestProcessLeaseEndsSoonAfterUntil(t *testing.T) {
	h := func(context.Context, *onceq.Job) error { rig.Takes(time.Hour); return nil }
	rig.Bubble(t, h, func(r *rig.Rig) {
		ds := rig.Deliveries("a")
		ds[0].Until = time.Now().Add(20 * time.Second)
		r.Process(r.Context(), ds...)
		if left := time.Until(r.Record("a").LeaseUntil); left > 10*time.Second {
			t.Errorf("the abandoned lease ends in %v", left)
		}
		rig.Pass(time.Hour)
	}, rig.With(func(c *rig.Setup) { c.Lease = 10 * time.Minute }))
}

// The earliest Until counts for all deliveries. Where it is soon, half of the time to it is kept
// for recording the ends.
func TestProcessUntilOfSeveral(t *testing.T) {
	rig.Bubble(t, rig.WhenCut(rig.ErrBoom), func(r *rig.Rig) {
		begin := time.Now()
		ds := rig.Deliveries("a", "b", "c")
		for i, d := range []time.Duration{10 * time.Minute, 4 * time.Second, 0} {
			if d > 0 {
				ds[i].Until = begin.Add(d)
			}
		}
		for i, d := range r.Process(r.Context(), ds...) {
			if d.Action != onceq.Nack || d.Delay != 0 {
				t.Errorf("delivery %d: %v after %v", i, d.Action, d.Delay)
			}
		}
		if took := time.Since(begin); took != 2*time.Second {
			t.Errorf("returned after %v", took)
		}
	})
}

func TestProcessAfterUntil(t *testing.T) {
	rig.Bubble(t, rig.Returns(nil), func(r *rig.Rig) {
		ds := rig.Deliveries("a", "b")
		ds[0].Until = time.Now().Add(-time.Minute)
		begin := time.Now()
		r.Process(r.Context(), ds...)
		if took := time.Since(begin); took > time.Second {
			t.Errorf("returned after %v", took)
		}
	})
}

func TestProcessWhenItsContextEnds(t *testing.T) {
	rig.Bubble(t, rig.WhenCut(rig.ErrBoom), func(r *rig.Rig) {
		ctx, cancel := context.WithTimeout(r.Context(), 10*time.Second)
		defer cancel()
		got := r.Process(ctx, rig.Deliveries("g/a", "g/b")...)
		if got[0].Action != onceq.Nack || got[1].Action != onceq.Nack || got[1].Delay != 0 {
			t.Errorf("answered %+v", got)
		}
		if rec := r.Record("a"); rec.Status != dedupe.Released || rec.Attempt != 0 {
			t.Errorf("the record is %+v", rec)
		}
		r.WantStatus("b", 0)

		ended, end := context.WithCancel(r.Context())
		end()
		for _, d := range r.Process(ended, rig.Deliveries("c", "d")...) {
			if d.Action != onceq.Nack || d.Delay != 0 {
				t.Errorf("answered %v after %v", d.Action, d.Delay)
			}
		}
	})
}

func TestProcessKeepsItsClaims(t *testing.T) {
	h := func(context.Context, *onceq.Job) error { rig.Takes(10 * time.Minute); return nil }
	rig.Bubble(t, h, func(r *rig.Rig) {
		go func() {
			rig.Takes(5 * time.Minute)
			if got := r.Process(r.Context(), rig.Deliveries("a")...); got[0].Claimed != dedupe.InProgress {
				t.Errorf("meanwhile the claim said %v", got[0].Claimed)
			}
		}()
		if got := r.Process(r.Context(), rig.Deliveries("a")...); got[0].Action != onceq.Ack || got[0].Report.Beats < 40 {
			t.Errorf("answered %+v", got[0])
		}
	})
}

func TestProcessLosesItsClaim(t *testing.T) {
	rig.BothWays(t, func(ctx context.Context, _ *onceq.Job) error { <-ctx.Done(); return nil }, func(r *rig.Rig) {
		go func() {
			rig.Takes(15 * time.Second)
			r.Store.Steal(r.T, "a")
		}()
		if got := r.Process(r.Context(), rig.Deliveries("a")...); got[0].Action != onceq.Leave {
			t.Errorf("answered %+v", got[0])
		}
	})
}

func TestProcessTimeout(t *testing.T) {
	for _, st := range []dedupe.Store{nil, onceq.NoStore} {
		rig.BothWays(t, func(ctx context.Context, _ *onceq.Job) error {
			select {
			case <-ctx.Done():
				return context.Cause(ctx)
			case <-time.After(time.Hour):
				return nil
			}
		}, func(r *rig.Rig) {
			if st != nil {
				r.Cfg.Store = st
			}
			begin := time.Now()
			got := r.Process(r.Context(), rig.Deliveries("a")...)
			if got[0].Action != onceq.Nack || got[0].Report.ErrClass != onceq.ClassTimeout {
				t.Errorf("answered %+v", got[0])
			}
			if took := time.Since(begin); took != 5*time.Second {
				t.Errorf("took %v", took)
			}
		}, rig.With(func(c *rig.Setup) { c.Defaults.Timeout = 5 * time.Second }))
	}
}

func TestProcessDuringAnOutage(t *testing.T) {
	rig.BothWays(t, rig.Returns(nil), func(r *rig.Rig) {
		r.Store.Fails(rig.ErrBoom, onceqtest.Claim)
		ds := rig.Deliveries("a")
		ds[0].Until = time.Now().Add(time.Minute)
		if got := r.Process(r.Context(), ds...); got[0].Action != onceq.Nack || got[0].Delay != 0 {
			t.Errorf("answered %+v", got[0])
		}
		go func() {
			rig.Takes(10 * time.Second)
			r.Store.Heals()
		}()
		if got := r.Process(r.Context(), rig.Deliveries("a")...); got[0].Action != onceq.Ack {
			t.Errorf("answered %+v", got[0])
		}
	})
}

func TestProcessHandlersSeeTheContextsValues(t *testing.T) {
	type name struct{}
	synctest.Test(t, func(t *testing.T) {
		r := rig.New(t, func(ctx context.Context, _ *onceq.Job) error {
			if ctx.Value(name{}) != "value" {
				return errors.New("no value")
			}
			return nil
		})
		r.Process(context.WithValue(t.Context(), name{}, "value"), rig.Deliveries("a")...)
		r.WantStatus("a", dedupe.Done)
	})
}
