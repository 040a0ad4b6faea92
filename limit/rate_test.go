package limit_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/limit"
)

// TestRateNeverAbove: in no time of length per do more than n jobs of a key begin, whoever asks in
// which order, and a load without an end gets nearly all of n.
func TestRateNeverAbove(t *testing.T) {
	for _, c := range []struct {
		n   int
		per time.Duration
	}{{1, time.Second}, {3, time.Minute}, {10, time.Second}, {25, 7 * time.Second}, {100, time.Minute}, {1000, time.Second}} {
		synctest.Test(t, func(t *testing.T) {
			l := must(limit.Rate(c.n, c.per))(t)
			draw := rand.New(rand.NewPCG(uint64(c.n), 7))
			var begun []time.Time
			const windows = 12
			step := c.per / time.Duration(8*c.n)
			for range 8 * c.n * windows { // eight times as many as may
				wait, err := l.Reserve(t.Context(), limit.Ask{Key: "a", Again: draw.IntN(3) > 0})
				if err != nil {
					t.Fatal(err)
				}
				if wait < limit.MaxHold {
					begun = append(begun, time.Now().Add(wait))
				}
				pass(time.Duration(draw.Int64N(int64(2*step) + 1)))
			}
			slices.SortFunc(begun, time.Time.Compare)
			if got := windowed(begun, c.per); got > c.n {
				t.Errorf("%d in %v: %d began in one such time", c.n, c.per, got)
			}
			if least := c.n * windows * 8 / 10; len(begun) < least {
				t.Errorf("%d in %v: %d began in %d such times, want %d or more", c.n, c.per, len(begun), windows, least)
			}
		})
	}
}

// TestRateIdleTenants: beside a tenant with 10,000 waiting jobs, at one a second each, the first
// job of an idle tenant starts within a second. Each job is given back about once, and no attempt
// counts.
func TestRateIdleTenants(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		l := must(limit.Rate(1, time.Second))(t)
		stop := w.run(w.worker(onceq.Chain(w.begun(0), limit.Middleware(l, tenant)), nil))
		w.send("busy", 10_000)
		for i := range 4 {
			w.send(fmt.Sprint("idle-", i), 3)
		}
		sent := time.Now()
		pass(3 * time.Minute)
		for i := range 4 {
			at := w.begins(fmt.Sprint("idle-", i))
			if len(at) != 3 || at[0].Sub(sent) > time.Second || at[2].Sub(sent) > 4*time.Second {
				t.Errorf("the idle tenant %d began at %v", i, at)
			}
		}
		busy := w.begins("busy")
		if n := windowed(busy, time.Second); n != 1 || len(busy) < 170 {
			t.Errorf("the busy tenant began %d jobs in three minutes, %d of them in one second", len(busy), n)
		}
		if n := w.ends(onceq.OutcomePostponed); n > 10_200 {
			t.Errorf("%d times a job was given back, of 10,012", n)
		}
		if n := w.ends(onceq.OutcomeRetried); n != 0 {
			t.Errorf("%d attempts counted", n)
		}
		stop()
	})
}

// TestRateComesBack: all jobs of a tenant run in about the time that the limit says, also those
// that came later, and beside jobs that come for the first time.
func TestRateComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		l := must(limit.Rate(100, time.Minute))(t)
		stop := w.run(w.worker(onceq.Chain(w.begun(100*time.Millisecond), limit.Middleware(l, tenant)), nil))
		for range 10 {
			w.send("a", 100)
			pass(20 * time.Second)
		}
		pass(8*time.Minute + 30*time.Second) // 1,000 at 91 a minute
		at := w.begins("a")
		if n := windowed(at, time.Minute); n > 100 || len(at) != 1000 {
			t.Errorf("%d began, %d in one minute", len(at), n)
		}
		if n := w.ends(onceq.OutcomePostponed); n > 2000 {
			t.Errorf("%d times a job was given back, of 1,000", n)
		}
		stop()
	})
}

// TestRateWithoutStore: nobody remembers there that a job was given back, and all run nevertheless.
func TestRateWithoutStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		l := must(limit.Rate(60, time.Minute))(t)
		stop := w.run(w.worker(onceq.Chain(w.begun(0), limit.Middleware(l, nil)), func(c *setup) {
			c.Store, c.Defaults.MaxAttempts = onceq.NoStore, -1
		}))
		w.send("a", 100)
		pass(4 * time.Minute)
		at := w.begins("a")
		if n := windowed(at, time.Minute); n > 60 || len(at) != 100 {
			t.Errorf("%d began, %d in one minute", len(at), n)
		}
		stop()
	})
}

// TestRateSilent: those whom the limiter has told a time may be gone, as after a purge. Jobs that
// come for the first time do not wait for them.
func TestRateSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := must(limit.Rate(60, time.Minute))(t)
		for range 5000 {
			if _, err := l.Reserve(t.Context(), limit.Ask{}); err != nil {
				t.Fatal(err)
			}
		}
		pass(30 * time.Second)
		if wait, _ := l.Reserve(t.Context(), limit.Ask{}); wait != 0 {
			t.Errorf("nobody came for half a minute, and a job waits for %v", wait)
		}
	})
}

