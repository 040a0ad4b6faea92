package limit_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/limit"
)

// frail is a store of one process: it may be away, and it counts its writes.
type frail struct {
	dedupe.Store
	away, hangs, panics atomic.Bool
	claims, settles     atomic.Int64
	reads               atomic.Int64
}

var errAway = errors.New("the store is away")

func (s *frail) fails(ctx context.Context) error {
	switch {
	case s.panics.Load():
		panic("a bug")
	case s.hangs.Load():
		<-ctx.Done()
		return ctx.Err()
	case s.away.Load():
		return errAway
	}
	return nil
}

func (s *frail) Claim(ctx context.Context, qs []dedupe.ClaimRequest) ([]dedupe.Claim, error) {
	if err := s.fails(ctx); err != nil {
		return nil, err
	}
	cs, err := s.Store.Claim(ctx, qs)
	for i := range cs {
		if cs[i].Outcome == dedupe.Won {
			s.claims.Add(1)
		}
	}
	return cs, err
}

func (s *frail) Renew(ctx context.Context, rs []dedupe.Renewal) ([]dedupe.Renewed, error) {
	if err := s.fails(ctx); err != nil {
		return nil, err
	}
	return s.Store.Renew(ctx, rs)
}

func (s *frail) Settle(ctx context.Context, ss []dedupe.Settlement) ([]dedupe.Settled, error) {
	if err := s.fails(ctx); err != nil {
		return nil, err
	}
	s.settles.Add(int64(len(ss)))
	return s.Store.Settle(ctx, ss)
}

func (s *frail) Get(ctx context.Context, ks []dedupe.Key) ([]*dedupe.Record, error) {
	if err := s.fails(ctx); err != nil {
		return nil, err
	}
	s.reads.Add(1)
	return s.Store.Get(ctx, ks)
}

// TestSharedNeverAbove: four processes that ask as fast as they can, and whose stores fail at
// random before or after a call, begin at most n in any time of length per. They write at most 40
// times in it, and get most of n. A process that is killed is one that forgets all.
func TestSharedNeverAbove(t *testing.T) {
	for _, c := range []struct {
		n   int
		per time.Duration
	}{{1, 10 * time.Second}, {7, 10 * time.Second}, {100, time.Minute}, {1000, 20 * time.Second}} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			const processes, windows = 4, 10
			var all sync.WaitGroup
			var settles atomic.Int64
			end := time.Now().Add(windows * c.per)
			for p := range processes {
				all.Go(func() {
					draw := rand.New(rand.NewPCG(uint64(p), uint64(c.n)))
					for time.Now().Before(end) { // the life of a process
						s := &frail{Store: w.store}
						l := must(limit.Shared(s, "api", c.n, c.per))(t)
						for died := time.Now().Add(time.Duration(draw.Int64N(int64(4 * c.per)))); time.Now().Before(died) && time.Now().Before(end); {
							s.away.Store(draw.IntN(40) == 0)
							wait, err := l.Reserve(t.Context(), limit.Ask{Key: "a", Again: draw.IntN(2) == 0})
							if err == nil && wait < limit.MaxHold {
								pass(wait)
								w.mu.Lock()
								w.starts["a"] = append(w.starts["a"], time.Now())
								w.mu.Unlock()
							}
							pass(time.Duration(1 + draw.Int64N(int64(c.per)/int64(c.n))))
						}
						settles.Add(s.settles.Load())
					}
				})
			}
			all.Wait()
			at := w.begins("a")
			if most := windowed(at, c.per); most > c.n {
				t.Errorf("%d in %v: %d began in one such time", c.n, c.per, most)
			}
			if least := c.n * windows / 2; len(at) < least {
				t.Errorf("%d in %v: %d began in %d such times, want %d or more", c.n, c.per, len(at), windows, least)
			}
			if most := int64(20 * windows); settles.Load() > most {
				t.Errorf("%d blocks were taken in %d windows", settles.Load(), windows)
			}
			pass(time.Minute)
		})
	}
}

// TestSharedFleet: four workers with one tenant's backlog run what the limit allows, each job is
// given back a few times at most, and an idle tenant starts at once.
func TestSharedFleet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var workers []*onceq.Worker
		for range 4 {
			l := must(limit.Shared(w.store, "api", 60, time.Minute))(t)
			workers = append(workers, w.worker(onceq.Chain(w.begun(0), limit.Middleware(l, tenant)), nil))
		}
		stop := w.run(workers...)
		w.send("busy", 1000)
		pass(time.Second)
		w.send("idle", 1)
		sent := time.Now()
		pass(15 * time.Minute)
		if at := w.begins("idle"); len(at) != 1 || at[0].Sub(sent) > time.Second {
			t.Errorf("the idle tenant began at %v, sent at %v", at, sent)
		}
		at := w.begins("busy")
		if most := windowed(at, time.Minute); most > 60 || len(at) < 600 {
			t.Errorf("%d began in 15 minutes, %d in one", len(at), most)
		}
		if n := w.ends(onceq.OutcomePostponed); n > 5000 {
			t.Errorf("%d times a job was given back, of 1,000", n)
		}
		stop()
	})
}

