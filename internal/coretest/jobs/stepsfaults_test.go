package jobs

import (
	"context"
	"errors"
	"fmt"
	"slices"
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

// What goes wrong with a store or a worker while a job saves its steps.

// saves notes what reaches the store: the number and the bytes of each state.
type saves struct {
	mu    sync.Mutex
	calls int
	all   []string
}

func (s *saves) watch(st *rig.Store) {
	st.OnRenew = func(rs []dedupe.Renewal, as []dedupe.Renewed) []dedupe.Renewed {
		s.mu.Lock()
		defer s.mu.Unlock()
		before := len(s.all)
		for _, r := range rs {
			if r.State != nil {
				s.all = append(s.all, fmt.Sprintf("%d %s", r.StateNo, r.State))
			}
		}
		if len(s.all) > before {
			s.calls++
		}
		return as
	}
}

// firsts are the faults of the first n calls of Renew, which are saves where a job is young.
func firsts(n int, f faulty.Faults) func(onceqtest.Call) faulty.Faults {
	return rig.Bads(onceqtest.Renew, n, f)
}

// twoSteps charges and then mails.
type twoSteps struct {
	charges, mails, runs atomic.Int32
	keys                 sync.Map
	between              func(ctx context.Context, j *onceq.Job) error
}

func (s *twoSteps) Handle(ctx context.Context, j *onceq.Job) error {
	s.runs.Add(1)
	_, err := onceq.Step(ctx, j, "charge", func(context.Context) (string, error) {
		s.charges.Add(1)
		s.keys.Store(j.EffectKey("charge"), true)
		return "ch_1", nil
	})
	if err == nil && s.between != nil {
		err = s.between(ctx, j)
	}
	if err != nil {
		return err
	}
	_, err = onceq.Step(ctx, j, "mail", func(context.Context) (int, error) { s.mails.Add(1); return 1, nil })
	return err
}

func (s *twoSteps) wants(r *rig.Rig, charges, mails int32) {
	r.Helper()
	keys := 0
	s.keys.Range(func(any, any) bool { keys++; return true })
	if c, m := s.charges.Load(), s.mails.Load(); c != charges || m != mails || keys != 1 {
		r.Errorf("%d charges under %d keys, %d mails; want %d under 1, %d", c, keys, m, charges, mails)
	}
}

func TestSaveThatIsNotAnswered(t *testing.T) {
	for name, c := range map[string]struct {
		fault   func(began time.Time) func(onceqtest.Call) faulty.Faults
		charges int32
		same    int // so many saves of the first step reach the store
	}{
		"answer lost": {func(time.Time) func(onceqtest.Call) faulty.Faults {
			return firsts(1, faulty.Lose(rig.ErrBoom))
		}, 1, 2},
		"refused twice": {func(time.Time) func(onceqtest.Call) faulty.Faults {
			return firsts(2, faulty.Fail(rig.ErrBoom))
		}, 1, 1},
		"away for ten seconds": {func(began time.Time) func(onceqtest.Call) faulty.Faults {
			return awayFor(began, 10*time.Second, faulty.Fail(rig.ErrBoom))
		}, 1, 1},
		"away for a minute": {func(began time.Time) func(onceqtest.Call) faulty.Faults {
			return awayFor(began, time.Minute, faulty.Fail(rig.ErrBoom))
		}, 2, 1}, // the claim ends meanwhile: the step runs again under its key
		"all answers lost for a minute": {func(began time.Time) func(onceqtest.Call) faulty.Faults {
			return awayFor(began, time.Minute, faulty.Lose(rig.ErrBoom))
		}, 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			s, seen := &twoSteps{}, &saves{}
			rig.Bubble(t, s.Handle, func(r *rig.Rig) {
				r.Store.Set(func(st *rig.Store) { st.Fault = c.fault(time.Now()); seen.watch(st) })
				r.Send("a")
				r.RunFor(5 * time.Minute)
				r.WantStatus("a", dedupe.Done)
				r.NoLetters()
				s.wants(r, c.charges, 1)
				var first []string
				for _, save := range seen.all {
					if !strings.Contains(save, "mail") {
						first = append(first, save)
					}
				}
				if c.same > 0 && (len(first) != c.same || len(slices.Compact(slices.Clone(first))) != 1) {
					r.Errorf("the first step was stored as %q, want %d times the same", first, c.same)
				}
			}, rig.Warnings)
		})
	}
}

// awayFor is a store that is away from all renewals and settlements.
func awayFor(began time.Time, d time.Duration, f faulty.Faults) func(onceqtest.Call) faulty.Faults {
	return func(c onceqtest.Call) faulty.Faults {
		if time.Since(began) < d && c.Op != onceqtest.Claim {
			return f
		}
		return nil
	}
}

