package onceq_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
)

// noDelays is a queue that gives a message back at once or not at all.
func noDelays(r *rig) {
	r.q.limits = func(l broker.Limits) broker.Limits {
		l.MaxNack = 0
		return l
	}
}

// fixed makes every backoff d.
func fixed(d time.Duration) option {
	return with(func(c *setup) { c.Defaults.Backoff = func(int, error) time.Duration { return d } })
}

// wantNoDelays checks that the queue was asked for none.
func (r *rig) wantNoDelays(body string) {
	r.Helper()
	for _, d := range r.q.delays(body) {
		if d != 0 {
			r.Errorf("%q was nacked for %v", body, d)
		}
	}
}

// clocked is a handler that notes when it began, and fails.
func clocked(at *[]time.Time) onceq.HandlerFunc {
	return func(context.Context, *onceq.Job) error {
		*at = append(*at, time.Now())
		return errBoom
	}
}

// The duplicate of a running job must not come again and again.
func TestDuplicateWhereNothingDelays(t *testing.T) {
	slow := func(context.Context, *onceq.Job) error {
		takes(10 * time.Minute)
		return nil
	}
	bubble(t, slow, func(r *rig) {
		r.send("k", "k")
		r.start()
		pass(10*time.Minute - time.Second)
		if n := r.q.received("k"); n > 20 {
			t.Errorf("%d receives in ten minutes", n)
		}
		if n := r.store.claims.Load(); n > 20 {
			t.Errorf("%d claims in ten minutes", n)
		}
		pass(15 * time.Minute)
		r.wantNoDelays("k")
		r.wantQueue(0)
		if n := r.seen.started("k"); n != 1 {
			t.Errorf("it ran %d times", n)
		}
	}, noDelays)
}

// A failing job's attempts are as far apart as its backoff, or, where the queue cannot extend, as
// its delivery lasts.
func TestBackoffWhereNothingDelays(t *testing.T) {
	for name, c := range map[string]struct {
		o           option
		least, most time.Duration
	}{
		"extends": {noDelays, 7 * time.Minute, 7*time.Minute + time.Second},
		"cannot": {func(r *rig) {
			r.q.limits = func(l broker.Limits) broker.Limits {
				l.MaxNack, l.Extends = 0, false
				return l
			}
		}, 24 * time.Second, 26 * time.Second},
		"total": {func(r *rig) {
			r.q.limits = func(l broker.Limits) broker.Limits {
				l.MaxNack, l.MaxTotal = 0, 2*time.Minute
				return l
			}
		}, 100 * time.Second, 2*time.Minute - time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			var at []time.Time
			bubble(t, clocked(&at), func(r *rig) {
				r.send("k")
				r.start()
				pass(time.Hour)
				r.letter(onceq.ClassError)
				r.wantQueue(0)
				r.wantNoDelays("k")
				if len(at) != 4 {
					t.Fatalf("it ran %d times", len(at))
				}
				for i := range at[1:] {
					if d := at[i+1].Sub(at[i]); d < c.least || d > c.most {
						t.Errorf("%v lie between two attempts, want %v to %v", d, c.least, c.most)
					}
				}
			}, c.o, fixed(7*time.Minute), most(4))
		})
	}
}

// What is held for its delay goes back at once when the worker stops or pauses, and the next worker
// has it.
func TestStopWhereNothingDelays(t *testing.T) {
	for name, stop := range map[string]func(r *rig){
		"drain": func(r *rig) {
			begin := time.Now()
			if err := r.stop(); err != nil || time.Since(begin) > time.Second {
				r.Errorf("Run: %v, after %v", err, time.Since(begin))
			}
		},
		"pause": func(r *rig) { r.w.Pause() },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, returns(errBoom), func(r *rig) {
				r.send(numbered("k", 5)...)
				r.start()
				pass(time.Minute)
				if d, _ := r.q.Depth(t.Context()); d.InFlight != 5 {
					t.Fatalf("%+v after a minute", d)
				}
				stop(r)
				pass(time.Second)
				if d, _ := r.q.Depth(t.Context()); d.Visible != 5 {
					t.Errorf("%+v after the stop", d)
				}
				for _, k := range numbered("k", 5) {
					r.wantOutcomes(k, "retried")
					r.wantNoDelays(k)
				}
				r.w.Resume()
			}, noDelays, fixed(20*time.Minute))
		})
	}
}

// A job that ends amid the drain, or the pause, does not wait either.
func TestEndAmidADrainWhereNothingDelays(t *testing.T) {
	fails := func(context.Context, *onceq.Job) error {
		takes(10 * time.Second)
		return errBoom
	}
	bubble(t, fails, func(r *rig) {
		r.send("k")
		r.start()
		pass(time.Second)
		begin := time.Now()
		if err := r.stop(); err != nil || time.Since(begin) > 10*time.Second {
			t.Errorf("Run: %v, after %v", err, time.Since(begin))
		}
		r.wantOutcomes("k", "retried")
	}, noDelays, fixed(20*time.Minute))
}

