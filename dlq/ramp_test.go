package dlq_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dlq"
	"github.com/onceq/onceq/internal/faulty"
	"github.com/onceq/onceq/onceqtest"
)

// batches notes how a ramp goes.
type batches struct {
	all   []dlq.Progress
	began time.Time
	at    []time.Duration // when each letter was sent
}

func (b *batches) into(o dlq.ReplayOptions) dlq.ReplayOptions {
	b.began = time.Now()
	o.EachBatch = func(one dlq.Progress) { b.all = append(b.all, one) }
	o.Each = func(s dlq.Step) {
		if s.Result == dlq.Replayed {
			b.at = append(b.at, time.Since(b.began))
		}
	}
	return o
}

func (b *batches) sizes() (ns []int) {
	for _, one := range b.all {
		ns = append(ns, one.Sent)
	}
	return ns
}

// many puts n letters at once.
func (r *rig) many(n int) {
	r.t.Helper()
	var ls []broker.Outgoing
	for i := range n {
		ls = append(ls, letterOf(fmt.Sprint("k-", i), uint64(i+1)))
	}
	r.put(ls...)
}

// Batches grow, each is watched, and the last one is not, because nothing waits for it.
func TestRamp(t *testing.T) {
	onEach(t, func(t *testing.T, r *rig) {
		for _, c := range []struct {
			canary, n int
			want      []int
		}{
			{0, 9, nil},
			{0, 60, []int{10, 50}},
			{0, 320, []int{10, 50, 250}},
			{5, 70, []int{5, 10, 50}},
			{1, 12, []int{1, 10}},
			{10, 70, []int{10, 50}},
			{20, 75, []int{20, 50}},
			{300, 310, []int{300}},
		} {
			r.many(c.n)
			var b batches
			rep := r.mustReplay(b.into(dlq.ReplayOptions{Canary: c.canary, Ramp: true, CanaryWait: 20 * time.Second}))
			what := fmt.Sprintf("%d letters after %d canaries", c.n, c.canary)
			equal(t, what, b.sizes(), c.want)
			if rep.Replayed != c.n || len(b.at) != c.n {
				t.Fatalf("%s: %v", what, rep)
			}
			total := 0
			for i, one := range b.all {
				total += one.Sent
				if one.Number != i+1 || one.Total != total || one.Watched < 20*time.Second || one.Watched > 21*time.Second || len(one.Back) > 0 {
					t.Errorf("%s: %+v", what, one)
				}
				if total < c.n && b.at[total]-b.at[total-1] < 20*time.Second {
					t.Errorf("%s: the batch after %d letters came %v later", what, total, b.at[total]-b.at[total-1])
				}
			}
			r.drain(r.queue)
			pass(10 * time.Minute)
		}
	})
}

// The first letter that comes back ends the ramp: while a batch is watched, amid a batch, and also
// after the last one, because it is not mended then.
func TestRampStops(t *testing.T) {
	onEach(t, func(t *testing.T, r *rig) {
		for _, c := range []struct {
			name         string
			after        int           // letters sent
			in           time.Duration // and so much later a letter of the first is back
			atMost, sent int
		}{
			{"in the first watch", 10, 5 * time.Second, 10, 10},
			{"in the second watch", 60, 5 * time.Second, 60, 60},
			{"amid the second batch", 30, 0, 55, 30},
		} {
			r.many(100)
			n := 0
			o := dlq.ReplayOptions{Ramp: true, CanaryWait: 20 * time.Second, PerSecond: 20}
			o.Each = func(s dlq.Step) {
				if s.Result != dlq.Replayed {
					return
				}
				if n++; n == c.after {
					time.AfterFunc(c.in, func() { r.put(letterOf("k-0", 1000)) })
				}
			}
			rep, err := r.replay(o)
			var back *dlq.CanaryError
			if !errors.As(err, &back) || len(back.Back) != 1 || back.Back[0].Key != "k-0" || back.Sent != rep.Replayed || rep.Replayed < c.sent || rep.Replayed > c.atMost {
				t.Errorf("%s: %v, %v", c.name, err, rep)
			}
			r.depth(r.dead, "dead-letter queue", int64(101-rep.Replayed))
			r.drain(r.dead)
			r.drain(r.queue)
			pass(10 * time.Minute)
		}
	})
}

