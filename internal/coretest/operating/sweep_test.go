package operating

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/memstore"
	"github.com/onceq/onceq/internal/coretest/rig"
)

// swept is a store that counts its sweeps.
type swept struct {
	*memstore.Store
	mu     sync.Mutex
	limits []int
	now    int // under way
	most   int
	fault  func(ctx context.Context) (int, error)
	turn   func(ctx context.Context) // after the claim of a turn
	mute   bool                      // it answers no claim of a turn
}

func (s *swept) Claim(ctx context.Context, rs []dedupe.ClaimRequest) ([]dedupe.Claim, error) {
	cs, err := s.Store.Claim(ctx, rs)
	s.mu.Lock()
	turn, mute := s.turn, s.mute
	s.mu.Unlock()
	if mute && rs[0].Key.Scope == ":onceq" {
		return nil, nil
	}
	if turn != nil && rs[0].Key.Scope == ":onceq" {
		turn(ctx)
		return cs, ctx.Err()
	}
	return cs, err
}

func (s *swept) Sweep(ctx context.Context, limit int) (int, error) {
	s.mu.Lock()
	s.limits = append(s.limits, limit)
	s.now++
	s.most = max(s.most, s.now)
	fault := s.fault
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		s.now--
		s.mu.Unlock()
	}()
	if fault != nil {
		return fault(ctx)
	}
	rig.Takes(time.Second)
	return s.Store.Sweep(ctx, limit)
}

func (s *swept) calls() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.limits)
}

func (s *swept) failBy(fault func(ctx context.Context) (int, error)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = fault
}

// sweeping gives the rig's workers a store that sweeps.
func sweeping(t *testing.T, s *swept) rig.Option {
	return func(r *rig.Rig) {
		st, err := memstore.New(nil)
		if err != nil {
			t.Fatal(err)
		}
		s.Store = st
		r.Cfg.Store = s
	}
}

// A worker removes what has expired without being asked, and nothing else.
func TestWorkerSweeps(t *testing.T) {
	var s swept
	rig.Bubble(t, rig.Returns(nil), func(r *rig.Rig) {
		r.Send(rig.Numbered("k", 50)...)
		r.RunFor(time.Second)
		if n := s.Len(); n != 50 {
			t.Fatalf("%d records", n)
		}
		r.RunFor(time.Hour) // the retention is 40 min
		if n := s.Len(); n != 1 {
			t.Errorf("%d records are left, want the turn's own", n)
		}
		if n := s.calls(); n < 5 || n > 7 || s.limits[0] != 1000 {
			t.Errorf("%d sweeps in an hour, of %d", n, s.limits)
		}
	}, sweeping(t, &s), rig.With(func(c *rig.Setup) { c.Retention = 40 * time.Minute }))
}

// In a fleet one worker sweeps at a time, and all together sweep as often as one alone would.
func TestOneOfAFleetSweeps(t *testing.T) {
	var s swept
	rig.Bubble(t, rig.Returns(nil), func(r *rig.Rig) {
		ctx, stop := context.WithCancel(r.Context())
		var all sync.WaitGroup
		for range 5 {
			w := r.Worker(nil)
			all.Go(func() {
				if err := w.Run(ctx); err != nil {
					t.Error(err)
				}
			})
		}
		rig.Pass(10 * time.Hour)
		stop()
		all.Wait()
		if n := s.calls(); n < 50 || n > 62 || s.most != 1 {
			t.Errorf("%d sweeps in ten hours, %d at once", n, s.most)
		}
	}, sweeping(t, &s))
}

// A backlog is worked off in turns of bounded work.
func TestSweepOfABacklog(t *testing.T) {
	var s swept
	rig.Bubble(t, rig.Returns(nil), func(r *rig.Rig) {
		left := 50_500
		s.failBy(func(context.Context) (int, error) {
			rig.Takes(2 * time.Second)
			n := min(left, 1000)
			left -= n
			return n, nil
		})
		r.RunFor(20 * time.Minute)
		if left != 0 || s.calls() < 51 || s.calls() > 53 {
			t.Errorf("%d are left after %d sweeps", left, s.calls())
		}
	}, sweeping(t, &s))
}

func TestSweepThatFails(t *testing.T) {
	var s swept
	rig.Bubble(t, rig.Returns(nil), func(r *rig.Rig) {
		s.failBy(func(context.Context) (int, error) { panic("boom") })
		r.Start()
		rig.Pass(time.Hour)
		if n := r.Logged.Count("expired records are not removed"); n < 4 || n > 7 {
			t.Errorf("%d warnings in an hour", n)
		}
		r.Send("a")
		rig.Pass(time.Second)
		r.WantOutcomes("a", "done")
		s.failBy(nil)
		rig.Pass(time.Hour)
		if n := r.Logged.Count("expired records are removed again"); n != 1 {
			t.Errorf("%d lines tell that it is over", n)
		}
	}, sweeping(t, &s))
}

// A store that answers no claim of a turn is told of like one that is away, and jobs go on.
func TestSweepWithoutAnAnswer(t *testing.T) {
	s := swept{mute: true}
	rig.Bubble(t, rig.Returns(nil), func(r *rig.Rig) {
		r.Start()
		rig.Pass(time.Hour)
		if n := r.Logged.Count("the store did not answer one claim"); n < 1 {
			t.Errorf("%d warnings in an hour", n)
		}
		if n := s.calls(); n != 0 {
			t.Errorf("%d sweeps without a claim", n)
		}
		r.Send("a")
		rig.Pass(time.Second)
		r.WantOutcomes("a", "done")
	}, sweeping(t, &s))
}

