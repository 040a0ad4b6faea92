package ops_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/control"
	"github.com/onceq/onceq/dlq"
	rigs "github.com/onceq/onceq/internal/rig"
	"github.com/onceq/onceq/onceqtest"
	"github.com/onceq/onceq/ops"
)

func (r *rig) running(ro *ops.RunningOptions) *ops.Running {
	r.Helper()
	x := must(ops.NewRunning(ro))
	r.Cleanup(func() {
		if err := x.Close(context.Background()); err != nil {
			r.Error(err)
		}
	})
	return x
}

// until waits until an act is as it should be.
func (r *rig) until(x *ops.Running, id string, is func(a *ops.RunningAct) bool) ops.RunningAct {
	r.Helper()
	for {
		changed := x.Changed()
		a, ok := x.Act(id)
		if !ok {
			r.Fatalf("the act %s is not remembered", id)
		}
		if is(&a) {
			return a
		}
		if !a.Ended.IsZero() {
			r.Fatalf("it ended first: %+v", a)
		}
		<-changed
	}
}

func hasEnded(a *ops.RunningAct) bool { return !a.Ended.IsZero() }

// plan is one of all letters.
func (r *rig) plan(ro dlq.ReplayOptions) *ops.ReplayPlan {
	r.Helper()
	return must(r.ops.PlanReplay(r.Context(), ops.ReplaySpec{Queue: "orders", Reason: "bank back", ReplayOptions: ro}))
}

// jobs counts how often each job of the queue ran, by real workers.
type jobs struct {
	mu   sync.Mutex
	ran  map[string]int
	stop func()
}

// works runs a worker. fails says which jobs fail.
func (r *rig) works(fails func(key string) error) *jobs {
	r.Helper()
	j := &jobs{ran: map[string]int{}}
	var mux onceq.Mux
	mux.On("charge", onceq.HandlerFunc(func(_ context.Context, job *onceq.Job) error {
		k := job.Key()
		j.mu.Lock()
		defer j.mu.Unlock()
		j.ran[k.Key]++
		if fails != nil {
			return fails(k.Key)
		}
		return nil
	}), nil)
	p := must(onceq.NewProcessor(onceq.ProcessorConfig{Handler: &mux, Store: r.store, Scope: "orders", Logger: slog.New(slog.DiscardHandler), Control: onceq.ControlOptions{Every: 2 * time.Second}}))
	w := must(p.Worker(r.queue, onceq.WorkerConfig{DeadLetter: r.dead}))
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	j.stop = func() {
		stop()
		if err := <-ended; err != nil {
			r.Error(err)
		}
	}
	return j
}

func (j *jobs) wantOnce(t testing.TB, n int) {
	t.Helper()
	j.mu.Lock()
	defer j.mu.Unlock()
	for k, ran := range j.ran {
		if ran != 1 {
			t.Errorf("job %s ran %d times", k, ran)
		}
	}
	if len(j.ran) != n {
		t.Errorf("%d jobs ran, want %d", len(j.ran), n)
	}
}

// TestRunning: a replay goes on when the request that began it has ended. It tells how far it is,
// batch by batch, and the audit has the person whose Ops it was given.
func TestRunning(t *testing.T) {
	bubble(t, ops.Options{}, func(r *rig) {
		for i := range 70 {
			r.died(fmt.Sprint("k-", i))
		}
		x := r.running(nil)
		request, ends := context.WithCancel(r.Context())
		p := r.plan(dlq.ReplayOptions{Canary: 5, Ramp: true, PerSecond: 20})
		id := must(x.Replay(request, r.ops.As("ben"), p))
		ends()
		a := r.until(x, id, func(a *ops.RunningAct) bool { return a.Watched != nil })
		if a.Audit == "" || a.By != "ben" || a.Queue != "orders" || a.Plan != p.ID || a.Letters != 70 || a.Sent != 5 || a.Watched.Sent != 5 || a.Asks || a.CanaryWait != time.Minute {
			t.Errorf("%+v", a)
		}
		j := r.works(nil)
		a = r.until(x, id, hasEnded)
		var sent []int
		for _, b := range a.Batches {
			sent = append(sent, b.Sent)
			if b.Done != b.Sent {
				t.Errorf("%+v", b)
			}
		}
		if a.Err != nil || a.Sent != 70 || a.Report.Replayed != 70 || a.Watched != nil || !slices.Equal(sent, []int{5, 10, 50}) {
			t.Errorf("%+v", a)
		}
		r.wait(10 * time.Second)
		j.stop()
		j.wantOnce(t, 70)
		if es := r.acts(); len(es) != 1 || es[0].ID != a.Audit || es[0].By != "ben" || es[0].Result["sent"] != "70" || es[0].Err != "" {
			t.Errorf("%+v", es)
		}
		if all := x.Acts(); len(all) != 1 || all[0].ID != id {
			t.Errorf("%+v", all)
		}
	})
}