// Many messages that wait here must neither stop the receives nor fill the memory, nor come again
// at once.
func TestManyWhereNothingDelays(t *testing.T) {
	bubble(t, failsUnless("good"), func(r *rig) {
		bad := numbered("k", 300)
		r.send(bad...)
		r.send("good")
		r.start()
		for range 120 {
			pass(time.Second)
			if d, _ := r.q.Depth(t.Context()); d.InFlight > 2+32+2 {
				t.Fatalf("%d messages are held", d.InFlight)
			}
		}
		r.wantStatus("good", dedupe.Done)
		total := 0
		for _, k := range bad {
			total += r.q.received(k)
		}
		if total < len(bad) || total > 120*36 {
			t.Errorf("%d receives in two minutes", total)
		}
	}, noDelays, fixed(10*time.Minute), most(-1), single)
}

func failsUnless(key string) onceq.HandlerFunc {
	return func(_ context.Context, j *onceq.Job) error {
		if j.Key().Key == key {
			return nil
		}
		return errBoom
	}
}

// A message whose delivery is lost while it is held gives its place up.
func TestLostWhereNothingDelays(t *testing.T) {
	bubble(t, returns(errBoom), func(r *rig) {
		keys := numbered("k", 8)
		r.send(keys...)
		r.start()
		pass(time.Minute)
		for n := range 3 {
			for _, k := range keys {
				r.q.expire(t, k)
			}
			pass(5 * time.Minute)
			for _, k := range keys {
				if got := r.q.received(k); got != n+2 {
					t.Fatalf("%q was received %d times, want %d", k, got, n+2)
				}
			}
		}
	}, noDelays, fixed(time.Hour), most(-1), single)
}

// A message whose delivery was lost before gets no place to wait in, because it is delivered again
// whatever happens here.
func TestLostBeforeItsDelay(t *testing.T) {
	bubble(t, func(context.Context, *onceq.Job) error {
		takes(time.Minute)
		return errBoom
	}, func(r *rig) {
		r.send("k")
		r.start()
		pass(time.Second)
		r.q.expire(t, "k")
		pass(70 * time.Second) // the redelivery waits for the only slot
		defer pass(time.Minute)
		if n := len(r.q.delays("k")); r.q.received("k") != 2 || n != 1 {
			t.Errorf("%d receives, %d nacks", r.q.received("k"), n)
		}
	}, noDelays, fixed(time.Hour), most(-1), single)
}

// A message that has had its delay leaves its place to the next.
func TestOftenWhereNothingDelays(t *testing.T) {
	var at []time.Time
	bubble(t, clocked(&at), func(r *rig) {
		r.send("k")
		r.start()
		pass(100*time.Minute + time.Second)
		if len(at) != 101 {
			t.Errorf("it ran %d times in a hundred minutes", len(at))
		}
	}, noDelays, fixed(time.Minute), most(-1), single)
}

// single is a worker with few places.
func single(r *rig) {
	l := r.q.limits
	r.q.limits = func(b broker.Limits) broker.Limits {
		b.SettleBatch = 1
		return l(b)
	}
	r.cfg.Concurrency, r.cfg.Pollers = 1, 1
}

// What must not start yet waits here too.
func TestNotBeforeWhereNothingDelays(t *testing.T) {
	bubble(t, returns(nil), func(r *rig) {
		m := message("k")
		m.Meta.NotBefore = time.Now().Add(time.Hour)
		r.put(m)
		r.start()
		pass(time.Hour + time.Second)
		r.wantStatus("k", dedupe.Done)
		if n := r.q.received("k"); n > 2 {
			t.Errorf("%d receives", n)
		}
	}, noDelays)
}

// A group's head that waits here holds its group.
func TestGroupWhereNothingDelays(t *testing.T) {
	var order []string
	h := func(_ context.Context, j *onceq.Job) error {
		order = append(order, j.Key().Key)
		if j.Key().Key == "a" && j.Attempt < 3 {
			return errBoom
		}
		return nil
	}
	bubble(t, h, func(r *rig) {
		r.send("g/a", "g/b", "g/c")
		r.start()
		pass(30 * time.Minute)
		if got := fmt.Sprint(order); got != "[a a a b c]" {
			t.Errorf("they ran as %v", got)
		}
		r.wantQueue(0)
		if n := r.q.received("b"); n > 4 {
			t.Errorf("the follower was received %d times", n)
		}
	}, preset(membroker.SQSFIFO), noDelays, fixed(5*time.Minute))
}
