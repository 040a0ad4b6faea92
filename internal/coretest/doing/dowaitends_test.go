package doing

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
	"github.com/onceq/onceq/onceqtest"
)

// A call that ends while it waits says that another run is under way, as long as it knows of one.
func TestDoWaitEndsBesideARun(t *testing.T) {
	ends := errors.New("the client has gone")
	for name, c := range map[string]struct {
		here, away bool          // the run is in this process; the store hangs when it is asked again
		run        time.Duration // how long the run takes, which fails then
		cut        time.Duration // when the context of the call ends
		busy       bool
	}{
		"here":                {here: true, run: time.Minute, cut: 5 * time.Second, busy: true},
		"elsewhere":           {run: time.Minute, cut: 5 * time.Second, busy: true},
		"here, store away":    {here: true, away: true, run: time.Minute, cut: 5 * time.Second, busy: true},
		"elsewhere, away":     {away: true, run: time.Minute, cut: 5 * time.Second, busy: true},
		"elsewhere, outage":   {away: true, run: time.Minute, cut: 50 * time.Second, busy: true},
		"here, has ended":     {here: true, away: true, run: 4 * time.Second, cut: 5 * time.Second},
		"not known to anyone": {away: true, cut: 2 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			rig.BubbleDo(t, func(d *rig.Doer) {
				p := d.P
				if !c.here {
					p = d.Processor(d.Store)
				}
				if c.run > 0 {
					go onceq.Do(d.Context(), p, dedupe.Key{Key: "a"}, nil, func(context.Context, *onceq.Job) (int, error) {
						rig.Takes(c.run)
						return 0, rig.ErrBoom
					})
				}
				rig.Pass(time.Second)
				if c.away {
					// The first question of the waiting call is answered, where there is a run.
					asked := 0
					d.Store.Set(func(s *rig.Store) {
						s.Fault = func(call onceqtest.Call) faulty.Faults {
							if call.Op != onceqtest.Claim {
								return nil
							}
							if asked++; asked == 1 && c.run > 0 && !c.here {
								return nil
							}
							return faulty.Hang()
						}
					})
				}
				ctx, cancel := context.WithTimeoutCause(d.Context(), c.cut, ends)
				defer cancel()
				begin := time.Now()
				_, err := onceq.Do(ctx, d.P, dedupe.Key{Key: "a"}, wait(time.Hour), d.MustNot)
				var busy *onceq.InProgressError
				var notRun *onceq.NotRunError
				if !errors.As(err, &notRun) || errors.As(err, &busy) != c.busy || strings.Contains(err.Error(), "another run is under way") != c.busy {
					t.Fatalf("answered %v", err)
				}
				took := time.Since(begin)
				if took > c.cut || took == c.cut && !errors.Is(err, ends) {
					t.Errorf("answered %v after %v", err, took)
				}
				if c.busy && (busy.Key != rig.Key("a") || busy.RetryAfter < time.Second || busy.Age > took+time.Second || took == c.cut && c.here && busy.Age != took+time.Second) {
					t.Errorf("after %v it knows %+v", took, busy)
				}
				d.Store.Heals()
				rig.Pass(2 * time.Minute)
			})
		})
	}
}

// A call that has won the key and may not start any more waits for nobody: the run that it waited
// for is over.
func TestDoWaitEndsWithItsOwnClaim(t *testing.T) {
	rig.BubbleDo(t, func(d *rig.Doer) {
		d.Store.Occupy(t, "a", 5*time.Second, dedupe.Rerun)
		ctx, cancel := context.WithCancel(d.Context())
		defer cancel()
		d.Store.Set(func(s *rig.Store) {
			s.Fault = func(call onceqtest.Call) faulty.Faults {
				if call.Op == onceqtest.Renew {
					cancel()
					return faulty.Fail(rig.ErrBoom)
				}
				return nil
			}
		})
		o := wait(time.Minute)
		o.Interrupted = dedupe.Park
		_, err := onceq.Do(ctx, d.P, dedupe.Key{Key: "a"}, o, d.MustNot)
		var busy *onceq.InProgressError
		d.Wants("the call", 0, err, 0, &onceq.NotRunError{})
		if errors.As(err, &busy) {
			t.Errorf("answered %v", err)
		}
		d.Store.Heals()
		rig.Pass(time.Minute)
	})
}

// Two calls wait for one run. One takes the key over and fails, and the other knows that no run is
// under way then.
func TestDoWaitEndsAfterAnothersRun(t *testing.T) {
	rig.BubbleDo(t, func(d *rig.Doer) {
		d.Store.Occupy(t, "a", 5*time.Second, dedupe.Rerun)
		ctx, cancel := context.WithTimeout(d.Context(), 20*time.Second)
		defer cancel()
		var all sync.WaitGroup
		var ran, ended atomic.Int64
		for range 2 {
			all.Go(func() {
				_, err := onceq.Do(ctx, d.P, dedupe.Key{Key: "a"}, wait(time.Hour), func(context.Context, *onceq.Job) (int, error) {
					rig.Takes(12 * time.Second)
					d.Store.Set(func(s *rig.Store) { s.Fault = rig.Bads(onceqtest.Claim, 1000, faulty.Hang()) })
					return 0, rig.ErrBoom
				})
				var busy *onceq.InProgressError
				var notRun *onceq.NotRunError
				switch {
				case errors.Is(err, rig.ErrBoom):
					ran.Add(1)
				case errors.As(err, &notRun) && !errors.As(err, &busy):
					ended.Add(1)
				default:
					t.Errorf("answered %v", err)
				}
			})
		}
		all.Wait()
		if ran.Load() != 1 || ended.Load() != 1 {
			t.Errorf("%d calls ran, %d ended", ran.Load(), ended.Load())
		}
		d.Store.Heals()
		rig.Pass(time.Minute)
	})
}
