package operating

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/control"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/controlstore"
	"github.com/onceq/onceq/internal/coretest/rig"
	"github.com/onceq/onceq/internal/must"
	"github.com/onceq/onceq/internal/peak"
)

// What is tested here are rules in bad hours: while a store hangs, while rules change in the middle
// of what a worker does about them, and while an Observer stands in the way.

// TestStoreHangsAtBoot: a store that never answers, and ignores its context, does not keep Run from
// ending before it has begun. Health and the log tell of it.
func TestStoreHangsAtBoot(t *testing.T) {
	hangsAtBoot(t, func(s *rig.Store, release chan struct{}) {
		s.OnGet = func() error { <-release; return rig.ErrBoom }
	})
	hangsAtBoot(t, func(s *rig.Store, release chan struct{}) { // the call after a read that is refused
		s.OnGet = func() error { return rig.ErrBoom }
		s.OnRenew = func(_ []dedupe.Renewal, as []dedupe.Renewed) []dedupe.Renewed { <-release; return as }
	})
}

func hangsAtBoot(t *testing.T, hang func(s *rig.Store, release chan struct{})) {
	t.Helper()
	rig.Bubble(t, func(context.Context, *onceq.Job) error { return nil }, func(r *rig.Rig) {
		release := make(chan struct{})
		r.Store.Set(func(s *rig.Store) { hang(s, release) })
		r.Send("a")
		r.Start()
		rig.Pass(10 * time.Second)
		if h := r.W.Health(); h.State != onceq.StateStarting || !strings.Contains(fmt.Sprint(h.Reasons), "before operators' rules are read") {
			t.Errorf("the worker is %+v", h)
		}
		if n := r.Logged.Count("level=ERROR", "operators' rules cannot be read", "has not come back"); n != 1 {
			t.Errorf("the log tells %d times of a store that does not come back, want once", n)
		}
		rig.Pass(time.Hour)
		began := time.Now()
		r.StopNow()
		synctest.Wait()
		rig.Pass(5 * time.Second)
		select {
		case err := <-r.Done:
			r.Done = nil
			if err != nil {
				t.Error(err)
			}
		default:
			t.Errorf("Run has not ended after %v", time.Since(began))
		}
		close(release)
		rig.Pass(time.Minute)
		r.WantOutcomes("a")
	}, rig.Steered)
}

// TestLimitInsteadOfPause: a limit that is read while a worker waits to go on after a pause is
// obeyed as soon as it is read.
func TestLimitInsteadOfPause(t *testing.T) {
	for range 8 { // when it is read is drawn at random
		var busy peak.Gauge
		var read sync.Once
		h := func(context.Context, *onceq.Job) error {
			busy.In()
			rig.Takes(time.Second)
			busy.Out()
			return nil
		}
		rig.Bubble(t, h, func(r *rig.Rig) {
			r.Start()
			pause := r.Orders(64*time.Second, ofQueue)
			rig.Pass(rig.Bound)
			for i := range 500 {
				r.Send(fmt.Sprint(i))
			}
			rig.Pass(64*time.Second - rig.Bound)
			r.Rules(func(rs *controlstore.Rules) {
				rs.Remove(pause)
				rs.Rules = append(rs.Rules, control.Rule{
					Do: control.Limit, Slots: 2, Queue: rig.Scope, Until: time.Now().Add(time.Hour), By: "ana", Reason: "gently",
				})
			})
			r.Store.Set(func(s *rig.Store) {
				s.OnGet = func() error {
					read.Do(func() { time.AfterFunc(1500*time.Millisecond, busy.Reset) }) // what ran then has ended
					return nil
				}
			})
			rig.Pass(rig.Bound + 5*time.Second)
			if h := r.W.Health(); busy.Top() != 2 || h.Slots != 2 || h.Rules != 2 {
				t.Errorf("%d handlers run at once: %+v", busy.Top(), h)
			}
		}, rig.Steered)
	}
}

