package onceq_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/onceqtest"
)

// processed are the dispositions of a Process call, by index.
type processed struct {
	mu sync.Mutex
	ds map[int]onceq.Disposition
}

// process runs the deliveries and checks that each was answered once.
func (r *rig) process(ctx context.Context, ds ...onceq.Delivery) map[int]onceq.Disposition {
	r.Helper()
	b, err := r.cfg.batches()
	if err != nil {
		r.Fatal(err)
	}
	got := processed{ds: make(map[int]onceq.Disposition)}
	b.Process(ctx, ds, nil, func(i int, d onceq.Disposition) {
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

// deliveries are one for each "group/key" or "key".
func deliveries(texts ...string) []onceq.Delivery {
	ds := make([]onceq.Delivery, len(texts))
	for i, s := range texts {
		group, key := "", s
		for j := range s {
			if s[j] == '/' {
				group, key = s[:j], s[j+1:]
			}
		}
		ds[i].Message = &broker.Message{
			ID: fmt.Sprintf("m%d", i), Body: []byte(key), Group: group, Meta: &broker.Meta{ID: "id-" + key, Key: key},
			Receipt: broker.Receipt(fmt.Sprint(i)), Published: time.Now(),
		}
	}
	return ds
}

func TestProcessAnswersEachDelivery(t *testing.T) {
	h := func(_ context.Context, j *onceq.Job) error {
		switch string(j.Message.Body) {
		case "bad":
			return onceq.Permanent(errBoom)
		case "later":
			return onceq.RetryAfter(time.Hour, errBoom)
		case "panic":
			panic("boom")
		}
		return nil
	}
	bubble(t, h, func(r *rig) {
		r.store.occupy(r.T, "taken", 10*time.Minute, dedupe.Rerun)
		q := r.store.occupy(r.T, "done", time.Minute, dedupe.Rerun)
		r.store.settle(r.T, q, dedupe.Settlement{To: dedupe.Done, Result: []byte("42")})
		got := r.process(r.Context(), deliveries("good", "bad", "later", "panic", "taken", "done")...)
		for i, want := range []onceq.Disposition{
			{Action: onceq.Ack, Outcome: dedupe.Won},
			{Action: onceq.Ack, Outcome: dedupe.Won},
			{Action: onceq.Nack, Outcome: dedupe.Won, Delay: time.Hour},
			{Action: onceq.Nack, Outcome: dedupe.Won, Delay: time.Second},
			{Action: onceq.Nack, Outcome: dedupe.InProgress},
			{Action: onceq.Ack, Outcome: dedupe.AlreadyDone},
		} {
			d := got[i]
			if d.Action != want.Action || d.Outcome != want.Outcome || want.Delay != 0 && d.Delay != want.Delay {
				t.Errorf("delivery %d: %v %v after %v, want %v %v after %v", i, d.Action, d.Outcome, d.Delay, want.Action, want.Outcome, want.Delay)
			}
		}
		if d := got[4]; d.Delay < 10*time.Minute {
			t.Errorf("the one in progress comes again after %v", d.Delay)
		}
		if d := got[5]; string(d.Record.Result) != "42" {
			t.Errorf("the result is %q", d.Record.Result)
		}
		r.letter(onceq.ClassPermanent)
	}, steady)
}

func TestProcessRunsABatchAtOnce(t *testing.T) {
	h := func(context.Context, *onceq.Job) error { takes(time.Second); return nil }
	bubble(t, h, func(r *rig) {
		begin := time.Now()
		r.process(r.Context(), deliveries(numbered("k", 50)...)...)
		if took := time.Since(begin); took != time.Second {
			t.Errorf("50 jobs of a second took %v", took)
		}
		if n := r.store.claims.Load(); n != 1 {
			t.Errorf("%d claim calls for one batch", n)
		}
	})
}

func TestProcessNothing(t *testing.T) {
	bubble(t, never(t), func(r *rig) {
		r.process(r.Context())
		got := r.process(r.Context(), onceq.Delivery{})
		if d := got[0]; d.Action != onceq.Leave {
			t.Errorf("a delivery without a message was answered %v", d.Action)
		}
	})
}

func TestProcessSameKeyTwice(t *testing.T) {
	h := func(context.Context, *onceq.Job) error { takes(time.Second); return nil }
	bubble(t, h, func(r *rig) {
		got := r.process(r.Context(), deliveries("a", "a")...)
		if got[0].Action == got[1].Action || got[0].Action+got[1].Action != onceq.Ack+onceq.Nack {
			t.Errorf("answered %v and %v, want one ack and one nack", got[0].Action, got[1].Action)
		}
		if n := r.seen.started("a"); n != 1 {
			t.Errorf("%d runs", n)
		}
	})
}

func TestProcessGroups(t *testing.T) {
	var mu sync.Mutex
	var ran []string
	h := func(_ context.Context, j *onceq.Job) error {
		takes(time.Second)
		mu.Lock()
		defer mu.Unlock()
		ran = append(ran, string(j.Message.Body))
		if string(j.Message.Body) == "g2" {
			return errBoom
		}
		return nil
	}
	bubble(t, h, func(r *rig) {
		got := r.process(r.Context(), deliveries("g/g1", "g/g2", "g/g3", "g/g4", "h/h1", "h/h2", "x")...)
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
		{"obeys", whenCut(errBoom), onceq.Nack, 25 * time.Second},
		{"obeys, done", whenCut(nil), onceq.Ack, 25 * time.Second},
		{"is late, done", func(context.Context, *onceq.Job) error { takes(27 * time.Second); return nil }, onceq.Ack, 27 * time.Second},
		{"ignores", func(context.Context, *onceq.Job) error { takes(time.Hour); return nil }, onceq.Leave, 29 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, c.h, func(r *rig) {
				begin := time.Now()
				ds := deliveries("a")
				ds[0].Until = begin.Add(30 * time.Second)
				got := r.process(r.Context(), ds...)
				if got[0].Action != c.want {
					t.Errorf("answered %v, want %v", got[0].Action, c.want)
				}
				if took := time.Since(begin); took > c.at {
					t.Errorf("returned after %v, want %v", took, c.at)
				}
				if rec := r.record("a"); c.want == onceq.Nack && (rec.Status != dedupe.Released || rec.Attempt != 0) {
					t.Errorf("the record is %+v", rec)
				}
				if c.want == onceq.Leave {
					pass(2 * time.Hour)
					if rec := r.record("a"); rec.Status != dedupe.Claimed {
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
	h := func(context.Context, *onceq.Job) error { takes(time.Hour); return nil }
	bubble(t, h, func(r *rig) {
		ds := deliveries("a")
		ds[0].Until = time.Now().Add(20 * time.Second)
		r.process(r.Context(), ds...)
		if left := time.Until(r.record("a").LeaseUntil); left > 10*time.Second {
			t.Errorf("the abandoned lease ends in %v", left)
		}
		pass(time.Hour)
	}, with(func(c *setup) { c.Lease = 10 * time.Minute }))
}

// The earliest Until counts for all deliveries. Where it is soon, half of the time to it is kept
// for recording the ends.
func TestProcessUntilOfSeveral(t *testing.T) {
	bubble(t, whenCut(errBoom), func(r *rig) {
		begin := time.Now()
		ds := deliveries("a", "b", "c")
		for i, d := range []time.Duration{10 * time.Minute, 4 * time.Second, 0} {
			if d > 0 {
				ds[i].Until = begin.Add(d)
			}
		}
		for i, d := range r.process(r.Context(), ds...) {
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
	bubble(t, returns(nil), func(r *rig) {
		ds := deliveries("a", "b")
		ds[0].Until = time.Now().Add(-time.Minute)
		begin := time.Now()
		r.process(r.Context(), ds...)
		if took := time.Since(begin); took > time.Second {
			t.Errorf("returned after %v", took)
		}
	})
}

func TestProcessWhenItsContextEnds(t *testing.T) {
	bubble(t, whenCut(errBoom), func(r *rig) {
		ctx, cancel := context.WithTimeout(r.Context(), 10*time.Second)
		defer cancel()
		got := r.process(ctx, deliveries("g/a", "g/b")...)
		if got[0].Action != onceq.Nack || got[1].Action != onceq.Nack || got[1].Delay != 0 {
			t.Errorf("answered %+v", got)
		}
		if rec := r.record("a"); rec.Status != dedupe.Released || rec.Attempt != 0 {
			t.Errorf("the record is %+v", rec)
		}
		r.wantStatus("b", 0)

		ended, end := context.WithCancel(r.Context())
		end()
		for _, d := range r.process(ended, deliveries("c", "d")...) {
			if d.Action != onceq.Nack || d.Delay != 0 {
				t.Errorf("answered %v after %v", d.Action, d.Delay)
			}
		}
	})
}

func TestProcessKeepsItsClaims(t *testing.T) {
	h := func(context.Context, *onceq.Job) error { takes(10 * time.Minute); return nil }
	bubble(t, h, func(r *rig) {
		go func() {
			takes(5 * time.Minute)
			if got := r.process(r.Context(), deliveries("a")...); got[0].Outcome != dedupe.InProgress {
				t.Errorf("meanwhile the claim said %v", got[0].Outcome)
			}
		}()
		if got := r.process(r.Context(), deliveries("a")...); got[0].Action != onceq.Ack || got[0].Record.Beats < 40 {
			t.Errorf("answered %+v", got[0])
		}
	})
}

func TestProcessLosesItsClaim(t *testing.T) {
	bubble(t, func(ctx context.Context, _ *onceq.Job) error { <-ctx.Done(); return nil }, func(r *rig) {
		go func() {
			takes(15 * time.Second)
			r.store.steal(r.T, "a")
		}()
		if got := r.process(r.Context(), deliveries("a")...); got[0].Action != onceq.Leave {
			t.Errorf("answered %+v", got[0])
		}
	})
}

func TestProcessTimeout(t *testing.T) {
	for _, st := range []dedupe.Store{nil, onceq.NoStore} {
		bubble(t, func(ctx context.Context, _ *onceq.Job) error {
			select {
			case <-ctx.Done():
				return context.Cause(ctx)
			case <-time.After(time.Hour):
				return nil
			}
		}, func(r *rig) {
			if st != nil {
				r.cfg.Store = st
			}
			begin := time.Now()
			got := r.process(r.Context(), deliveries("a")...)
			if got[0].Action != onceq.Nack || got[0].Record.ErrClass != onceq.ClassTimeout {
				t.Errorf("answered %+v", got[0])
			}
			if took := time.Since(begin); took != 5*time.Second {
				t.Errorf("took %v", took)
			}
		}, with(func(c *setup) { c.Defaults.Timeout = 5 * time.Second }))
	}
}

func TestProcessDuringAnOutage(t *testing.T) {
	bubble(t, returns(nil), func(r *rig) {
		r.store.fails(errBoom, onceqtest.Claim)
		ds := deliveries("a")
		ds[0].Until = time.Now().Add(time.Minute)
		if got := r.process(r.Context(), ds...); got[0].Action != onceq.Nack || got[0].Delay != 0 {
			t.Errorf("answered %+v", got[0])
		}
		go func() {
			takes(10 * time.Second)
			r.store.heals()
		}()
		if got := r.process(r.Context(), deliveries("a")...); got[0].Action != onceq.Ack {
			t.Errorf("answered %+v", got[0])
		}
	})
}

func TestProcessHandlersSeeTheContextsValues(t *testing.T) {
	type name struct{}
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(ctx context.Context, _ *onceq.Job) error {
			if ctx.Value(name{}) != "value" {
				return errors.New("no value")
			}
			return nil
		})
		r.process(context.WithValue(t.Context(), name{}, "value"), deliveries("a")...)
		r.wantStatus("a", dedupe.Done)
	})
}