// TestRunningStops: wherever an act is stopped, all that it held is there again at once, the audit
// says who did it, and a second plan finishes: each job runs once.
func TestRunningStops(t *testing.T) {
	isWatching := func(a *ops.RunningAct) bool { return a.Watched != nil }
	for _, c := range []struct {
		name string
		ro   dlq.ReplayOptions
		idle bool // no worker runs until it was stopped
		at   func(a *ops.RunningAct) bool
	}{
		{"before the first letter", dlq.ReplayOptions{PerSecond: 1}, false, func(a *ops.RunningAct) bool { return true }},
		{"amid a batch", dlq.ReplayOptions{Canary: 3, Ramp: true, PerSecond: 2}, false, func(a *ops.RunningAct) bool { return a.Sent == 7 }},
		{"between batches", dlq.ReplayOptions{Canary: 3, Ramp: true, PerSecond: 2}, false, func(a *ops.RunningAct) bool { return len(a.Batches) == 1 }},
		{"while it watches", dlq.ReplayOptions{Canary: 3}, true, isWatching},
		{"while it asks", dlq.ReplayOptions{Canary: 3}, true, func(a *ops.RunningAct) bool { return a.Asks }},
		{"while the rate lets it wait for minutes", dlq.ReplayOptions{PerSecond: 0.002}, false, func(a *ops.RunningAct) bool { return a.Sent == 1 }},
		{"by the end of the program", dlq.ReplayOptions{PerSecond: 3}, false, func(a *ops.RunningAct) bool { return a.Sent == 4 }},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, ops.Options{}, func(r *rig) {
				for i := range 30 {
					r.died(fmt.Sprint("k-", i))
				}
				var j *jobs
				if !c.idle {
					j = r.works(nil)
				}
				x := r.running(nil)
				id := must(x.Replay(r.Context(), r.ops, r.plan(c.ro)))
				r.until(x, id, c.at)
				by := "ben"
				began := time.Now()
				if strings.HasSuffix(c.name, "program") {
					by = "the end of the program"
					if err := x.Close(r.Context()); err != nil {
						t.Error(err)
					}
				} else if err := x.Stop(id, "ben"); err != nil {
					t.Error(err)
				}
				a := r.until(x, id, hasEnded)
				if d := time.Since(began); d > 10*time.Second || !errors.Is(a.Err, dlq.ErrStopped) || !a.Stopping || a.StoppedBy != by {
					t.Errorf("after %v: %+v", d, a)
				}
				d := must(r.dead.Depth(r.Context()))
				if d.Visible != int64(30-a.Sent) || d.InFlight != 0 || a.Sent >= 30 {
					t.Errorf("%d sent: %+v", a.Sent, d)
				}
				if es := r.acts(); len(es) != 1 || !strings.Contains(es[0].Err, "stopped in order by "+by) || es[0].Ended.IsZero() {
					t.Errorf("%+v", es)
				}
				if err := x.Stop(id, "ben"); !errors.Is(err, ops.ErrNoAct) {
					t.Error(err)
				}
				if c.idle {
					j = r.works(nil)
				}
				y := r.running(nil)
				if a = r.until(y, must(y.Replay(r.Context(), r.ops, r.plan(dlq.ReplayOptions{}))), hasEnded); a.Err != nil {
					t.Error(a.Err)
				}
				r.wait(time.Minute)
				j.stop()
				j.wantOnce(t, 30)
				r.wantDepths(0, 0)
			})
		})
	}
}

