package doing

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/coretest/rig"
	"github.com/onceq/onceq/internal/faulty"
	"github.com/onceq/onceq/onceqtest"
)

func wait(d time.Duration) *onceq.DoOptions { return &onceq.DoOptions{Wait: d} }

// Who waits in the same process is woken when the run ends, and does not ask the store.
func TestDoWaitersAreWoken(t *testing.T) {
	rig.BubbleDo(t, func(d *rig.Doer) {
		var all sync.WaitGroup
		all.Go(func() { d.Do("a", nil, slow(3, 10*time.Second)) })
		rig.Pass(time.Second)
		before := d.Store.Claims.Load()
		for range 100 {
			all.Go(func() {
				begin := time.Now()
				v, err := d.Do("a", wait(time.Minute), d.MustNot)
				d.Wants("a waiting call", v, err, 3, nil)
				if took := time.Since(begin); took != 9*time.Second {
					t.Errorf("it waited %v", took)
				}
			})
		}
		all.Wait()
		if n := d.Store.Claims.Load() - before; n != 0 {
			t.Errorf("%d claims of those that waited", n)
		}
	})
}

// Calls that come while the first one's claim is on its way share its answer.
func TestDoCallsShareAClaim(t *testing.T) {
	rig.BubbleDo(t, func(d *rig.Doer) {
		d.Do("done", nil, rig.Gives(3, nil))
		d.Do("failed", nil, rig.Gives(3, onceq.Permanent(rig.ErrBoom)))
		go d.Do("busy", nil, slow(3, time.Minute))
		rig.Pass(time.Second)
		d.P = d.Processor(d.Store) // which knows nothing yet
		d.Store.Set(func(s *rig.Store) { s.Fault = rig.Bads(onceqtest.Claim, 1000, faulty.Slow(time.Second)) })
		before := d.Store.Claims.Load()
		var all sync.WaitGroup
		for range 50 {
			all.Go(func() {
				v, err := d.Do("done", nil, d.MustNot)
				d.Wants("done", v, err, 3, nil)
			})
			all.Go(func() {
				_, err := d.Do("failed", nil, d.MustNot)
				d.Wants("failed", 0, err, 0, &onceq.FailedError{})
			})
			all.Go(func() {
				_, err := d.Do("busy", nil, d.MustNot)
				d.Wants("busy", 0, err, 0, &onceq.InProgressError{})
			})
			all.Go(func() {
				if _, err := d.Do("new", nil, slow(1, time.Second)); err != nil && !isInProgress(err) {
					t.Errorf("new: %v", err)
				}
			})
		}
		all.Wait()
		if n := d.Store.Claims.Load() - before; n > 4 || d.Seen.Started("new") != 1 {
			t.Errorf("%d claim calls for four keys, %d runs", n, d.Seen.Started("new"))
		}
	})
}

// A run in another process is asked after seldom, and the wait ends when it should.
func TestDoWaitsForAnotherProcess(t *testing.T) {
	for _, c := range []struct {
		run, wait, took time.Duration // took is what the call may take, at most
		asks            int64
	}{
		{500 * time.Millisecond, time.Minute, 800 * time.Millisecond, 7},
		{10 * time.Second, time.Minute, 12 * time.Second, 15},
		{5 * time.Minute, 10 * time.Minute, 302 * time.Second, 165},
		{307 * time.Second, 10 * time.Minute, 309 * time.Second, 165},
		{313 * time.Second, 10 * time.Minute, 315 * time.Second, 165},
		{5 * time.Minute, 3 * time.Second, 3 * time.Second, 10},
	} {
		rig.BubbleDo(t, func(d *rig.Doer) {
			const trip = time.Millisecond
			d.Store.Set(func(s *rig.Store) { s.Fault = rig.Bads(onceqtest.Claim, 10_000, faulty.Slow(trip)) })
			go onceq.Do(d.Context(), d.Processor(d.Store), dedupe.Key{Key: "a"}, nil, slow(3, c.run))
			rig.Pass(2 * trip)
			before := d.Store.Claims.Load()
			begin := time.Now()
			var all sync.WaitGroup
			for range 30 { // together they ask as often as one
				all.Go(func() {
					v, err := d.Do("a", wait(c.wait), d.MustNot)
					if c.wait < c.run {
						d.Wants("the call", v, err, 0, &onceq.InProgressError{})
					} else {
						d.Wants("the call", v, err, 3, nil)
					}
					if took := time.Since(begin); took > c.took+trip || c.wait < c.run && took < c.wait {
						t.Errorf("%+v: it took %v", c, took)
					}
				})
			}
			all.Wait()
			if n := d.Store.Claims.Load() - before; n > c.asks {
				t.Errorf("%+v: %d claims", c, n)
			}
			rig.Pass(c.run)
			if n := len(d.Seen.Of("a")); n > 1+30 {
				t.Errorf("%d records for 31 calls", n)
			}
		})
	}
}