// A worker that was overtaken stores nothing, and its handler is told. A handler that does not
// listen gets no value that is not stored, and begins no other step.
func TestSaveAfterATakeover(t *testing.T) {
	var r0 *rig.Rig
	var err, cause error
	rig.Bubble(t, func(ctx context.Context, j *onceq.Job) error {
		_, err = onceq.Step(ctx, j, "charge", func(context.Context) (int, error) {
			r0.Store.Steal(r0.T, "a")
			return 1, nil
		})
		cause = context.Cause(ctx)
		for _, name := range []string{"charge", "mail"} {
			if _, err := onceq.Step(ctx, j, name, func(context.Context) (int, error) {
				t.Errorf("%s begins after the takeover", name)
				return 1, nil
			}); !errors.Is(err, onceq.ErrLeaseLost) {
				t.Errorf("after the takeover %s says %v", name, err)
			}
		}
		return err
	}, func(r *rig.Rig) {
		r0 = r
		r.Send("a")
		r.RunFor(time.Minute)
		if !errors.Is(err, onceq.ErrLeaseLost) || !errors.Is(cause, onceq.ErrLeaseLost) {
			r.Errorf("the save's error is %v, the context's %v", err, cause)
		}
		if rec := r.Record("a"); len(rec.State) > 0 || rec.Owner != "another" {
			r.Errorf("the overtaken worker wrote %q under %q", rec.State, rec.Owner)
		}
	})
}

// A step whose save was given up is stored first when it is asked for again; it does not run again.
func TestSaveThatItsCallerGivesUp(t *testing.T) {
	ran := 0
	var first error
	var second int
	rig.Bubble(t, func(ctx context.Context, j *onceq.Job) error {
		f := func(context.Context) (int, error) { ran++; return ran, nil }
		short, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		_, first = onceq.Step(short, j, "charge", f)
		var err error
		second, err = onceq.Step(ctx, j, "charge", f)
		return err
	}, func(r *rig.Rig) {
		seen := &saves{}
		r.Store.Set(func(st *rig.Store) {
			st.Fault = awayFor(time.Now(), 5*time.Second, faulty.Fail(rig.ErrBoom))
			seen.watch(st)
		})
		r.Send("a")
		r.RunFor(time.Minute)
		r.WantStatus("a", dedupe.Done)
		if first == nil || !strings.Contains(first.Error(), "the store said last: "+rig.ErrBoom.Error()) {
			r.Errorf("given up with %v, and nobody knows what the store said", first)
		}
		if !errors.Is(first, context.DeadlineExceeded) || second != 1 || ran != 1 || len(seen.all) != 1 {
			r.Errorf("given up with %v, then %d; %d runs, %d saves", first, second, ran, len(seen.all))
		}
	}, rig.Warnings)
}

// TestSaveBesideOneThatIsTooLarge: where a handler's goroutines share a context that ends with the
// first error, as errgroup's does, that error says nothing of what another one was saving.
func TestSaveBesideOneThatIsTooLarge(t *testing.T) {
	ran := 0
	rig.Bubble(t, func(ctx context.Context, j *onceq.Job) error {
		f := func(context.Context) (int, error) { ran++; return ran, nil }
		group, fail := context.WithCancelCause(ctx)
		time.AfterFunc(time.Second, func() { fail(fmt.Errorf("another goroutine: %w", dedupe.ErrResultSize)) })
		if _, err := onceq.Step(group, j, "charge", f); !errors.Is(err, dedupe.ErrResultSize) {
			t.Errorf("the cause of the group's end is lost: %v", err)
		}
		_, err := onceq.Step(ctx, j, "charge", f)
		return err
	}, func(r *rig.Rig) {
		r.Store.Set(func(st *rig.Store) { st.Fault = awayFor(time.Now(), 5*time.Second, faulty.Fail(rig.ErrBoom)) })
		r.Send("a")
		r.RunFor(time.Minute)
		r.WantStatus("a", dedupe.Done)
		if ran != 1 {
			r.Errorf("the step ran %d times", ran)
		}
	}, rig.Warnings)
}

// A drain between two steps gives the job to another worker, without an attempt.
func TestDrainBetweenSteps(t *testing.T) {
	s := &twoSteps{}
	s.between = func(context.Context, *onceq.Job) error {
		if s.runs.Load() == 1 {
			rig.Takes(10 * time.Second) // the drain begins meanwhile
		}
		return nil
	}
	rig.Bubble(t, s.Handle, func(r *rig.Rig) {
		r.Send("a")
		r.RunFor(5 * time.Second)
		if rec := r.Record("a"); rec.Status != dedupe.Released || rec.Attempt != 0 || rec.ErrClass != onceq.ClassPostponed {
			r.Errorf("after the drain: %+v", rec)
		}
		s.wants(r, 1, 0)
		defer r.Beside(nil)()
		rig.Pass(5 * time.Second)
		r.WantStatus("a", dedupe.Done)
		r.WantOutcomes("a", "postponed", "done")
		s.wants(r, 1, 1)
		if a := r.Record("a").Attempt; a != 1 {
			r.Errorf("attempt %d", a)
		}
	})
}