// TestRunningAsks: where not all of a batch are done in time, the act keeps its letters and waits
// for a word: it goes on by Step, or when all are done, and ends when nobody says anything, or when
// a job fails. It never goes on by itself.
func TestRunningAsks(t *testing.T) {
	for _, c := range []struct {
		name  string
		act   func(r *rig, x *ops.Running, id string)
		fails bool
		want  func(a *ops.RunningAct) bool
	}{
		{"a word", func(r *rig, x *ops.Running, id string) {
			if err := errors.Join(x.Step(id, "eva"), x.Step(id, "ben")); err != nil {
				r.Error(err)
			}
		}, false, func(a *ops.RunningAct) bool { return a.Err == nil && a.Sent == 9 }},
		{"all are done", func(r *rig, x *ops.Running, id string) { r.Cleanup(r.works(nil).stop) }, false, func(a *ops.RunningAct) bool { return a.Err == nil && a.Sent == 9 }},
		{"one fails", func(r *rig, x *ops.Running, id string) {
			r.Cleanup(r.works(func(string) error { return onceq.Permanent(errors.New("no")) }).stop)
		}, true, func(a *ops.RunningAct) bool {
			e, ok := errors.AsType[*dlq.CanaryError](a.Err)
			return ok && len(e.Back) > 0 && a.Sent == 2
		}},
		{"nobody says anything", func(r *rig, x *ops.Running, id string) {}, false, func(a *ops.RunningAct) bool {
			e, ok := errors.AsType[*dlq.CanaryError](a.Err)
			return ok && e.Became.Waiting == 2 && e.Watched >= 6*time.Minute && e.Watched < 7*time.Minute && a.Sent == 2
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, ops.Options{}, func(r *rig) {
				for i := range 9 {
					r.died(fmt.Sprint("k-", i))
				}
				x := r.running(&ops.RunningOptions{AskFor: 5 * time.Minute})
				began := time.Now()
				id := must(x.Replay(r.Context(), r.ops, r.plan(dlq.ReplayOptions{Canary: 2})))
				a := r.until(x, id, func(a *ops.RunningAct) bool { return a.Asks })
				if d := time.Since(began); d < time.Minute || d > 65*time.Second || a.Watched.Waiting != 2 || a.AsksUntil.Before(began.Add(6*time.Minute)) || a.AsksUntil.After(began.Add(6*time.Minute+10*time.Second)) {
					t.Errorf("after %v: %+v", d, a)
				}
				r.wait(2 * time.Minute) // longer than the letters' visibility
				if d := must(r.dead.Depth(r.Context())); d.Visible != 0 || d.InFlight != 7 {
					t.Errorf("while it asks: %+v", d)
				}
				c.act(r, x, id)
				a = r.until(x, id, hasEnded)
				if !c.want(&a) || a.Asks {
					t.Errorf("%v: %+v", a.Err, a)
				}
				if by := r.acts()[0].Result["gone on"]; by != map[string]string{"a word": "batch 1 by eva"}[c.name] {
					t.Errorf("the audit has %q", by)
				}
				if err := x.Step(id, "eva"); !errors.Is(err, ops.ErrNoAct) {
					t.Error(err)
				}
			})
		})
	}
}