// One record for a call, however often it asks.
func TestDoWaitIsOneRecord(t *testing.T) {
	rig.BubbleDo(t, func(d *rig.Doer) {
		go onceq.Do(d.Context(), d.Processor(d.Store), dedupe.Key{Key: "a"}, nil, slow(3, 20*time.Second))
		rig.Pass(time.Second)
		d.Do("a", wait(10*time.Second), d.MustNot)
		d.WantOutcomes("a", "in-progress")
		d.Do("a", wait(time.Minute), d.MustNot)
		d.WantOutcomes("a", "in-progress", "done", "already-done")
	})
}

// The run that others wait for ends without a result. Those who waited run the job themselves, one
// after the other, until one succeeds.
func TestDoWaitersTakeOver(t *testing.T) {
	for _, where := range []string{"here", "elsewhere", "cut off", "panic"} {
		t.Run(where, func(t *testing.T) {
			rig.BubbleDo(t, func(d *rig.Doer) {
				var runs, at atomic.Int64
				f := func(ctx context.Context, _ *onceq.Job) (int, error) {
					if at.Add(1) != 1 {
						t.Error("two runs at once")
					}
					defer at.Add(-1)
					n := int(runs.Add(1))
					select {
					case <-time.After(2 * time.Second):
					case <-ctx.Done():
						return 0, ctx.Err()
					}
					if where == "panic" && n == 1 {
						panic("boom")
					}
					if n < 4 {
						return 0, rig.ErrBoom
					}
					return n, nil
				}
				ctx, cancel := context.WithCancel(d.Context())
				defer cancel()
				p := d.P
				if where == "elsewhere" {
					p = d.Processor(d.Store)
				}
				go func() {
					defer func() { recover() }()
					onceq.Do(ctx, p, dedupe.Key{Key: "a"}, nil, f)
				}()
				rig.Pass(time.Second)
				if where == "cut off" {
					time.AfterFunc(500*time.Millisecond, cancel)
				}
				var all sync.WaitGroup
				var failed, succeeded atomic.Int64
				for range 20 {
					all.Go(func() {
						v, err := d.Do("a", wait(time.Hour), f)
						switch {
						case err == nil && v == 4:
							succeeded.Add(1)
						case errors.Is(err, rig.ErrBoom):
							failed.Add(1)
						default:
							t.Errorf("answered %v, %v", v, err)
						}
					})
				}
				all.Wait()
				if runs.Load() != 4 || failed.Load() != 2 || succeeded.Load() != 18 {
					t.Errorf("%d runs, %d calls failed, %d succeeded", runs.Load(), failed.Load(), succeeded.Load())
				}
			})
		})
	}
}

func TestDoWaitersAreToldOfAFailure(t *testing.T) {
	rig.BubbleDo(t, func(d *rig.Doer) {
		go d.Do("a", nil, func(context.Context, *onceq.Job) (int, error) {
			rig.Takes(5 * time.Second)
			return 0, onceq.Permanent(rig.ErrBoom)
		})
		rig.Pass(time.Second)
		_, err := d.Do("a", wait(time.Minute), d.MustNot)
		d.Wants("a waiting call", 0, err, 0, &onceq.FailedError{})
		var failed *onceq.FailedError
		errors.As(err, &failed)
		if rec := d.Record("a"); failed.Fence != rec.Fence || failed.Class != onceq.ClassPermanent || failed.Text != "boom" {
			t.Errorf("told %+v of %+v", failed, rec)
		}
	})
}