// TestSharedStoreAway: while the store is away, what was taken goes on, and nothing beyond it
// begins. Jobs are given back, with the reason, and no attempt counts. The same where the store
// hangs, or panics.
func TestSharedStoreAway(t *testing.T) {
	for _, how := range []func(*frail) *atomic.Bool{
		func(s *frail) *atomic.Bool { return &s.away }, func(s *frail) *atomic.Bool { return &s.hangs }, func(s *frail) *atomic.Bool { return &s.panics },
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			s := &frail{Store: w.store}
			l := must(limit.Shared(s, "api", 100, 10*time.Minute))(t) // blocks of five, for a minute
			stop := w.run(w.worker(onceq.Chain(w.begun(0), limit.Middleware(l, nil)), func(c *setup) { c.Defaults.MaxAttempts = 3 }))
			w.send("a", 1)
			pass(time.Second)
			how(s).Store(true)
			w.send("a", 20)
			pass(2 * time.Minute)
			if n := len(w.begins("a")); n != 5 {
				t.Errorf("%d jobs began, of a block of 5", n)
			}
			how(s).Store(false)
			pass(10 * time.Minute)
			if n, failed := len(w.begins("a")), w.ends(onceq.OutcomeFailed)+w.ends(onceq.OutcomeRetried); n != 21 || failed > 0 {
				t.Errorf("%d jobs began, and %d attempts failed", n, failed)
			}
			stop()
		})
	}
}

// TestSharedTakerDies: a block whose taker died between its claim and its settlement is another's
// once the claim's lease is over, also where the asker's clock is ten minutes behind.
func TestSharedTakerDies(t *testing.T) {
	for _, behind := range []time.Duration{0, 10 * time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			var claimed atomic.Int64
			dies := &mute{Store: w.store, settle: func() error { claimed.Add(1); return errAway }}
			dead := must(limit.Shared(dies, "api", 2, time.Minute))(t)
			for _, next := range []time.Duration{time.Second / 2, 5 * time.Second, 5 * time.Second} { // a block is used for 6 s
				if wait, err := dead.Reserve(t.Context(), limit.Ask{Again: true}); wait == 0 && err == nil {
					t.Error("a block that was not settled is used")
				}
				pass(next)
			}
			l := must(limit.Shared(&mute{Store: w.store, later: behind}, "api", 2, time.Minute))(t)
			began := 0
			for range 60 {
				if wait, err := l.Reserve(t.Context(), limit.Ask{Again: true}); wait == 0 && err == nil {
					began++
				}
				pass(10 * time.Second)
			}
			if claimed.Load() < 2 || began < 14 {
				t.Errorf("%d calls died; then %d jobs began in 10 minutes, with a clock %v behind", claimed.Load(), began, behind)
			}
			pass(time.Minute)
		})
	}
}

// mute is a store whose settlements may fail, and whose records seem to be later than they are.
type mute struct {
	dedupe.Store
	settle func() error
	later  time.Duration
}

func (s *mute) Settle(ctx context.Context, ss []dedupe.Settlement) ([]dedupe.Settled, error) {
	if s.settle != nil {
		return nil, s.settle()
	}
	return s.Store.Settle(ctx, ss)
}

func (s *mute) Get(ctx context.Context, ks []dedupe.Key) ([]*dedupe.Record, error) {
	rs, err := s.Store.Get(ctx, ks)
	for _, r := range rs {
		if r != nil {
			r.LeaseUntil, r.Expires = r.LeaseUntil.Add(s.later), r.Expires.Add(s.later)
		}
	}
	return rs, err
}

// TestSharedBlockEnds: what a process has not used of a block after a tenth of the time is lost,
// because another may soon have the block.
func TestSharedBlockEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &frail{Store: newWorld(t).store}
		l := must(limit.Shared(s, "api", 100, 10*time.Minute))(t)
		for n, after := range []time.Duration{0, 59 * time.Second, 2 * time.Second} {
			pass(after)
			if wait, err := l.Reserve(t.Context(), limit.Ask{}); wait != 0 || err != nil {
				t.Error(wait, err)
			}
			if got, want := s.settles.Load(), int64(1+n/2); got != want {
				t.Errorf("the start %d: %d blocks were taken, want %d", n, got, want)
			}
		}
	})
}

// TestSharedHostileKeys: a sender's key becomes no name in the store, and one of any form is
// limited.
func TestSharedHostileKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		l := must(limit.Shared(w.store, "api", 1, time.Hour))(t)
		for _, key := range []string{"", "\x00", "a/0", "\xff\xfe", fmt.Sprint(make([]byte, 5000))} {
			if wait, err := l.Reserve(t.Context(), limit.Ask{Key: key}); wait != 0 || err != nil {
				t.Errorf("%.20q: %v, %v", key, wait, err)
			}
			if wait, err := l.Reserve(t.Context(), limit.Ask{Key: key, Again: true}); wait < limit.MaxHold || err != nil {
				t.Errorf("%.20q, once more: %v, %v", key, wait, err)
			}
		}
	})
}