// TestFirstReadByCall: a call of Do, or a batch, whose read of the rules came to nothing does not
// let the next one begin during a pause.
func TestFirstReadByCall(t *testing.T) {
	rig.Bubble(t, func(context.Context, *onceq.Job) error { return nil }, func(r *rig.Rig) {
		r.Orders(time.Hour, func(u *control.Rule) { u.Scope = "bank" })
		do := func(ctx context.Context) error {
			p, err := onceq.NewProcessor(r.Cfg.ProcessorConfig)
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
		r.Store.Set(func(s *rig.Store) {
			s.OnGet = func() error {
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
		r.Store.Set(func(s *rig.Store) {
			s.OnGet = func() error {
				if gets.Add(1) == 1 {
					return rig.ErrBoom
				}
				return nil
			}
		})
		if err := do(r.Context()); !errors.As(err, &paused) {
			t.Errorf("after a first read that failed the caller gets %v", err)
		}

		// A store that refuses reads holds nobody up for long.
		gets.Store(0)
		r.Store.Set(func(s *rig.Store) { s.OnGet = func() error { gets.Add(1); return rig.ErrBoom } })
		began := time.Now()
		if err := do(r.Context()); err != nil || time.Since(began) > time.Second || gets.Load() != 3 {
			t.Errorf("after %v and %d reads: %v", time.Since(began), gets.Load(), err)
		}
	}, rig.Steered)
}

// TestRequiredRulesUnread: where rules are required, nothing starts before they were read, also
// where nobody can say why they were not. A batch gives its messages back.
func TestRequiredRulesUnread(t *testing.T) {
	rig.Bubble(t, func(context.Context, *onceq.Job) error { return nil }, func(r *rig.Rig) {
		p := must.Get(onceq.NewProcessor(r.Cfg.ProcessorConfig))
		refuse(r, rig.ErrBoom)
		if d := r.Batch(r.Context(), onceq.BatchOptions{}, rig.Lasting(time.Hour, "b")...)[0]; d.Action != onceq.Nack || d.Delay < onceq.DefaultLease/2 || r.Seen.Started("b") > 0 {
			t.Errorf("the batch answers %+v, after %d starts", d, r.Seen.Started("b"))
		}
		release := make(chan struct{})
		r.Store.Set(func(s *rig.Store) { s.OnGet = func() error { <-release; return nil } })
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
	}, rig.Steered, rig.With(func(c *rig.Setup) { c.Control.Required = true }))
}

// TestRulesUnreadableLater: rules that a later version has written stay unread, the last ones stay
// in force, and Health and the card say why.
func TestRulesUnreadableLater(t *testing.T) {
	rig.Bubble(t, func(context.Context, *onceq.Job) error { return nil }, func(r *rig.Rig) {
		r.Start()
		r.Orders(10*time.Minute, ofQueue)
		rig.Pass(rig.Bound)
		refuse(r, errors.New("control: their form is 2, and this version reads 1"))
		rig.Pass(time.Minute)
		const why = "their form is 2"
		if h := r.W.Health(); h.State != onceq.StatePaused || !strings.Contains(strings.Join(h.Reasons, "; "), "operators' rules cannot be read: control: reading the rules: ") || !strings.Contains(h.Reasons[1], why) {
			t.Errorf("the worker is %+v", h)
		}
		if c := seatsOf(r)[0].Status; c == nil || c.Rules != 1 || !strings.Contains(c.NoRules, why) {
			t.Errorf("the card is %+v", c)
		}
		mend(r)
		rig.Pass(time.Minute)
		if h := r.W.Health(); len(h.Reasons) != 1 || seatsOf(r)[0].Status.NoRules != "" {
			t.Errorf("the worker is %+v", h)
		}
	}, rig.Steered)
}

// slowWatcher is an Observer that takes its time with the event of a pause.
type slowWatcher struct {
	*rig.Seen
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
	for name, pause := range map[string]func(*rig.Rig){
		"by hand":  func(r *rig.Rig) { go r.W.Pause() },
		"by rules": func(r *rig.Rig) { r.Orders(time.Hour, ofQueue) },
	} {
		watcher := &slowWatcher{Seen: &rig.Seen{}}
		rig.Bubble(t, func(ctx context.Context, _ *onceq.Job) error { <-ctx.Done(); return ctx.Err() }, func(r *rig.Rig) {
			takes := make(chan struct{})
			watcher.takes.Store(&takes)
			r.Send("runs", "waits", "waits, too")
			r.Start()
			rig.Pass(time.Second)
			if s := r.W.Stats(); s.Busy != 1 || s.Held != 2 {
				t.Fatalf("%s: %+v", name, s)
			}
			pause(r)
			rig.Pass(2 * rig.Bound)
			if s := r.W.Stats(); s.Held != 0 || s.Busy != 1 || len(s.Paused) != 1 {
				t.Errorf("%s: %+v", name, s)
			}
			if seats := seatsOf(r); len(seats) != 1 || seats[0].Status.State != "paused" {
				t.Errorf("%s: the seats are %+v", name, seats)
			}
			close(takes)
		}, rig.Steered, rig.With(func(c *rig.Setup) {
			c.Observer = watcher
			c.Concurrency, c.Prefetch, c.DrainTimeout = 1, 5, -1
		}))
	}
}

// throttled and queried are errors as AWS's SDK and as pgx answer them.
type throttled string

func (throttled) Error() string       { return "rate exceeded" }
func (c throttled) ErrorCode() string { return string(c) }

type queried string

func (q queried) Error() string    { return "ERROR (SQLSTATE " + string(q) + ")" }
func (q queried) SQLState() string { return string(q) }

// errPanics has the store panic.
var errPanics = errors.New("the store panics")

// TestSlowRulesAtBoot: a store that is slow, locked or throttled when a worker reads the rules has
// not refused them. So a worker that starts during a pause runs nothing, however long that takes.
// An error that says nothing of the kind is a refusal.
func TestSlowRulesAtBoot(t *testing.T) {
	for name, c := range map[string]struct {
		err     error // nil = it hangs until its context ends
		refuses bool
	}{
		"hangs":               {},
		"locked":              {err: fmt.Errorf("memstore: %w", dedupe.ErrBusy)},
		"times out":           {err: fmt.Errorf("read: %w", os.ErrDeadlineExceeded)},
		"throttled by AWS":    {err: fmt.Errorf("operation error DynamoDB: GetItem: %w", throttled("ThrottlingException"))},
		"a hot partition":     {err: throttled("ProvisionedThroughputExceededException")},
		"an account's limit":  {err: throttled("RequestLimitExceeded")},
		"no such table":       {err: throttled("ResourceNotFoundException"), refuses: true},
		"statement timeout":   {err: fmt.Errorf("pgstore: %w", queried("57014"))},
		"too many clients":    {err: queried("53300")},
		"a lost connection":   {err: queried("08006")},
		"a deadlock":          {err: queried("40P01")},
		"a lock's timeout":    {err: queried("55P03")},
		"a store that panics": {err: errPanics, refuses: true},
		"permission denied":   {err: queried("42501"), refuses: true},
		"an empty SQLSTATE":   {err: queried(""), refuses: true},
		"anything that fails": {err: rig.ErrBoom, refuses: true},
	} {
		t.Run(name, func(t *testing.T) {
			rig.Bubble(t, func(context.Context, *onceq.Job) error { return nil }, func(r *rig.Rig) {
				r.Orders(time.Hour, ofQueue)
				r.Store.Set(func(s *rig.Store) {
					s.OnGet = func() error {
						if c.err == nil {
							rig.Takes(5 * time.Second)
							return context.DeadlineExceeded
						}
						if errors.Is(c.err, errPanics) {
							panic(c.err)
						}
						return c.err
					}
				})
				r.Send("a")
				r.Start()
				rig.Pass(10 * time.Minute)
				if ran := r.Seen.Started("a") > 0; ran != c.refuses {
					t.Errorf("a job has run: %v, want %v", ran, c.refuses)
				}
				if h := r.W.Health(); !c.refuses && (h.State != onceq.StateStarting || !strings.Contains(fmt.Sprint(h.Reasons), "before operators' rules are read")) {
					t.Errorf("the worker is %+v", h)
				}
				mend(r)
				rig.Pass(rig.Bound)
				if h := r.W.Health(); h.State != onceq.StatePaused {
					t.Errorf("the worker is %+v, want paused", h)
				}
			}, rig.Steered)
		})
	}
}

// TestRefusalsAmongSlowRules: a store that is slow in between has not refused the rules for 30 s.
func TestRefusalsAmongSlowRules(t *testing.T) {
	rig.Bubble(t, func(context.Context, *onceq.Job) error { return nil }, func(r *rig.Rig) {
		r.Orders(time.Hour, ofQueue)
		began := time.Now()
		r.Store.Set(func(s *rig.Store) {
			s.OnGet = func() error {
				if time.Since(began)%(20*time.Second) < 10*time.Second {
					return rig.ErrBoom
				}
				return dedupe.ErrBusy
			}
		})
		r.Send("a")
		r.Start()
		rig.Pass(10 * time.Minute)
		r.WantOutcomes("a")
		if h := r.W.Health(); h.State != onceq.StateStarting {
			t.Errorf("the worker is %+v", h)
		}
	}, rig.Steered, rig.Warnings)
}

// TestRulesReadHangsLater: a read that does not come back is told of, also of a worker that has
// read the rules before.
func TestRulesReadHangsLater(t *testing.T) {
	rig.Bubble(t, func(context.Context, *onceq.Job) error { return nil }, func(r *rig.Rig) {
		r.Send("a")
		r.Start()
		rig.Pass(time.Second)
		release := make(chan struct{})
		r.Store.Set(func(s *rig.Store) { s.OnGet = func() error { <-release; return nil } })
		rig.Pass(time.Minute)
		if h := r.W.Health(); h.State != onceq.StateRunning || !strings.Contains(fmt.Sprint(h.Reasons), "operators' rules cannot be read") {
			t.Errorf("the worker is %+v", h)
		}
		if n := r.Logged.Count("level=WARN", "the last ones stay in force", "has not come back"); n != 1 {
			t.Errorf("the log tells %d times of it, want once", n)
		}
		close(release)
		rig.Pass(time.Minute)
		if h := r.W.Health(); len(h.Reasons) != 0 {
			t.Errorf("the worker is %+v", h)
		}
	}, rig.Steered)
}

// lateAnswer gives one answer of Get late, as it was when it was asked.
type lateAnswer struct {
	dedupe.Store
	armed atomic.Bool
	asked chan struct{} // closed when that Get has read
}

func (s *lateAnswer) Get(ctx context.Context, ks []dedupe.Key) ([]*dedupe.Record, error) {
	rs, err := s.Store.Get(ctx, ks)
	if ks[0].Key == "rules" && s.armed.CompareAndSwap(true, false) {
		close(s.asked)
		rig.Takes(4 * time.Second)
	}
	return rs, err
}

// TestOldRulesComeLate: two workers of a Processor read the rules, and the answer to the older read
// comes last. It must not end a pause that the newer one has brought.
func TestOldRulesComeLate(t *testing.T) {
	rig.Bubble(t, func(context.Context, *onceq.Job) error { return nil }, func(r *rig.Rig) {
		late := &lateAnswer{Store: r.Store, asked: make(chan struct{})}
		c := r.Cfg
		c.Store, c.CallTimeout = late, time.Minute
		p := must.Get(onceq.NewProcessor(c.ProcessorConfig))
		ctx, stop := context.WithCancel(r.Context())
		done := make(chan error, 2)
		var ws []*onceq.Worker
		for _, name := range []string{"one", "two"} {
			c.WorkerConfig.Name = name
			w := must.Get(p.Worker(rig.NewQueue(t, membroker.Options{}), c.WorkerConfig))
			ws = append(ws, w)
			go func() { done <- w.Run(ctx) }()
		}
		rig.Pass(time.Second)
		late.armed.Store(true)
		<-late.asked
		r.Orders(time.Hour, ofQueue)
		// The other worker reads within a second. The old answer comes after 4 s, and the worker
		// that has asked for it looks at the rules then; nobody reads again before 9 s are over.
		rig.Pass(6 * time.Second)
		for i, w := range ws {
			if h := w.Health(); h.State != onceq.StatePaused || !strings.Contains(fmt.Sprint(h.Reasons), "SMTP migration") {
				t.Errorf("worker %d is %+v, want paused", i, h)
			}
		}
		stop()
		for range ws {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	}, rig.Steered)
}

// TestFleetAfterPause: workers that all know when a pause ends do not go on in one instant.
func TestFleetAfterPause(t *testing.T) {
	rig.Bubble(t, func(context.Context, *onceq.Job) error { return nil }, func(r *rig.Rig) {
		var mu sync.Mutex
		resumed := make(map[time.Duration]bool) // since the end of the pause
		var end time.Time
		const workers = 8
		ctx, stop := context.WithCancel(r.Context())
		done := make(chan error, workers)
		for n := range workers {
			w := r.Worker(func(c *rig.Setup) {
				c.Owner, c.Observer = fmt.Sprint("w-", n), resumes(func() {
					mu.Lock()
					defer mu.Unlock()
					resumed[time.Since(end)] = true
				})
			})
			go func() { done <- w.Run(ctx) }()
		}
		rig.Pass(time.Second)
		end = time.Now().Add(time.Minute)
		r.Orders(time.Minute, ofQueue)
		rig.Pass(2 * time.Minute)
		mu.Lock()
		if len(resumed) != workers {
			t.Errorf("%d workers went on at %d times", workers, len(resumed))
		}
		for d := range resumed {
			if d < 0 || d > 6*time.Second {
				t.Errorf("a worker went on %v after the end", d)
			}
		}
		mu.Unlock()
		stop()
		for range workers {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	}, rig.Steered, rig.Warnings)
}

// resumes is an Observer that is told when its worker goes on after a pause.
type resumes func()

func (resumes) JobStarted(ctx context.Context, _ *onceq.Job) context.Context { return ctx }
func (resumes) JobEnded(context.Context, *onceq.JobReport)                   {}
func (f resumes) WorkerEvent(_ context.Context, e *onceq.WorkerEvent) {
	if e.Kind == onceq.EventResumed {
		f()
	}
}