// Whoever knows that the jobs are done ends a watch early; a job that is edited to another key is
// shown without a record.
func TestRampIsToldThatJobsAreDone(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		for i := range 30 {
			r.put(letterOf(fmt.Sprint("k-", i), uint64(i+1), record("payments:charge")))
		}
		var b batches
		asked, none := 0, 0
		rep := r.mustReplay(b.into(dlq.ReplayOptions{
			Ramp: true, Canary: 3,
			Edit: func(o *broker.Outgoing) error {
				if o.Meta.Key == "k-1" {
					o.Meta.Key = "another"
				}
				return nil
			},
			Done: func(_ context.Context, batch []dlq.Ref) (dlq.Became, error) {
				for _, ref := range batch {
					if ref.Record == (dlq.RecordKey{}) {
						none++
					} else if (ref.Record != dlq.RecordKey{Scope: "payments:charge", Key: ref.Key}) {
						t.Errorf("%+v", ref)
					}
				}
				if asked++; asked%4 != 0 {
					return dlq.Became{Done: len(batch) - 1, Running: 1}, nil
				}
				return dlq.Became{Done: len(batch)}, nil
			},
		}))
		equal(t, "batches", b.sizes(), []int{3, 10})
		if rep.Replayed != 30 || asked != 8 || none != 4 {
			t.Errorf("asked %d times, %d without a record; %v", asked, none, rep)
		}
		for _, one := range b.all {
			if one.Done != one.Sent || one.Watched > 5*time.Second {
				t.Errorf("%+v", one)
			}
		}
	})
	in(t, func(t *testing.T, r *rig) {
		r.many(30)
		rep, err := r.replay(dlq.ReplayOptions{Ramp: true, Done: func(context.Context, []dlq.Ref) (dlq.Became, error) { return dlq.Became{}, errFault }})
		if !errors.Is(err, errFault) || rep.Replayed != 10 || !strings.Contains(err.Error(), "ReplayOptions.Done") {
			t.Errorf("%v, %v", err, rep)
		}
		r.depths(20, 10)
	})
}

// A ramp keeps to the rate, to a plan and to Max.
func TestRampOfAPlan(t *testing.T) {
	onEach(t, func(t *testing.T, r *rig) {
		r.dlq = open(t, r.dead, named)
		r.many(40)
		p := r.plan(dlq.ReplayOptions{Filter: dlq.Filter{Match: func(m *broker.Message) bool { return m.Meta.Key != "k-7" }}})
		var b batches
		rep := r.mustReplay(b.into(dlq.ReplayOptions{Plan: p, Ramp: true, Canary: 2, CanaryWait: 10 * time.Second, PerSecond: 10}))
		equal(t, "batches", b.sizes(), []int{2, 10})
		if rep.Replayed != 39 || b.at[38] < 20*time.Second+3*time.Second {
			t.Errorf("%v, %v", b.at, rep)
		}
		r.depths(1, 39)
		r.drain(r.queue)
		pass(10 * time.Minute)

		r.many(40)
		b = batches{}
		rep = r.mustReplay(b.into(dlq.ReplayOptions{Filter: dlq.Filter{Max: 10}, Ramp: true}))
		if rep.Replayed != 10 || len(b.all) > 0 {
			t.Errorf("%v, %v", rep, b.all)
		}
	})
}

// When its context ends, at whatever call, a ramp of a plan hands back what it holds and tells what
// it has done.
func TestRampIsStopped(t *testing.T) {
	onEach(t, func(t *testing.T, r *rig) {
		r.dlq = open(t, r.dead, named)
		over := false
		for at := 1; !over; at++ {
			r.many(14)
			p := r.plan(dlq.ReplayOptions{})
			why := errors.New("why")
			ctx, cancel := context.WithCancelCause(context.Background())
			var n atomic.Int64
			count := func(context.Context, onceqtest.Call) faulty.Faults {
				if n.Add(1) == int64(at) {
					cancel(why)
				}
				return nil
			}
			r.dead.SetFault(count)
			r.queue.SetFault(count)
			rep, err := r.dlq.Replay(ctx, dlq.ReplayOptions{Plan: p, To: r.queue, Ramp: true, Canary: 2, CanaryWait: 10 * time.Second})
			r.dead.SetFault(nil)
			r.queue.SetFault(nil)
			if over = err == nil; !over && !errors.Is(err, why) {
				t.Errorf("at call %d: %v", at, err)
			}
			if rep.Unacked+len(rep.Failed) > 0 || over != (rep.Replayed == 14) {
				t.Errorf("at call %d: %v, %v", at, err, rep)
			}
			r.depths(int64(14-rep.Replayed), int64(rep.Replayed))
			sent := keys(r.drain(r.queue))
			left := keys(r.drain(r.dead))
			if all := slices.Sorted(slices.Values(append(sent, left...))); len(slices.Compact(all)) != 14 {
				t.Errorf("at call %d: sent %v, left %v", at, sent, left)
			}
			pass(10 * time.Minute)
			if at > 200 {
				t.Fatal("it never ends")
			}
		}
	})
}

func TestRampOptions(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.putN(3)
		for _, c := range []struct {
			o    dlq.ReplayOptions
			want string
		}{
			{dlq.ReplayOptions{CanaryWait: time.Second}, "ReplayOptions.CanaryWait: is 1s, but ReplayOptions.Canary is 0, and Ramp is not set"},
			{dlq.ReplayOptions{CanaryWait: 1, Ramp: true}, "ReplayOptions.CanaryWait: 1ns is below 1ms; is its unit missing?"},
			{dlq.ReplayOptions{Canary: -1, Ramp: true}, "ReplayOptions.Canary: -1"},
			{dlq.ReplayOptions{Canary: 3, Ramp: true, Filter: dlq.Filter{Max: 3}}, "ReplayOptions.Canary: 3 leaves nothing"},
		} {
			if _, err := r.replay(c.o); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %s", err, c.want)
			}
		}
		// A dry run neither watches nor waits.
		began := time.Now()
		r.report(r.mustReplay(dlq.ReplayOptions{Ramp: true, Canary: 1, DryRun: true}), 3, 3)
		if time.Since(began) > 10*time.Second {
			t.Errorf("a dry run took %v", time.Since(began))
		}
		r.depths(3, 0)
	})
}