// TestRunningUsesAPlanOnce: of many that begin with one plan, in one process or in two, one does.
// Another one is made at any time, and a plan by which nothing was begun is still good.
func TestRunningUsesAPlanOnce(t *testing.T) {
	bubble(t, ops.Options{}, func(r *rig) {
		r.died("a")
		r.died("b")
		x, y := r.running(nil), r.running(nil)
		p := r.plan(dlq.ReplayOptions{})
		type begun struct {
			in *ops.Running
			id string
		}
		var all []begun
		for i, in := range []*ops.Running{x, x, y, x, y} {
			id, err := in.Replay(r.Context(), r.ops, p)
			if (err == nil) != (i == 0) && i < 2 {
				t.Errorf("call %d in one process: %v", i, err)
			}
			if err == nil {
				all = append(all, begun{in, id})
			} else if !errors.Is(err, ops.ErrPlanUsed) {
				t.Error(err)
			}
		}
		won := 0
		for _, b := range all {
			a := r.until(b.in, b.id, hasEnded)
			if a.Err == nil && a.Sent == 2 {
				won++
			} else if used, others := errors.Is(a.Err, ops.ErrPlanUsed), errors.As(a.Err, new(*ops.ConflictError)); !used && !others || a.Sent != 0 || a.Audit != "" {
				t.Errorf("%+v", a)
			}
		}
		if won != 1 || len(all) < 2 {
			t.Errorf("of %d one should have acted, %d did", len(all), won)
		}
		for _, in := range []*ops.Running{x, y} {
			id, err := in.Replay(r.Context(), r.ops, p)
			if err == nil {
				err = r.until(in, id, hasEnded).Err
			}
			if !errors.Is(err, ops.ErrPlanUsed) {
				t.Errorf("later: %v", err)
			}
		}
		r.wantDepths(0, 2)
		if len(r.acts()) != 1 {
			t.Errorf("%+v", r.acts())
		}
		// An act that found no audit has begun nothing, so its plan is as good as before.
		r.died("c")
		p = r.plan(dlq.ReplayOptions{})
		r.store.FailsAs(func(call onceqtest.Op) error {
			if call == "claim" {
				return errors.New("no")
			}
			return nil
		})
		if a := r.until(x, must(x.Replay(r.Context(), r.ops, p)), hasEnded); !errors.Is(a.Err, ops.ErrNoAudit) || a.Sent != 0 {
			t.Errorf("%+v", a)
		}
		r.store.Heals()
		r.wait(time.Minute)
		if a := r.until(x, must(x.Replay(r.Context(), r.ops, p)), hasEnded); a.Err != nil || a.Sent != 1 {
			t.Errorf("%+v", a)
		}
	})
}

// TestRunningRefuses: what cannot begin is refused before anything is begun, and says why.
func TestRunningRefuses(t *testing.T) {
	for want, o := range map[string]ops.RunningOptions{"MaxActs is 65": {MaxActs: 65}, "MaxActs is -1": {MaxActs: -1}, "Kept is 1001": {Kept: 1001}, "Kept is -1": {Kept: -1}} {
		if _, err := ops.NewRunning(&o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	bubble(t, ops.Options{}, func(r *rig) {
		for i := range 9 {
			r.died(fmt.Sprint("k-", i))
		}
		x := r.running(&ops.RunningOptions{MaxActs: 1, Kept: 1})
		begin := func(change func(*ops.ReplayPlan), as string) (string, error) {
			p := r.plan(dlq.ReplayOptions{PerSecond: 0.1})
			change(p)
			return x.Replay(r.Context(), r.ops.As(as), p)
		}
		for _, c := range []struct {
			err    error
			as     string
			change func(p *ops.ReplayPlan)
		}{
			{control.ErrInvalid, "", func(*ops.ReplayPlan) {}},
			{control.ErrInvalid, strings.Repeat("x", 257), func(*ops.ReplayPlan) {}},
			{control.ErrInvalid, "ana", func(p *ops.ReplayPlan) { p.Spec.Reason = "" }},
			{ops.ErrRefused, "ana", func(p *ops.ReplayPlan) { p.Spec.Stop = make(chan struct{}) }},
			{ops.ErrRefused, "ana", func(p *ops.ReplayPlan) { p.Spec.Watching = func(dlq.Progress) dlq.Watch { return dlq.GoOn } }},
			{ops.ErrUnknownQueue, "ana", func(p *ops.ReplayPlan) { p.Spec.Queue = "mails" }},
			{dlq.ErrPlan, "ana", func(p *ops.ReplayPlan) { r.wait(dlq.PlanTTL + time.Second) }},
		} {
			if id, err := begin(c.change, c.as); !errors.Is(err, c.err) || id != "" {
				t.Errorf("%q: %v, want %v", id, err, c.err)
			}
		}
		if len(x.Acts()) != 0 || len(r.acts()) != 0 {
			t.Errorf("%+v", x.Acts())
		}
		first := must(begin(func(*ops.ReplayPlan) {}, "ana"))
		r.until(x, first, func(a *ops.RunningAct) bool { return a.Sent > 0 })
		if _, err := begin(func(*ops.ReplayPlan) {}, "ana"); !errors.Is(err, ops.ErrTooMany) {
			t.Error(err)
		}
		if err := x.Step(first, "ana"); !errors.Is(err, ops.ErrNotWatched) {
			t.Error(err)
		}
		if err := x.Stop(first, "ana"); err != nil {
			t.Error(err)
		}
		r.until(x, first, hasEnded)
		second := must(begin(func(*ops.ReplayPlan) {}, "ana"))
		if err := x.Close(r.Context()); err != nil {
			t.Error(err)
		}
		if all := x.Acts(); len(all) != 1 || all[0].ID != second {
			t.Errorf("%d acts are remembered", len(all))
		}
		if _, err := begin(func(*ops.ReplayPlan) {}, "ana"); !errors.Is(err, ops.ErrClosed) {
			t.Error(err)
		}
	})
}

// TestRunningPanics: a user's function that panics ends its act, and nothing else: the audit has an
// end, the letters are there, and nobody holds them.
func TestRunningPanics(t *testing.T) {
	for name, spec := range map[string]dlq.ReplayOptions{
		"Each":      {Each: func(dlq.Step) { panic("boom") }},
		"EachBatch": {Canary: 1, CanaryWait: time.Second, CanaryAny: true, EachBatch: func(dlq.Progress) { panic("boom") }},
		"Edit":      {Edit: func(*broker.Outgoing) error { panic("boom") }},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, ops.Options{}, func(r *rig) {
				for i := range 25 {
					r.died(fmt.Sprint("k-", i))
				}
				x := r.running(nil)
				p := r.plan(dlq.ReplayOptions{})
				spec.Filter = p.Spec.Filter
				spec.To = p.Spec.To
				p.Spec.ReplayOptions = spec
				a := r.until(x, must(x.Replay(r.Context(), r.ops, p)), hasEnded)
				if a.Err == nil || !strings.Contains(a.Err.Error(), "boom") {
					t.Errorf("%+v", a)
				}
				if es := r.acts(); len(es) != 1 || es[0].Ended.IsZero() || !strings.Contains(es[0].Err, "panicked") {
					t.Errorf("%+v", es)
				}
				if d := must(r.dead.Depth(r.Context())); d.InFlight != 0 || d.Visible < 14 {
					t.Errorf("%+v", d)
				}
				if a := r.until(x, must(x.Replay(r.Context(), r.ops, r.plan(dlq.ReplayOptions{}))), hasEnded); a.Err != nil {
					t.Error(a.Err)
				}
			})
		})
	}
}