// A call that comes to reopen a failure, while another call finds that failure, does not take the
// other one's answer.
func TestDoReopenIsNotShared(t *testing.T) {
	for name, o := range map[string]onceq.DoOptions{"failed": {}, "parked": {Interrupted: dedupe.Park}} {
		rig.BubbleDo(t, func(d *rig.Doer) {
			ctx, cancel := context.WithCancel(d.Context())
			onceq.Do(ctx, d.P, dedupe.Key{Key: "a"}, &o, func(context.Context, *onceq.Job) (int, error) {
				if name == "failed" {
					return 0, onceq.Permanent(rig.ErrBoom)
				}
				cancel()
				rig.Takes(time.Second)
				return 0, rig.ErrBoom
			})
			cancel()
			fence := d.Record("a").Fence
			d.Store.Set(func(s *rig.Store) { s.Fault = rig.Bads(onceqtest.Claim, 1000, faulty.Slow(time.Second)) })
			go d.Do("a", nil, d.MustNot)
			rig.Pass(100 * time.Millisecond)
			v, err := d.Do("a", &onceq.DoOptions{Reopen: fence}, rig.Gives(6, nil))
			d.Wants(name, v, err, 6, nil)
		})
	}
}

func TestDoWaitEndsWithTheContext(t *testing.T) {
	rig.BubbleDo(t, func(d *rig.Doer) {
		go d.Do("here", nil, slow(1, time.Minute))
		go onceq.Do(d.Context(), d.Processor(d.Store), dedupe.Key{Key: "elsewhere"}, nil, slow(1, time.Minute))
		rig.Pass(time.Second)
		for _, k := range []string{"here", "elsewhere"} {
			ctx, cancel := context.WithTimeout(d.Context(), 5*time.Second)
			begin := time.Now()
			_, err := onceq.Do(ctx, d.P, dedupe.Key{Key: k}, wait(time.Hour), d.MustNot)
			d.Wants(k, 0, err, 0, &onceq.NotRunError{})
			if took := time.Since(begin); took != 5*time.Second || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: %v after %v", k, err, took)
			}
			cancel()
		}
	})
}

// A key that a dead process holds is free when its lease has run out; who waits takes it then.
func TestDoWaitsForADeadProcess(t *testing.T) {
	rig.BubbleDo(t, func(d *rig.Doer) {
		d.Store.Occupy(t, "a", 20*time.Second, dedupe.Rerun)
		begin := time.Now()
		v, err := d.Do("a", wait(time.Minute), rig.Gives(2, nil))
		d.Wants("the call", v, err, 2, nil)
		if took := time.Since(begin); took < 20*time.Second || took > 20*time.Second+50*time.Millisecond {
			t.Errorf("it took %v", took)
		}
	})
}

func TestDoRetryAfter(t *testing.T) {
	rig.BubbleDo(t, func(d *rig.Doer) {
		go d.Do("here", nil, slow(1, time.Hour))
		go onceq.Do(d.Context(), d.Processor(d.Store), dedupe.Key{Key: "elsewhere"}, nil, slow(1, time.Hour))
		begin := time.Now()
		for _, at := range []time.Duration{time.Millisecond, 4 * time.Second, 50 * time.Minute} {
			rig.Pass(time.Until(begin.Add(at)))
			for _, k := range []string{"here", "elsewhere"} {
				_, err := d.Do(k, nil, d.MustNot)
				var busy *onceq.InProgressError
				if !errors.As(err, &busy) || busy.Age != at || busy.Key != rig.Key(k) {
					t.Fatalf("%s after %v: %v", k, at, err)
				}
				if want := max(time.Second, min(at, onceq.DefaultLease)); busy.RetryAfter > want || busy.RetryAfter < want/2 {
					t.Errorf("%s after %v: ask again in %v, want %v", k, at, busy.RetryAfter, want)
				}
			}
		}
		rig.Pass(time.Hour)
	})
}

// f may call Do for its own key: it is told that the key is in progress, and nothing hangs.
func TestDoWithinItself(t *testing.T) {
	rig.BubbleDo(t, func(d *rig.Doer) {
		v, err := d.Do("a", nil, func(context.Context, *onceq.Job) (int, error) {
			for _, o := range []*onceq.DoOptions{nil, wait(5 * time.Second)} {
				_, err := d.Do("a", o, d.MustNot)
				d.Wants("inside", 0, err, 0, &onceq.InProgressError{})
			}
			return 1, nil
		})
		d.Wants("outside", v, err, 1, nil)
	})
}
