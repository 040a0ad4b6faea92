package ops_test

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

	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/control"
	"github.com/onceq/onceq/dlq"
	"github.com/onceq/onceq/ops"
)

func (r *rig) board(o *ops.Ops, bo *ops.BoardOptions) *ops.Board {
	r.Helper()
	b := must(ops.NewBoard(o, bo))
	r.Cleanup(func() {
		if err := b.Close(context.Background()); err != nil {
			r.Error(err)
		}
	})
	return b
}

// view looks at the board as a page does, until ctx ends. It answers how many snapshots it saw.
func view(ctx context.Context, b *ops.Board) (seen int) {
	last := uint64(0)
	for {
		changed := b.Changed()
		s, err := b.Look(ctx)
		if err != nil {
			return seen
		}
		if s.Number > last {
			last = s.Number
			seen++
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return seen
		}
	}
}

// TestBoardAsksOnce: fifty viewers of five queues with 200 workers cost the queues and the store
// what one does, each sees each snapshot, and when they have gone nothing is asked any more.
func TestBoardAsksOnce(t *testing.T) {
	costs := map[int]int64{}
	for _, viewers := range []int{1, 50} {
		bubble(t, ops.Options{}, func(r *rig) {
			o, asks := r.seated(5, 40, 0)
			b := r.board(o, nil)
			cost := func() (n int64) {
				for _, a := range asks {
					n += a.depths.Load()
				}
				return n + r.store.Gets.Load()
			}
			before := cost()
			r.wait(time.Minute)
			if n := cost() - before; n != 0 {
				t.Errorf("%d requests before anybody looked", n)
			}
			ctx, leave := context.WithTimeout(r.Context(), time.Minute-time.Second)
			defer leave()
			var all sync.WaitGroup
			for range viewers {
				all.Go(func() {
					if n := view(ctx, b); n != 12 {
						t.Errorf("a viewer saw %d snapshots in a minute, want 12", n)
					}
				})
			}
			all.Wait()
			costs[viewers] = cost() - before
			r.wait(time.Minute)
			idle := cost()
			r.wait(time.Hour)
			if n := cost() - idle; n != 0 {
				t.Errorf("%d requests after all had gone", n)
			}
			s := must(b.Look(r.Context()))
			if age := time.Since(s.At); age != 0 || s.Queue("queue-4").Sum.Live+s.Queue("queue-4").Sum.Dead != 40 || s.Queue("none") != nil {
				t.Errorf("after an hour the board shows what is %v old", age)
			}
		})
	}
	if costs[1] == 0 || costs[1] != costs[50] {
		t.Errorf("one viewer costs %d requests, fifty cost %d", costs[1], costs[50])
	}
}

// hung is a queue whose depth never comes.
type hung struct{ broker.Broker }

func (h hung) Unwrap() any { return h.Broker }

func (h hung) Depth(ctx context.Context) (broker.Depth, error) {
	<-ctx.Done()
	return broker.Depth{}, ctx.Err()
}