// TestRunningPurge: a purge is an act as a replay is, and is stopped as one.
func TestRunningPurge(t *testing.T) {
	bubble(t, ops.Options{}, func(r *rig) {
		for i := range 40 {
			r.died(fmt.Sprint("k-", i))
		}
		x := r.running(nil)
		spec := ops.PurgeSpec{Queue: "orders", Reason: "refunded", PurgeOptions: dlq.PurgeOptions{All: true}}
		p := must(r.ops.PlanPurge(r.Context(), spec))
		if _, err := x.Purge(r.Context(), r.ops, p, spec); err == nil || !strings.Contains(err.Error(), "Export: is nil") {
			t.Error(err)
		}
		exported := 0
		spec.Export = func(dlq.Entry) error { exported++; r.wait(time.Second); return nil }
		id := must(x.Purge(r.Context(), r.ops, p, spec))
		r.until(x, id, func(a *ops.RunningAct) bool { return a.Purged > 0 })
		if err := x.Stop(id, "ben"); err != nil {
			t.Error(err)
		}
		a := r.until(x, id, hasEnded)
		if !errors.Is(a.Err, dlq.ErrStopped) || a.Purged != exported || a.Purged == 40 || a.Act != dlq.ActPurge {
			t.Errorf("%d exported: %+v", exported, a)
		}
		r.wantDepths(int64(40-exported), 0)
	})
}

// severed is a dead-letter queue that a process loses when it dies.
type severed struct {
	broker.Broker
	off atomic.Bool
}

func (s *severed) Unwrap() any { return s.Broker }

func (s *severed) err() error {
	if s.off.Load() {
		return errors.New("the process is dead")
	}
	return nil
}

func (s *severed) Nack(ctx context.Context, hs []broker.Hold) error {
	return cmp.Or(s.err(), s.Broker.Nack(ctx, hs))
}

