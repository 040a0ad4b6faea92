package onceq_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/control"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/peak"
)

// What is tested here are rules in bad hours: while a store hangs, while rules change in the middle
// of what a worker does about them, and while an Observer stands in the way.

// TestStoreHangsAtBoot: a store that never answers, and ignores its context, does not keep Run from
// ending before it has begun.
func TestStoreHangsAtBoot(t *testing.T) {
	bubble(t, func(context.Context, *onceq.Job) error { return nil }, func(r *rig) {
		release := make(chan struct{})
		r.store.set(func(s *store) { s.onGet = func() error { <-release; return errBoom } })
		r.send("a")
		r.start()
		pass(time.Hour)
		began := time.Now()
		r.stopNow()
		synctest.Wait()
		pass(5 * time.Second)
		select {
		case err := <-r.done:
			r.done = nil
			if err != nil {
				t.Error(err)
			}
		default:
			t.Errorf("Run has not ended after %v", time.Since(began))
		}
		close(release)
		pass(time.Minute)
		r.wantOutcomes("a")
	}, steered)
}

// TestLimitInsteadOfPause: a limit that is read while a worker waits to go on after a pause is
// obeyed as soon as it is read.
func TestLimitInsteadOfPause(t *testing.T) {
	for range 8 { // when it is read is drawn at random
		var busy peak.Gauge
		var read sync.Once
		h := func(context.Context, *onceq.Job) error {
			busy.In()
			takes(time.Second)
			busy.Out()
			return nil
		}
		bubble(t, h, func(r *rig) {
			r.start()
			pause := r.orders(64*time.Second, ofQueue)
			pass(bound)
			for i := range 500 {
				r.send(fmt.Sprint(i))
			}
			pass(64*time.Second - bound)
			r.rules(func(rs *control.Rules) {
				rs.Remove(pause)
				rs.Rules = append(rs.Rules, control.Rule{
					Do: control.Limit, Slots: 2, Queue: scope, Until: time.Now().Add(time.Hour), By: "ana", Reason: "gently",
				})
			})
			r.store.set(func(s *store) {
				s.onGet = func() error {
					read.Do(func() { time.AfterFunc(1500*time.Millisecond, busy.Reset) }) // what ran then has ended
					return nil
				}
			})
			pass(bound + 5*time.Second)
			if h := r.w.Health(); busy.Top() != 2 || h.Slots != 2 || h.Rules != 2 {
				t.Errorf("%d handlers run at once: %+v", busy.Top(), h)
			}
		}, steered)
	}
}

// TestFirstReadByCall: a call of Do, or a batch, whose read of the rules came to nothing does not
// let the next one begin during a pause.
func TestFirstReadByCall(t *testing.T) {
	bubble(t, func(context.Context, *onceq.Job) error { return nil }, func(r *rig) {
		r.orders(time.Hour, func(u *control.Rule) { u.Scope = "bank" })
		do := func(ctx context.Context) error {
			p, err := onceq.NewProcessor(r.cfg.ProcessorConfig)
			if err != nil {
				t.Fatal(err)
			}
			first := make(chan error, 1)
			go func() {
				_, err := onceq.Do(ctx, p, dedupe.Key{Scope: "bank", Key: "a"}, nil, func(context.Context, *onceq.Job) (int, error) { return 1, nil })
				first <- err
			}()
			synctest.Wait()
			_, err = onceq.Do(r.Context(), p, dedupe.Key{Scope: "bank", Key: "b"}, nil, func(context.Context, *onceq.Job) (int, error) { return 1, nil })
			<-first
			return err
		}
		var paused *onceq.PausedError

		// The first caller reads, and goes.
		ctx, cancel := context.WithTimeout(r.Context(), time.Second)
		defer cancel()
		var gets atomic.Int64
		r.store.set(func(s *store) {
			s.onGet = func() error {
				if gets.Add(1) == 1 {
					<-ctx.Done()
					return ctx.Err()
				}
				return nil
			}
		})
		if err := do(ctx); !errors.As(err, &paused) {
			t.Errorf("after a first caller that has gone the second gets %v", err)
		}

		// The first read is lost.
		gets.Store(0)
		r.store.set(func(s *store) {
			s.onGet = func() error {
				if gets.Add(1) == 1 {
					return errBoom
				}
				return nil
			}
		})
		if err := do(r.Context()); !errors.As(err, &paused) {
			t.Errorf("after a first read that failed the caller gets %v", err)
		}

		// A store that refuses reads holds nobody up for long.
		gets.Store(0)
		r.store.set(func(s *store) { s.onGet = func() error { gets.Add(1); return errBoom } })
		began := time.Now()
		if err := do(r.Context()); err != nil || time.Since(began) > time.Second || gets.Load() != 3 {
			t.Errorf("after %v and %d reads: %v", time.Since(began), gets.Load(), err)
		}
	}, steered)
}