// Under Park a postponement is the handler's word that nothing is half done, unless it was cut off.
func TestPostponeUnderPark(t *testing.T) {
	for name, cut := range map[string]bool{"uncut": false, "cut": true} {
		t.Run(name, func(t *testing.T) {
			s := &twoSteps{}
			s.between = func(ctx context.Context, _ *onceq.Job) error {
				if s.runs.Load() > 1 {
					return nil
				}
				if cut {
					<-ctx.Done()
				}
				return onceq.Postpone(time.Minute, nil)
			}
			rig.Bubble(t, s.Handle, func(r *rig.Rig) {
				r.Send("a")
				r.RunFor(5 * time.Minute)
				if !cut {
					r.WantStatus("a", dedupe.Done)
					r.NoLetters()
					s.wants(r, 1, 1)
					return
				}
				r.WantStatus("a", dedupe.Parked)
				m := r.Letter(onceq.ClassInterrupted)
				if m.Meta.Dead.Saved != "charge" {
					r.Errorf("the letter says that %q was saved last", m.Meta.Dead.Saved)
				}
				r.Replay(m) // what was saved is kept
				defer r.Beside(nil)()
				rig.Pass(time.Minute)
				r.WantStatus("a", dedupe.Done)
				s.wants(r, 1, 1)
			}, rig.Parks, rig.With(func(c *rig.Setup) { c.Defaults.Timeout = 2 * time.Second }))
		})
	}
}

// A state that cannot be used is refused, and stays as it is.
func TestForeignState(t *testing.T) {
	for state, want := range map[string]string{
		"foreign":           "something else has written it",
		`{"x":1}`:           "something else has written it",
		`{"v":2,"s":{}}`:    "a later version of onceq has written it: its form is 2",
		`{"v":1,"s":[1,2]}`: "its steps cannot be read",
	} {
		t.Run(state, func(t *testing.T) {
			s := &twoSteps{}
			rig.Bubble(t, s.Handle, func(r *rig.Rig) {
				q := r.Store.Occupy(t, "a", time.Hour, dedupe.Rerun)
				as, err := r.Store.Store.Renew(t.Context(), []dedupe.Renewal{{Key: q.Key, Token: q.Token, TTL: time.Hour, State: []byte(state), StateNo: 1}})
				if err != nil || as[0].Err != nil {
					t.Fatal(as, err)
				}
				r.Store.EndClaim(t, q, dedupe.Settlement{To: dedupe.Released, ErrClass: "error"})
				r.Send("a")
				r.RunFor(time.Minute)
				r.WantStatus("a", dedupe.Failed)
				m := r.Letter(onceq.ClassConfig)
				if e := m.Meta.Dead.LastErr; !strings.Contains(e, want) || !strings.Contains(e, `"charge"`) {
					r.Errorf("the error is %q, want %q and the step", e, want)
				}
				if got := string(r.Record("a").State); got != state {
					r.Errorf("the state has become %q", got)
				}
				if n := s.charges.Load(); n != 0 {
					r.Errorf("%d charges", n)
				}
			}, rig.Most(3), rig.Steady)
		})
	}
}

// Many handlers that save at once share the store's calls.
func TestSavesAtOnce(t *testing.T) {
	const n = 100
	seen := &saves{}
	began := make(chan time.Time, 1)
	rig.Bubble(t, func(ctx context.Context, j *onceq.Job) error {
		at := <-began
		began <- at
		rig.Takes(time.Until(at))
		return onceq.Save(ctx, j, "row", 1)
	}, func(r *rig.Rig) {
		began <- time.Now().Add(5 * time.Second)
		r.Store.Set(seen.watch)
		r.Send(rig.Numbered("k", n)...)
		r.RunFor(30 * time.Second)
		if len(seen.all) != n || seen.calls > n/2 { // a busy machine makes several of what would be one
			r.Errorf("%d saves in %d calls, want %d in at most half as many", len(seen.all), seen.calls, n)
		}
	}, rig.With(func(c *rig.Setup) { c.Concurrency = n }))
}