func (s *severed) Extend(ctx context.Context, hs []broker.Hold) error {
	return cmp.Or(s.err(), s.Broker.Extend(ctx, hs))
}

// TestRunningIsKilled: of an act whose process dies the audit has no end; its letters come back by
// themselves, and another plan does what is left: each job runs once.
func TestRunningIsKilled(t *testing.T) {
	bubble(t, ops.Options{}, func(r *rig) {
		for i := range 20 {
			r.died(fmt.Sprint("k-", i))
		}
		j := r.works(nil)
		dead := &severed{Broker: r.dead}
		store := counted{rigs.NewStore(t)}
		store.Store.Store = r.store.Store.Store // the same records, another process's connection
		o := must(ops.New([]ops.Target{{Name: "orders", Queue: r.queue, DeadLetters: dead, Store: store}}, &ops.Options{By: "ana"}))
		x := must(ops.NewRunning(nil))
		id := must(x.Replay(r.Context(), o, must(o.PlanReplay(r.Context(), ops.ReplaySpec{Queue: "orders", Reason: "x", ReplayOptions: dlq.ReplayOptions{PerSecond: 1}}))))
		r.until(x, id, func(a *ops.RunningAct) bool { return a.Sent == 5 })
		dead.off.Store(true)
		store.Fails(errors.New("dead"))
		now, dies := context.WithCancel(r.Context())
		dies()
		if err := x.Close(now); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		a := r.until(x, id, hasEnded)
		if es := r.acts(); len(es) != 1 || !es[0].Ended.IsZero() || es[0].ID != a.Audit {
			t.Errorf("%+v", es)
		}
		r.wait(dlq.DefaultVisibility + time.Second)
		y := r.running(nil)
		if b := r.until(y, must(y.Replay(r.Context(), r.ops, r.plan(dlq.ReplayOptions{}))), hasEnded); b.Err != nil || a.Sent+b.Sent+b.Removed < 20 {
			t.Errorf("%+v", b)
		}
		r.wait(time.Minute)
		j.stop()
		j.wantOnce(t, 20)
		r.wantDepths(0, 0)
	})
}

// TestRunningDoesNotAsk: an act that is to ask nobody ends at the end of CanaryWait, as Ops.Replay
// does; one with CanaryAny goes on.
func TestRunningDoesNotAsk(t *testing.T) {
	for _, any := range []bool{false, true} {
		bubble(t, ops.Options{}, func(r *rig) {
			for i := range 9 {
				r.died(fmt.Sprint("k-", i))
			}
			ro := &ops.RunningOptions{AskFor: -1}
			if any {
				ro = nil
			}
			x := r.running(ro)
			began := time.Now()
			a := r.until(x, must(x.Replay(r.Context(), r.ops, r.plan(dlq.ReplayOptions{Canary: 2, CanaryAny: any}))), hasEnded)
			_, proofless := errors.AsType[*dlq.CanaryError](a.Err)
			if d := time.Since(began); d > 70*time.Second || proofless == any || any && a.Sent != 9 {
				t.Errorf("CanaryAny %v, after %v: %+v", any, d, a)
			}
		})
	}
}

// TestRunningStepsOneBatch: a word is on the batch that is watched, and on no later one.
func TestRunningStepsOneBatch(t *testing.T) {
	bubble(t, ops.Options{}, func(r *rig) {
		for i := range 40 {
			r.died(fmt.Sprint("k-", i))
		}
		x := r.running(nil)
		id := must(x.Replay(r.Context(), r.ops, r.plan(dlq.ReplayOptions{Canary: 2, Ramp: true})))
		r.until(x, id, func(a *ops.RunningAct) bool { return a.Asks })
		if err := x.Step(id, "eva"); err != nil {
			t.Error(err)
		}
		a := r.until(x, id, func(a *ops.RunningAct) bool { return a.Asks && a.Watched.Number == 2 })
		if a.Sent != 12 || len(a.Batches) != 1 || a.Batches[0].Done != 0 {
			t.Errorf("%+v", a)
		}
		r.wait(5 * time.Minute)
		if b, _ := x.Act(id); b.Sent != 12 || !b.Asks {
			t.Errorf("it went on by itself: %+v", b)
		}
	})
}
