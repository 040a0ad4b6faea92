package fan_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/fan"
	"github.com/onceq/onceq/internal/coretest/rig"
	"github.com/onceq/onceq/internal/faulty"
	"github.com/onceq/onceq/onceqtest"
)

// What a fan does beside the other things that there are: outages, drains, timeouts, Park, Do,
// batches, expiry.

// TestSendFails: what the queue refuses is sent again, and a parent that gets further uses no
// attempt, however often the queue fails.
func TestSendFails(t *testing.T) {
	for name, c := range map[string]struct {
		fault    func(call onceqtest.Call, at time.Duration) faulty.Faults
		attempts int
	}{
		"an entry of each third call": {func(c onceqtest.Call, _ time.Duration) faulty.Faults {
			if c.N%3 != 0 {
				return nil
			}
			return faulty.Fail(rig.ErrBoom).Only(c.N % c.Entries)
		}, 1},
		"away for ten seconds": {func(_ onceqtest.Call, at time.Duration) faulty.Faults {
			if at > 10*time.Second {
				return nil
			}
			return faulty.Fail(rig.ErrBoom)
		}, 12},
		"a panic": {func(c onceqtest.Call, _ time.Duration) faulty.Faults {
			if c.N > 1 {
				return nil
			}
			return faulty.Panic("boom")
		}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, 2005, func(w *family) {
				began, calls := time.Now(), 0
				w.children.SetFault(func(_ context.Context, call onceqtest.Call) faulty.Faults {
					if call.Op != onceqtest.Letter && call.Op != onceqtest.Send {
						return nil
					}
					calls++
					call.N = calls
					return c.fault(call, time.Since(began))
				})
				w.Send("p")
				w.RunFor(2 * time.Minute)
				w.wants("p")
				if got := w.Record("p").Attempt; got > c.attempts {
					t.Errorf("the parent has used %d attempts, want at most %d", got, c.attempts)
				}
			}, rig.Steady, rig.Most(20))
		})
	}
}

// TestMessageFails: an error and a panic of Message are the parent's own, and what it has sent
// before stays sent.
func TestMessageFails(t *testing.T) {
	for name, fail := range map[string]func() error{
		"error": func() error { return rig.ErrBoom },
		"panic": func() error { panic("boom") },
	} {
		t.Run(name, func(t *testing.T) {
			play(t, 700, func(w *family) {
				fails := 2
				w.c.Message = func(i int) (broker.Outgoing, error) {
					if i == 600 && fails > 0 {
						fails--
						return broker.Outgoing{}, fail()
					}
					return number(i)
				}
				w.Send("p")
				w.RunFor(time.Minute)
				w.wants("p")
				// The first failure came behind a part that was sent, where it is an error.
				if got, most := w.Record("p").Attempt, 3; got > most {
					t.Errorf("the parent has used %d attempts, want at most %d", got, most)
				}
			}, rig.Steady)
		})
	}
}

// TestUnproven: a child without a record whose time is over may have been done and forgotten. The
// parent says so, and does not wait for ever.
func TestUnproven(t *testing.T) {
	const keeps = 5 * 24 * time.Hour
	for name, c := range map[string]struct {
		set   func(w *family)
		least time.Duration
	}{
		"forgotten": {func(w *family) {
			w.works(func(ctx context.Context, j *onceq.Job, i int) error {
				if i == 0 {
					return onceq.Sleep(ctx, j, "long", 6*24*time.Hour)
				}
				return nil
			})
		}, keeps},
		"another scope": {func(w *family) { w.c.Scope = "chlidren" }, keeps},
		"due later":     {func(w *family) { w.c.Scope, w.c.Message = "chlidren", dueIn(3*24*time.Hour) }, keeps + 3*24*time.Hour},
		"its worker died, and its message is lost": {func(w *family) {
			w.c.Scope = "others"
			q := dedupe.ClaimRequest{Key: dedupe.Key{Scope: "others", Key: childKey(0).Key}, Token: dedupe.Token{1}, TTL: time.Minute, MessageID: "m"}
			if _, err := w.Store.Claim(w.Context(), []dedupe.ClaimRequest{q}); err != nil {
				w.Fatal(err)
			}
		}, keeps},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, 2, func(w *family) {
				c.set(w)
				w.Send("p")
				w.Start()
				rig.Pass(c.least - time.Hour)
				w.WantStatus("p", dedupe.Released)
				rig.Pass(13 * time.Hour)
				l := w.Letter(onceq.ClassUnproven)
				if !strings.Contains(l.Meta.Dead.LastErr, "Do its workers use the scope") {
					t.Errorf("the error is %q", l.Meta.Dead.LastErr)
				}
			}, rig.With(func(c *rig.Setup) { c.Retention = keeps }), rig.Warnings)
		})
	}
}