// Goroutines of one handler may save at once: nothing is lost.
func TestSavesOfOneRun(t *testing.T) {
	const n = 20
	seen := &saves{}
	rig.Bubble(t, func(ctx context.Context, j *onceq.Job) error {
		var all sync.WaitGroup
		errs := make([]error, n)
		for i := range n {
			all.Go(func() { errs[i] = onceq.Save(ctx, j, fmt.Sprint(i), i) })
		}
		all.Wait()
		for i := range n {
			if v, ok, err := onceq.Saved[int](j, fmt.Sprint(i)); v != i || !ok || err != nil {
				t.Errorf("%d is kept as %d, %v, %v", i, v, ok, err)
			}
		}
		return errors.Join(errs...)
	}, func(r *rig.Rig) {
		r.Store.Set(seen.watch)
		r.Send("a")
		r.RunFor(time.Minute)
		r.WantStatus("a", dedupe.Done)
		last := 0
		for _, save := range seen.all {
			no := 0
			if fmt.Sscan(save, &no); no < last || no > last+1 {
				r.Errorf("number %d follows %d", no, last)
			}
			last = no
		}
		if last != n {
			r.Errorf("the last number is %d", last)
		}
	})
}

// Once a transaction may complete the job, nothing more is saved.
func TestSaveAfterJoin(t *testing.T) {
	var err error
	rig.Bubble(t, func(ctx context.Context, j *onceq.Job) error {
		j.Join()
		err = onceq.Save(ctx, j, "row", 1)
		return err
	}, func(r *rig.Rig) {
		r.Send("a")
		r.RunFor(time.Minute)
		if err == nil || !strings.Contains(err.Error(), "save before CompleteTx") {
			r.Errorf("the error is %v", err)
		}
	}, rig.Most(1))
}

// TestSavedAfterJoin: a save is in doubt, and then a transaction may complete the job, which locks
// its record. A look-up does not wait for that: it answers an error at once. What is not in doubt
// it answers.
func TestSavedAfterJoin(t *testing.T) {
	for _, doubt := range []bool{true, false} {
		var err error
		var took time.Duration
		var kept int
		rig.Bubble(t, func(ctx context.Context, j *onceq.Job) error {
			short, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			if e := onceq.Save(short, j, "row", 1); (e != nil) != doubt {
				t.Errorf("in doubt %v: %v", doubt, e)
			}
			j.Join()
			began := time.Now()
			kept, _, err = onceq.Saved[int](j, "row")
			took = time.Since(began)
			return onceq.Permanent(errors.New("rolled back"))
		}, func(r *rig.Rig) {
			if doubt {
				r.Store.Set(func(st *rig.Store) { st.Fault = awayFor(time.Now(), time.Minute, faulty.Fail(rig.ErrBoom)) })
			}
			r.Send("a")
			r.RunFor(5 * time.Minute)
			if took != 0 || doubt != (err != nil && strings.Contains(err.Error(), "look before CompleteTx")) || !doubt && kept != 1 {
				r.Errorf("in doubt %v: %d, %v after %v", doubt, kept, err, took)
			}
		}, rig.Most(1), rig.Warnings)
	}
}

// Without a store nothing can be kept, so no step runs.
func TestStepWithoutAStore(t *testing.T) {
	var errs []error
	rig.Bubble(t, func(ctx context.Context, j *onceq.Job) error {
		_, err := onceq.Step(ctx, j, "charge", func(context.Context) (int, error) { t.Error("it ran"); return 1, nil })
		errs = append(errs, err, onceq.Save(ctx, j, "row", 1), onceq.Sleep(ctx, j, "trial", time.Hour))
		_, _, err = onceq.Saved[int](j, "row")
		errs = append(errs, err)
		return nil
	}, func(r *rig.Rig) {
		r.Send("a")
		r.RunFor(time.Minute)
		if len(errs) != 4 {
			r.Fatalf("the errors are %v", errs)
		}
		for i, named := range []string{`Step "charge"`, `Save "row"`, `Sleep "trial"`, `Saved "row"`} {
			if err := errs[i]; !errors.Is(err, onceq.ErrNoStore) || !strings.Contains(err.Error(), named) {
				r.Errorf("%s answers %v", named, err)
			}
		}
	}, rig.NoStore)
}

// In Do steps work, and a Postpone is f's error: the next call goes on.
func TestStepsInDo(t *testing.T) {
	rig.BubbleDo(t, func(d *rig.Doer) {
		charges := 0
		f := func(ctx context.Context, j *onceq.Job) (int, error) {
			v, err := onceq.Step(ctx, j, "charge", func(context.Context) (int, error) { charges++; return 7, nil })
			if err == nil && charges == 1 && j.Attempt == 1 {
				if class, _ := j.Last(); class == "" {
					err = onceq.Postpone(time.Hour, rig.ErrBoom)
				}
			}
			return v, err
		}
		if _, err := d.Do("a", nil, f); !errors.Is(err, rig.ErrBoom) {
			d.Errorf("a postponed Do answers %v", err)
		}
		v, err := d.Do("a", nil, f)
		if v != 7 || err != nil || charges != 1 {
			d.Errorf("the second call answers %d, %v, after %d charges", v, err, charges)
		}
	})
}