// A drain does not wait for a sweep, and another worker may go on with it.
func TestDrainEndsASweep(t *testing.T) {
	var s swept
	rig.Bubble(t, rig.Returns(nil), func(r *rig.Rig) {
		s.failBy(func(ctx context.Context) (int, error) { <-ctx.Done(); return 0, ctx.Err() })
		r.Start()
		for s.calls() == 0 {
			rig.Pass(time.Second)
		}
		began := time.Now()
		if err := r.Stop(); err != nil || time.Since(began) > time.Second {
			t.Errorf("Run ended after %v: %v", time.Since(began), err)
		}
		s.wantReleased(t)
	}, sweeping(t, &s))
}

// wantReleased checks that another worker can go on with the turn.
func (s *swept) wantReleased(t *testing.T) {
	t.Helper()
	rs, err := s.Get(t.Context(), []dedupe.Key{{Scope: ":onceq", Key: "sweep"}})
	if err != nil || rs[0] == nil || rs[0].Status != dedupe.Released || rs[0].LastErr != "" || rs[0].Attempt != 0 {
		t.Errorf("the turn's record is %+v, %v", rs[0], err)
	}
}

// Run ends at its hard end, also where a job and a sweep ignore their contexts.
func TestSweepDoesNotOutlastTheHardEnd(t *testing.T) {
	for name, c := range map[string]struct {
		jobs []string
		most time.Duration
	}{
		"with a job":    {[]string{"a"}, 25 * time.Second},
		"without a job": {nil, 5 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			var s swept
			free := make(chan struct{})
			h := func(context.Context, *onceq.Job) error { <-free; return nil }
			rig.Bubble(t, h, func(r *rig.Rig) {
				free = make(chan struct{}) // of the bubble
				s.failBy(func(context.Context) (int, error) { <-free; return 0, nil })
				if c.jobs != nil {
					r.Send(c.jobs...)
				}
				r.Start()
				rig.Pass(time.Hour)
				if n := s.calls(); n != 1 {
					t.Fatalf("%d sweeps", n)
				}
				began := time.Now()
				_ = r.Stop()
				if took := time.Since(began); took > c.most {
					t.Errorf("Run ended after %v, the hard end is %v", took, c.most)
				}
				close(free)
			}, sweeping(t, &s))
		})
	}
}

// A drain does not wait for the claim of a turn. What the store has taken of it is given back.
func TestDrainEndsTheClaimOfATurn(t *testing.T) {
	for name, hangs := range map[string]func(ctx context.Context){
		"it heeds its context":    func(ctx context.Context) { <-ctx.Done() },
		"it is answered too late": func(ctx context.Context) { <-ctx.Done(); rig.Takes(time.Second) },
	} {
		t.Run(name, func(t *testing.T) {
			var s swept
			rig.Bubble(t, rig.Returns(nil), func(r *rig.Rig) {
				asked := make(chan struct{})
				s.turn = func(ctx context.Context) { close(asked); hangs(ctx) }
				r.Start()
				<-asked
				began := time.Now()
				if err := r.Stop(); err != nil || time.Since(began) > time.Second {
					t.Errorf("Run ended after %v: %v", time.Since(began), err)
				}
				s.wantReleased(t)
				if n := s.calls(); n != 0 {
					t.Errorf("%d sweeps", n)
				}
			}, sweeping(t, &s))
		})
	}
}

func TestSweepNever(t *testing.T) {
	var s swept
	rig.Bubble(t, rig.Returns(nil), func(r *rig.Rig) {
		r.RunFor(24 * time.Hour)
		if n := s.calls(); n != 0 {
			t.Errorf("%d sweeps", n)
		}
		c := r.Cfg
		c.SweepEvery = 10
		if _, err := rig.NewWorker(c); err == nil || !strings.Contains(err.Error(), "WorkerConfig.SweepEvery") {
			t.Errorf("the error is %v", err)
		}
	}, sweeping(t, &s), rig.With(func(c *rig.Setup) { c.SweepEvery = -1 }))
}

// Scopes that begin with a ':' are onceq's own.
func TestReservedScopes(t *testing.T) {
	rig.Bubble(t, rig.Never(t), func(r *rig.Rig) {
		r.Send("a")
		r.RunFor(time.Second)
		r.Letter(onceq.ClassBadKey)
		p, err := onceq.NewProcessor(onceq.ProcessorConfig{Store: r.Store, Scope: rig.Scope})
		if err != nil {
			t.Fatal(err)
		}
		_, err = onceq.Do(r.Context(), p, dedupe.Key{Scope: ":onceq", Key: "sweep"}, nil, func(context.Context, *onceq.Job) (int, error) { return 1, nil })
		if !errors.Is(err, dedupe.ErrBadKey) || !strings.Contains(err.Error(), "reserved") {
			t.Errorf("Do answered %v", err)
		}
	}, rig.With(func(c *rig.Setup) {
		c.Key = func(m *broker.Message) (dedupe.Key, error) {
			return dedupe.Key{Scope: ":onceq", Key: string(m.Body)}, nil
		}
	}))
}