func dueIn(d time.Duration) func(int) (broker.Outgoing, error) {
	return func(i int) (broker.Outgoing, error) {
		m, err := number(i)
		m.Meta.NotBefore = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).Add(d)
		return m, err
	}
}

// TestOtherRetention: children that are forgotten sooner than their parent fail it as soon as one
// of them must be taken for forgotten, and not after the parent's own Retention. One that the
// parent has seen done does not.
func TestOtherRetention(t *testing.T) {
	for slow, ends := range []dedupe.Status{dedupe.Failed, dedupe.Done} {
		w := &family{ran: map[int]int{}}
		out := func(ctx context.Context, j *onceq.Job) error { return fan.Out(ctx, j, w.Store, "parts", w.c) }
		rig.Bubble(t, out, func(r *rig.Rig) {
			w.Rig = r
			w.children, w.letters = rig.NewBroker(t, membroker.Options{Name: "children"}), rig.NewBroker(t, membroker.Options{Name: "letters"})
			w.c = fan.Children{To: w.children, Scope: childScope, N: 2, Message: number}
			stop := r.Beside(func(c *rig.Setup) {
				c.Handler, c.Scope, c.Broker, c.DeadLetter, c.Retention = onceq.JSONResult(w.child), childScope, w.children, w.letters, 24*time.Hour
			})
			w.works(func(ctx context.Context, j *onceq.Job, i int) error {
				if i != slow {
					return nil
				}
				return onceq.Sleep(ctx, j, "longer than the other one is kept", 36*time.Hour)
			})
			w.Send("p")
			w.Start()
			rig.Pass(24 * time.Hour)
			w.WantStatus("p", dedupe.Released)
			rig.Pass(24 * time.Hour)
			if w.WantStatus("p", ends); ends == dedupe.Failed {
				w.Letter(onceq.ClassUnproven)
			}
			stop()
		}, rig.Warnings)
	}
}

// TestSentLate: a parent that died between a send and its save sends the part again, however late.
// Its children are of the time at which the fan began, so none of them runs when its key is
// forgotten. The parent says that nobody can tell, whether or not a worker has refused them by
// then, and left a record of that.
func TestSentLate(t *testing.T) {
	for _, refused := range []bool{false, true} {
		t.Run(fmt.Sprint("refused=", refused), func(t *testing.T) { sentLate(t, refused) })
	}
}

func sentLate(t *testing.T, refused bool) {
	t.Helper()
	play(t, 2, func(w *family) {
		w.Send("p")
		p, store, queue := rig.Mortal(w.Store, w.Q)
		p.At(onceqtest.Fault{Op: onceqtest.Send, Kind: onceqtest.CrashAfter})
		c := w.c
		c.To = p.Producer(w.children)
		stop := w.Beside(func(s *rig.Setup) {
			s.Store, s.Broker, s.DeadLetter = store, queue, p.Sender(w.DLQ)
			s.Handler = p.Handler(onceq.HandlerFunc(func(ctx context.Context, j *onceq.Job) error { return w.totalOf(ctx, j, store, c) }))
		})
		rig.Pass(30 * time.Hour)
		stop()
		if refused {
			w.c.To = slowly{w.children} // its workers are faster
		}
		w.RunFor(time.Hour)
		w.Letter(onceq.ClassUnproven)
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.ran[0] != 1 || w.ran[1] != 1 {
			t.Errorf("the children began %v times, want once", w.ran)
		}
	}, rig.Warnings, rig.With(func(c *rig.Setup) { c.Retention = 24 * time.Hour }))
}