// TestRequiredRulesUnread: where rules are required, nothing starts before they were read, also
// where nobody can say why they were not.
func TestRequiredRulesUnread(t *testing.T) {
	bubble(t, func(context.Context, *onceq.Job) error { return nil }, func(r *rig) {
		p, err := onceq.NewProcessor(r.cfg.ProcessorConfig)
		if err != nil {
			t.Fatal(err)
		}
		release := make(chan struct{})
		r.store.set(func(s *store) { s.onGet = func() error { <-release; return nil } })
		do := func(ctx context.Context) error {
			_, err := onceq.Do(ctx, p, dedupe.Key{Key: "a"}, nil, func(context.Context, *onceq.Job) (int, error) { return 1, nil })
			return err
		}
		go func() { _ = do(r.Context()) }()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(r.Context(), time.Millisecond)
		defer cancel()
		if err := do(ctx); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "ProcessorConfig.Control.Required: operators' rules were never read") {
			t.Errorf("the call gets %v", err)
		}
		close(release)
		synctest.Wait()
		if err := do(r.Context()); err != nil {
			t.Error(err)
		}
	}, steered, with(func(c *setup) { c.Control.Required = true }))
}

// TestRulesUnreadableLater: rules that a later version has written stay unread, the last ones stay
// in force, and Health and the card say why.
func TestRulesUnreadableLater(t *testing.T) {
	bubble(t, func(context.Context, *onceq.Job) error { return nil }, func(r *rig) {
		r.start()
		r.orders(10*time.Minute, ofQueue)
		pass(bound)
		r.refuse(errors.New("control: their form is 2, and this version reads 1"))
		pass(time.Minute)
		const why = "their form is 2"
		if h := r.w.Health(); h.State != onceq.StatePaused || !strings.Contains(strings.Join(h.Reasons, "; "), "operators' rules cannot be read: control: reading the rules: ") || !strings.Contains(h.Reasons[1], why) {
			t.Errorf("the worker is %+v", h)
		}
		if c := r.seats()[0].Card; c == nil || c.Rules != 1 || !strings.Contains(c.NoRules, why) {
			t.Errorf("the card is %+v", c)
		}
		r.mend()
		pass(time.Minute)
		if h := r.w.Health(); len(h.Reasons) != 1 || r.seats()[0].Card.NoRules != "" {
			t.Errorf("the worker is %+v", h)
		}
	}, steered)
}

// slowWatcher is an Observer that takes its time with the event of a pause.
type slowWatcher struct {
	*seen
	takes atomic.Pointer[chan struct{}] // made in the test's bubble
}

func (s *slowWatcher) WorkerEvent(_ context.Context, e *onceq.WorkerEvent) {
	if e.Kind == onceq.EventPaused {
		<-*s.takes.Load()
	}
}

// TestPauseUnderSlowObserver: what a paused worker has not started goes back to the queue although
// the Observer is still busy with the news. Nothing else waits for it either.
func TestPauseUnderSlowObserver(t *testing.T) {
	for name, pause := range map[string]func(*rig){
		"by hand":  func(r *rig) { go r.w.Pause() },
		"by rules": func(r *rig) { r.orders(time.Hour, ofQueue) },
	} {
		watcher := &slowWatcher{seen: &seen{}}
		bubble(t, func(ctx context.Context, _ *onceq.Job) error { <-ctx.Done(); return ctx.Err() }, func(r *rig) {
			takes := make(chan struct{})
			watcher.takes.Store(&takes)
			r.send("runs", "waits", "waits, too")
			r.start()
			pass(time.Second)
			if s := r.w.Stats(); s.Busy != 1 || s.Held != 2 {
				t.Fatalf("%s: %+v", name, s)
			}
			pause(r)
			pass(2 * bound)
			if s := r.w.Stats(); s.Held != 0 || s.Busy != 1 || len(s.Paused) != 1 {
				t.Errorf("%s: %+v", name, s)
			}
			if seats := r.seats(); len(seats) != 1 || seats[0].Card.State != "paused" {
				t.Errorf("%s: the seats are %+v", name, seats)
			}
			close(takes)
		}, steered, with(func(c *setup) {
			c.Observer = watcher
			c.Concurrency, c.Prefetch, c.DrainTimeout = 1, 5, -1
		}))
	}
}