// TestRateInTurn: a job that comes for the first time does not take the start of one that waits for
// it, and the one that comes back gets it.
func TestRateInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := must(limit.Rate(1, time.Second))(t)
		ask := func(again bool) time.Duration {
			wait, err := l.Reserve(t.Context(), limit.Ask{Again: again})
			if err != nil {
				t.Fatal(err)
			}
			return wait
		}
		for n := range 5 {
			if wait := ask(false); wait != time.Duration(n)*time.Second {
				t.Errorf("the job %d waits for %v", n, wait)
			}
		}
		pass(time.Second)
		if wait := ask(false); wait != 4*time.Second {
			t.Errorf("a job that came later waits for %v", wait)
		}
		if wait := ask(true); wait != 0 {
			t.Errorf("the job whose time it is waits for %v", wait)
		}
	})
}

// TestShortTimeout: a job whose Timeout is shorter than its wait takes no start with it when it is
// cut off. It is postponed, and a backlog runs as fast as the limit allows.
func TestShortTimeout(t *testing.T) {
	for _, limiter := range []func(w *world) limit.Limiter{
		func(w *world) limit.Limiter { return must(limit.Rate(5, 1800*time.Millisecond))(w.T) },
		func(w *world) limit.Limiter { return must(limit.Shared(w.store, "api", 5, 1800*time.Millisecond))(w.T) },
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			h := onceq.Chain(w.begun(10*time.Millisecond), limit.Middleware(limiter(w), nil))
			stop := w.run(w.worker(h, func(c *setup) { c.Defaults.Timeout = 300 * time.Millisecond }))
			w.send("a", 100)
			pass(time.Minute)
			if n, back := len(w.begins("a")), w.ends(onceq.OutcomeHandedBack); n < 80 || back > 0 {
				t.Errorf("%d of 100 jobs began in the time of 166, and %d were cut off", n, back)
			}
			stop()
		})
	}
}

// vast is a store that wins each claim, and keeps nothing.
type vast struct{ dedupe.Store }

func (vast) Get(_ context.Context, ks []dedupe.Key) ([]*dedupe.Record, error) {
	return make([]*dedupe.Record, len(ks)), nil
}

func (vast) Claim(_ context.Context, qs []dedupe.ClaimRequest) ([]dedupe.Claim, error) {
	cs := make([]dedupe.Claim, len(qs))
	for i := range cs {
		cs[i] = dedupe.Claim{Outcome: dedupe.Won}
	}
	return cs, nil
}

func (vast) Settle(_ context.Context, ss []dedupe.Settlement) ([]dedupe.Settled, error) {
	return make([]dedupe.Settled, len(ss)), nil
}

// TestHostileKeys: senders who make up keys cannot make a limiter grow without an end. Beyond the
// bound nothing begins that has no key of its own, and there is room again when keys are idle.
func TestHostileKeys(t *testing.T) {
	for name, most := range map[string]int{"rate": limit.MaxKeys, "shared": 1000} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := must(limit.Rate(1, time.Minute))(t)
				if name == "shared" {
					l = must(limit.Shared(newWorld(t).store, "api", 1, time.Minute))(t)
					limit.SetMost(l, most)
				}
				ask := func(i int) time.Duration {
					wait, err := l.Reserve(t.Context(), limit.Ask{Key: fmt.Sprint("key-", i)})
					if err != nil {
						t.Fatal(err)
					}
					return wait
				}
				for i := range most {
					if ask(i) != 0 {
						t.Fatal("a new key waits")
					}
				}
				for i := range 1000 {
					if wait := ask(most + i); wait < limit.MaxHold {
						t.Fatalf("beyond the bound a job begins after %v, without a limit", wait)
					}
				}
				if wait := ask(7); wait < 59*time.Second {
					t.Errorf("a key that is known waits for %v", wait)
				}
				pass(3 * time.Minute)
				if wait := ask(most + 1); wait != 0 {
					t.Errorf("there is room again, and a job waits for %v", wait)
				}
			})
		})
	}
}

// TestKeyMemory: 10,000 keys take at most 200 bytes each, however long they are.
func TestKeyMemory(t *testing.T) {
	for name, l := range map[string]limit.Limiter{
		"rate":   must(limit.Rate(1, time.Hour))(t),
		"shared": must(limit.Shared(vast{newWorld(t).store}, "api", 1, time.Hour))(t),
	} {
		long := make([]byte, 500)
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		const keys = 10_000
		for i := range keys {
			if _, err := l.Reserve(t.Context(), limit.Ask{Key: fmt.Sprint(i, string(long))}); err != nil {
				t.Fatal(err)
			}
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		each := (int64(after.HeapAlloc) - int64(before.HeapAlloc)) / keys
		if t.Logf("%s: %d bytes", name, each); each > 200 {
			t.Errorf("%s: a key takes %d bytes", name, each)
		}
		runtime.KeepAlive(l)
	}
}