// TestWrongScope: after a minute the log asks for the scope, with a key to look up.
func TestWrongScope(t *testing.T) {
	play(t, 5, func(w *family) {
		w.c.Scope = "chlidren"
		w.Send("p")
		w.RunFor(50 * time.Second)
		const asks = "do their workers use the scope"
		if n := w.Logged.Count("p/parts/", asks); n > 0 {
			t.Errorf("%d lines ask for the scope before a minute is over", n)
		}
		w.RunFor(20 * time.Second)
		if w.Logged.Count("chlidren/"+childKey(0).Key, asks) == 0 {
			t.Errorf("no line asks for the scope: %q", w.Logged.Lines("00:01:07"))
		}
	})
}

// slowly is a queue that answers after a second.
type slowly struct{ broker.Sender }

func (s slowly) Send(ctx context.Context, ms []broker.Outgoing) ([]string, error) {
	ids, err := s.Sender.Send(ctx, ms)
	select {
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-time.After(time.Second):
	}
	return ids, err
}

// TestCutShort: a drain amid the sends, and a Timeout that is too short for them, cost no attempt,
// and under Park nothing is parked. Each child is sent once.
func TestCutShort(t *testing.T) {
	for name, o := range map[string][]rig.Option{
		"drain":           nil,
		"drain, parks":    {rig.Parks},
		"timeout":         {rig.With(func(c *rig.Setup) { c.Defaults.Timeout = 20 * time.Second })},
		"timeout, parks":  {rig.Parks, rig.With(func(c *rig.Setup) { c.Defaults.Timeout = 20 * time.Second })},
		"a short timeout": {rig.With(func(c *rig.Setup) { c.Defaults.Timeout = 8 * time.Second })},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, 3000, func(w *family) {
				w.c.To = slowly{w.children} // 6 parts of some seconds each
				w.Send("p")
				if strings.HasPrefix(name, "drain") {
					w.RunFor(8 * time.Second)
				}
				w.RunFor(2 * time.Minute)
				w.wants("p")
				if got := w.Record("p").Attempt; got != 1 {
					t.Errorf("the parent has used %d attempts, want 1", got)
				}
			}, o...)
		})
	}
}

// TestParentParked: under Park a parent that dies amid its sends is parked, as any job is. Its
// replay goes on, and no child runs twice.
func TestParentParked(t *testing.T) {
	play(t, 1500, func(w *family) {
		p := new(onceqtest.Process)
		c := w.c
		c.To = p.Producer(w.children)
		p.At(onceqtest.Fault{Op: onceqtest.Send, N: 8, Kind: onceqtest.CrashAfter})
		stop := w.Beside(func(s *rig.Setup) {
			s.Store, s.Broker, s.DeadLetter = p.Store(w.Store), p.Receiver(w.Q), p.Sender(w.DLQ)
			s.Handler = p.Handler(onceq.HandlerFunc(func(ctx context.Context, j *onceq.Job) error {
				_ = w.totalOf(ctx, j, w.Store, c)
				<-ctx.Done()
				return context.Cause(ctx)
			}))
		})
		w.Send("p")
		rig.Pass(10 * time.Second)
		stop()
		w.Start()
		rig.Pass(2 * time.Minute)
		w.WantStatus("p", dedupe.Parked)
		w.Replay(w.Letter(onceq.ClassInterrupted))
		rig.Pass(time.Minute)
		w.wants("p")
	}, rig.Parks)
}