// TestBoardOfAHungQueue: a queue that does not answer has an error, and the others their numbers,
// in each look. Who waits for a first look may go away; the look goes on for the others.
func TestBoardOfAHungQueue(t *testing.T) {
	bubble(t, ops.Options{}, func(r *rig) {
		dead := hung{must(membroker.New(&membroker.Options{Name: "dead"}))}
		o := must(ops.New([]ops.Target{{Name: "a", Queue: r.queue, Store: r.store}, {Name: "b", Queue: dead, Store: r.store}}, nil))
		b := r.board(o, nil)
		ctx, leave := context.WithTimeout(r.Context(), time.Second)
		defer leave()
		if _, err := b.Look(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		for range 4 {
			began := time.Now()
			s := must(b.Look(r.Context()))
			if time.Since(began) > 5*time.Second || s.Took > 5*time.Second || s.Queues[0].Depth == nil || s.Queues[1].DepthErr == nil {
				t.Errorf("after %v: %+v", time.Since(began), s)
			}
			if x := s.Queues[1].Samples; x[len(x)-1].Waiting != -1 || s.Queues[0].Samples[0].Waiting != 0 || x[0].Letters != -1 || x[0].PerMinute != -1 || x[0].Failing != -1 {
				t.Errorf("%+v", x)
			}
			<-b.Changed()
		}
	})
}

// TestBoardReadsRules: who has made a rule sees it at once, also where a look was under way that
// has read the rules before, and its end as well.
func TestBoardReadsRules(t *testing.T) {
	bubble(t, ops.Options{By: "ana"}, func(r *rig) {
		slow := hung{must(membroker.New(&membroker.Options{Name: "slow"}))}
		o := must(ops.New([]ops.Target{{Name: "a", Queue: r.queue, Store: r.store}, {Name: "b", Queue: slow, Store: r.store}}, &ops.Options{By: "ana"}))
		b := r.board(o, nil)
		b.ReadRules(r.Context()) // nobody has looked yet
		must(b.Look(r.Context()))
		r.wait(time.Second) // the next look has read the rules, and waits for the depth
		unfollowed := &ops.RuleOptions{Follow: -1}
		f := must(o.Pause(r.Context(), control.Rule{Queue: "a", Until: time.Now().Add(time.Hour), Reason: "INC-1"}, unfollowed))
		shows := func(want bool) {
			t.Helper()
			s := must(b.Look(r.Context()))
			for i := range s.Queues {
				q := &s.Queues[i]
				if is := q.Queue == "a" && want; (q.Paused != nil) != is || (len(q.Rules) == 1) != is || is && q.Version != f.Version {
					t.Errorf("%s at %v: %+v of version %d, want %v", q.Queue, time.Now(), q.Rules, q.Version, is)
				}
			}
		}
		b.ReadRules(r.Context())
		shows(true)
		for range 3 {
			<-b.Changed()
			shows(true)
		}
		f = must(o.Resume(r.Context(), ops.ResumeSpec{Queue: "a", Rule: f.Rules[0].ID, Reason: "INC-1"}, unfollowed))
		b.ReadRules(r.Context())
		shows(false)
		<-b.Changed()
		shows(false)
	})
}

// TestBoardKeepsSamples: the last ones are kept, in order, and what one viewer holds no later look
// changes.
func TestBoardKeepsSamples(t *testing.T) {
	bubble(t, ops.Options{}, func(r *rig) {
		b := r.board(r.ops, &ops.BoardOptions{Every: time.Second, Samples: 5})
		var held [][]ops.Sample
		for n := range 40 {
			s := must(b.Look(r.Context())).Queues[0].Samples
			if want := min(n+1, 5); len(s) != want {
				t.Fatalf("%d samples after %d looks", len(s), n+1)
			}
			if held = append(held, s); s[len(s)-1].Waiting != int64(n) {
				t.Errorf("%+v after %d looks", s[len(s)-1], n+1)
			}
			must(r.queue.Send(r.Context(), []broker.Outgoing{{Body: []byte("x")}}))
			<-b.Changed()
		}
		for n, s := range held {
			for i := range s {
				if want := int64(n + 1 - len(s) + i); s[i].Waiting != want {
					t.Errorf("look %d, sample %d has %d, want %d", n, i, s[i].Waiting, want)
				}
			}
		}
	})
}

// TestBoardOptions: what makes no sense is refused with the field's name.
func TestBoardOptions(t *testing.T) {
	o := must(ops.New([]ops.Target{{Name: "a"}}, nil))
	for want, f := range map[string]func() (*ops.Board, error){
		"the Ops is nil":              func() (*ops.Board, error) { return ops.NewBoard(nil, nil) },
		"Every is 5ns, want 1s":       func() (*ops.Board, error) { return ops.NewBoard(o, &ops.BoardOptions{Every: 5}) },
		"Samples is -1, want 1 to 10": func() (*ops.Board, error) { return ops.NewBoard(o, &ops.BoardOptions{Samples: -1}) },
	} {
		if _, err := f(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	b := must(ops.NewBoard(o, nil))
	if _, err := b.Pass("a"); !errors.Is(err, ops.ErrMissing) {
		t.Error(err)
	}
	if _, err := b.Letters("b"); !errors.Is(err, ops.ErrUnknownQueue) {
		t.Error(err)
	}
	for range 2 {
		if err := b.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if _, err := b.Look(t.Context()); !errors.Is(err, ops.ErrClosed) {
		t.Error(err)
	}
}

// letters puts n letters, of so many kinds.
func (r *rig) letters(n, kinds int) {
	r.Helper()
	for i := range n {
		d := &broker.Letter{Fence: uint64(i + 1), Class: fmt.Sprint("class-", i%kinds), LastErr: "no answer", Source: "orders", Scope: "orders", Key: fmt.Sprint("k-", i), At: time.Now().Add(-time.Duration(i) * time.Minute)}
		must(r.dead.Send(r.Context(), []broker.Outgoing{{Body: []byte("secret"), Meta: &broker.Meta{ID: fmt.Sprint("j-", i), Key: fmt.Sprint("k-", i), Type: "charge", Dead: d}}}))
	}
}

// passed waits for the end of a pass.
func (r *rig) passed(b *ops.Board) *ops.LettersLook {
	r.Helper()
	for {
		changed := b.Changed()
		if l := must(b.Letters("orders")); l != nil && !l.Ended.IsZero() {
			return l
		}
		<-changed
	}
}

// slow is a dead-letter queue whose receives take a while.
type slow struct {
	broker.Broker
	each     time.Duration
	receives atomic.Int64
}

func (s *slow) Unwrap() any { return s.Broker }

func (s *slow) Receive(ctx context.Context, o broker.ReceiveOptions) ([]*broker.Message, error) {
	s.receives.Add(1)
	<-time.After(s.each)
	return s.Broker.Receive(ctx, o)
}

// behind is the rig's target with a slow dead-letter queue.
func (r *rig) behind(each time.Duration, o ops.Options) (*ops.Ops, *slow) {
	s := &slow{Broker: r.dead, each: each}
	return must(ops.New([]ops.Target{{Name: "orders", Queue: r.queue, DeadLetters: s, Store: r.store}}, &o)), s
}

// TestBoardPass: one pass serves all who look, shows what it has found while it goes on, hides what
// Redact hides, goes on when they have gone, and leaves the letters where they were.
func TestBoardPass(t *testing.T) {
	hide := func(m *broker.Message) {
		m.Body = []byte("hidden")
		m.Meta.Dead.LastErr = "hidden"
	}
	bubble(t, ops.Options{}, func(r *rig) {
		r.letters(300, 3)
		o, q := r.behind(100*time.Millisecond, ops.Options{Redact: hide})
		b := r.board(o, nil)
		if l := must(b.Letters("orders")); l != nil {
			t.Errorf("%+v before any pass", l)
		}
		begun := 0
		for range 50 {
			if must(b.Pass("orders")) {
				begun++
			}
		}
		began := time.Now()
		var numbers []uint64
		for {
			changed := b.Changed()
			l := must(b.Letters("orders"))
			if l != nil {
				numbers = append(numbers, l.Number)
			}
			if l != nil && len(l.Groups) > 0 {
				if d := time.Since(began); d > time.Second || l.Seen == 300 || !l.Ended.IsZero() || l.About != 300 {
					t.Errorf("first groups after %v, %d of %d seen", d, l.Seen, l.About)
				}
				break
			}
			<-changed
		}
		l := r.passed(b)
		if begun != 1 || q.receives.Load() > 40 || l.Err != nil || l.Seen != 300 || l.About != 300 || len(l.Groups) != 3 || l.More != 0 || l.Number <= numbers[0] {
			t.Errorf("%d begun, %d receives: %+v", begun, q.receives.Load(), l)
		}
		g := l.Group(l.Groups[1].Group.Group)
		if g.Count != 100 || g.Types["charge"] != 100 || g.Error != "hidden" || g.Sample != "hidden" || len(g.Letters) != 50 || string(g.Letters[0].Message.Body) != "hidden" || l.Group("none") != nil {
			t.Errorf("%+v", g.Group)
		}
		sum := 0
		for i, x := range g.Bars {
			if sum += x.N; x.At.Truncate(5*time.Minute) != x.At || i > 0 && !x.At.After(g.Bars[i-1].At) {
				t.Errorf("bar %d is %+v", i, x)
			}
		}
		if sum != 100 || len(g.Bars) < 60 {
			t.Errorf("%d failures in %d bars", sum, len(g.Bars))
		}
		r.wantDepths(300, 0)
		if !must(b.Pass("orders")) {
			t.Error("no second pass")
		}
		r.passed(b)
	})
}

// TestBoardPassKeepsLittle: of many kinds and of large letters a pass keeps a part, and says so.
func TestBoardPassKeepsLittle(t *testing.T) {
	bubble(t, ops.Options{}, func(r *rig) {
		r.letters(1200, 600)
		d := broker.Letter{Fence: 1, Class: "large", Scope: "orders", At: time.Now()}
		for i := range 200 {
			d := d
			d.Key = fmt.Sprint("large-", i)
			must(r.dead.Send(r.Context(), []broker.Outgoing{{Body: make([]byte, 200_000), Meta: &broker.Meta{ID: d.Key, Dead: &d}}}))
		}
		b := r.board(r.ops, nil)
		must(b.Pass("orders"))
		l := r.passed(b)
		bytes := 0
		for _, g := range l.Groups {
			for _, e := range g.Letters {
				bytes += len(e.Message.Body)
			}
		}
		if l.Seen != 1400 || len(l.Groups) != 500 || l.More != 101 || l.MoreLetters != 202 || l.Groups[0].Count != 200 || bytes > 8<<20 || len(l.Groups[0].Letters) == 50 {
			t.Errorf("%d seen, %d groups, %d more with %d letters, %d bytes, %d of the large ones kept", l.Seen, len(l.Groups), l.More, l.MoreLetters, bytes, len(l.Groups[0].Letters))
		}
	})
}

// TestBoardTurns: while somebody goes through the letters by himself no pass does, and a pass is
// waited for.
func TestBoardTurns(t *testing.T) {
	bubble(t, ops.Options{}, func(r *rig) {
		r.letters(50, 1)
		o, _ := r.behind(100*time.Millisecond, ops.Options{By: "ana"})
		b := r.board(o, nil)
		at := 0
		if err := b.WithLetters(r.Context(), "orders", func(ctx context.Context) error {
			must(b.Pass("orders"))
			r.wait(time.Minute)
			if l := must(b.Letters("orders")); l != nil {
				t.Errorf("a pass went on beside it: %+v", l)
			}
			at++
			return nil
		}); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		ctx, leave := context.WithTimeout(r.Context(), 50*time.Millisecond)
		defer leave()
		if err := b.WithLetters(ctx, "orders", func(context.Context) error { at = 100; return nil }); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		var p *ops.ReplayPlan
		if err := b.WithLetters(r.Context(), "orders", func(ctx context.Context) (err error) {
			p, err = o.PlanReplay(ctx, ops.ReplaySpec{Queue: "orders", Reason: "x"})
			return err
		}); err != nil || len(p.Letters) != 50 || at != 1 {
			t.Errorf("%v, a plan of %d letters, %d", err, len(p.Letters), at)
		}
	})
}

// TestBoardPassEnds: a pass that Redact breaks, or that Close ends, gives its letters back at once.
func TestBoardPassEnds(t *testing.T) {
	boom := func(m *broker.Message) { panic("boom") }
	bubble(t, ops.Options{Redact: boom}, func(r *rig) {
		r.letters(20, 1)
		b := r.board(r.ops, nil)
		must(b.Pass("orders"))
		if l := r.passed(b); l.Err == nil || !strings.Contains(l.Err.Error(), "boom") {
			t.Error(l.Err)
		}
		r.wantDepths(20, 0)
	})
	bubble(t, ops.Options{}, func(r *rig) {
		r.letters(300, 1)
		o, _ := r.behind(time.Second, ops.Options{})
		b := must(ops.NewBoard(o, nil))
		must(b.Pass("orders"))
		r.wait(5 * time.Second)
		began := time.Now()
		if err := b.Close(r.Context()); err != nil || time.Since(began) > 5*time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		if l := must(b.Letters("orders")); !errors.Is(l.Err, dlq.ErrStopped) || l.Ended.IsZero() || l.Seen == 0 || l.Seen == 300 {
			t.Errorf("%+v", l)
		}
		r.wantDepths(300, 0)
		if _, err := b.Pass("orders"); !errors.Is(err, ops.ErrClosed) {
			t.Error(err)
		}
	})
	// Close ends what hangs, too: its caller's patience bounds it.
	bubble(t, ops.Options{}, func(r *rig) {
		r.letters(10, 1)
		o, _ := r.behind(time.Hour, ops.Options{})
		b := must(ops.NewBoard(o, nil))
		must(b.Pass("orders"))
		r.wait(time.Second)
		ctx, leave := context.WithTimeout(r.Context(), 3*time.Second)
		defer leave()
		if err := b.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		r.wait(2 * time.Hour)
	})
}

// TestBoardPassBesideAnAct: a pass that held the letters would make an act take them for gone. So
// an act waits for a pass, and while it goes on nobody else goes through its letters; then anybody
// may.
func TestBoardPassBesideAnAct(t *testing.T) {
	bubble(t, ops.Options{}, func(r *rig) {
		r.letters(400, 1)
		o, _ := r.behind(time.Second, ops.Options{By: "ana"})
		b := r.board(o, nil)
		x := r.running(&ops.RunningOptions{Board: b})
		spec := ops.ReplaySpec{Queue: "orders", Reason: "x", ReplayOptions: dlq.ReplayOptions{PerSecond: 5}}
		plan := must(o.PlanReplay(r.Context(), spec))
		must(b.Pass("orders"))
		r.wait(5 * time.Second)
		id := must(x.Replay(r.Context(), o.As("ben"), plan))
		r.wait(time.Second)
		if a, _ := x.Act(id); a.Sent != 0 || a.Audit != "" || !must(b.Letters("orders")).Ended.IsZero() {
			t.Errorf("it did not wait for the pass: %+v", a)
		}
		r.until(x, id, func(a *ops.RunningAct) bool { return a.Sent == 5 })
		if l := r.passed(b); l.Seen != 400 || l.Err != nil {
			t.Errorf("the pass saw %d, %v", l.Seen, l.Err)
		}
		if _, err := b.Pass("orders"); !errors.Is(err, ops.ErrLettersBusy) || !errors.Is(err, ops.ErrRefused) {
			t.Error(err)
		}
		if err := b.WithLetters(r.Context(), "orders", func(context.Context) error { return nil }); !errors.Is(err, ops.ErrLettersBusy) {
			t.Error(err)
		}
		if a := r.until(x, id, hasEnded); a.Err != nil || a.Sent != len(plan.Letters) || a.Report.Missing != 0 {
			t.Errorf("%+v", a)
		}
		must(b.Pass("orders"))
		r.passed(b)
	})
	// An act that waits for a plan is stopped, and has begun nothing; its plan is as good as
	// before.
	bubble(t, ops.Options{}, func(r *rig) {
		r.letters(30, 1)
		b := r.board(r.ops, nil)
		x := r.running(&ops.RunningOptions{Board: b})
		var id string
		var plan *ops.ReplayPlan
		if err := b.WithLetters(r.Context(), "orders", func(context.Context) error {
			plan = r.plan(dlq.ReplayOptions{})
			id = must(x.Replay(r.Context(), r.ops, plan))
			r.wait(time.Minute)
			if err := x.Stop(id, "ben"); err != nil {
				t.Error(err)
			}
			if a := r.until(x, id, hasEnded); !errors.Is(a.Err, dlq.ErrStopped) || a.Sent != 0 || a.Audit != "" {
				t.Errorf("%+v", a)
			}
			return nil
		}); err != nil {
			t.Error(err)
		}
		if a := r.until(x, must(x.Replay(r.Context(), r.ops, plan)), hasEnded); a.Err != nil || a.Sent == 0 {
			t.Errorf("%+v", a)
		}
	})
}