// TestDoAndBatches: in Do each call goes on where the one before was, and a batch gives the parent
// back with its delay.
func TestDoAndBatches(t *testing.T) {
	play(t, 10, func(w *family) {
		w.works(after(5 * time.Second))
		p, err := onceq.NewProcessor(onceq.ProcessorConfig{Store: w.Store, Scope: rig.Scope})
		if err != nil {
			t.Fatal(err)
		}
		for n := 0; ; n++ {
			_, err := onceq.Do(w.Context(), p, rig.Key("p"), nil, func(ctx context.Context, j *onceq.Job) (int, error) {
				return 0, w.total(ctx, j)
			})
			if err == nil {
				break
			}
			if n > 10 || !strings.Contains(err.Error(), "of 10 children are done") {
				t.Fatal(err)
			}
			rig.Pass(time.Second)
		}
		w.wants("p")
	})
	play(t, 10, func(w *family) {
		w.works(after(100 * time.Millisecond)) // at once they could be done before the parent looks
		ds := rig.Deliveries("p")
		got := w.Process(w.Context(), ds...)
		w.WantEnds(got, "postponed")
		if got[0].Delay != time.Second || got[0].Action != onceq.Nack {
			t.Errorf("the parent got %v with a delay of %v, want a nack with 1 s", got[0].Action, got[0].Delay)
		}
		rig.Pass(time.Second)
		w.WantEnds(w.Process(w.Context(), ds...), "done")
		w.wants("p")
	})
}

// TestWithoutAStore: nothing is sent where nothing can be kept.
func TestWithoutAStore(t *testing.T) {
	var seen []error
	synctest.Test(t, func(t *testing.T) {
		q := rig.NewBroker(t, queueOf("children"))
		c := fan.Children{To: q, Scope: childScope, N: 2, Message: number}
		r := rig.New(t, func(ctx context.Context, j *onceq.Job) error {
			seen = append(seen, fan.Out(ctx, j, rig.NewStore(t), "x", c), fan.Out(ctx, j, onceq.NoStore, "x", c), fan.Out(ctx, j, nil, "x", c))
			return nil
		}, rig.NoStore)
		r.Send("p")
		r.RunFor(time.Second)
		seen = append(seen, fan.Out(t.Context(), nil, r.Store, "x", c), fan.Out(t.Context(), &onceq.Job{}, r.Store, "x", c))
		if n := rig.Depth(t, q); n != 0 {
			t.Errorf("%d children were sent", n)
		}
		rig.Pass(time.Minute)
	})
	for i, err := range seen {
		if want := i == 0 || i == 1 || i == 4; err == nil || errors.Is(err, onceq.ErrNoStore) != want {
			t.Errorf("case %d: the error is %v", i, err)
		}
	}
	if len(seen) != 5 {
		t.Errorf("%d cases, want 5", len(seen))
	}
}

// TestResults: what a child has not left is an error, and never a zero value in a sum.
func TestResults(t *testing.T) {
	for name, c := range map[string]struct {
		class string
		spoil func(w *family)
		read  func(ctx context.Context, j *onceq.Job, w *family) error
	}{
		"forgotten": {onceq.ClassUnproven, func(w *family) {
			if _, err := w.Store.Forget(w.Context(), []dedupe.Forgotten{{Key: childKey(1), Fence: w.of(1).Fence}}); err != nil {
				w.Fatal(err)
			}
		}, first[int]},
		"another type": {onceq.ClassResult, func(*family) {}, first[bool]},
		"store away":   {onceq.ClassError, func(w *family) { w.Store.Fails(rig.ErrBoom, onceqtest.Get) }, first[int]},
		"no such fan": {onceq.ClassConfig, func(*family) {}, func(ctx context.Context, j *onceq.Job, w *family) error {
			for _, err := range fan.Results[int](ctx, j, w.Store, "other") {
				return err
			}
			return nil
		}},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, 3, func(w *family) {
				var seen error
				stop := w.Beside(func(s *rig.Setup) {
					s.Handler = onceq.HandlerFunc(func(ctx context.Context, j *onceq.Job) error {
						if err := fan.Out(ctx, j, w.Store, "parts", w.c); err != nil {
							return err
						}
						c.spoil(w)
						seen = c.read(ctx, j, w)
						w.Store.Heals()
						return nil
					})
				})
				w.Send("p")
				rig.Pass(5 * time.Second)
				stop()
				if class := onceq.ClassOf(seen); class != c.class {
					t.Errorf("the error %v has the class %q, want %q", seen, class, c.class)
				}
			})
		})
	}
}

// first is the first error of the results, and checks that nothing comes after it.
func first[R any](ctx context.Context, j *onceq.Job, w *family) (seen error) {
	for _, err := range fan.Results[R](ctx, j, w.Store, "parts") {
		if seen != nil {
			w.Error("the results go on after an error")
		}
		seen = err
	}
	return seen
}
