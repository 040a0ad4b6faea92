package operating

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/control"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/controlstore"
	"github.com/onceq/onceq/internal/coretest/rig"
	"github.com/onceq/onceq/internal/must"
	"github.com/onceq/onceq/internal/peak"
	"github.com/onceq/onceq/onceqtest"
)

// TestBatchesObey: a batch of a paused queue, scope or type is given back, and a limit bounds it.
// The rules are read at most once each Every.
func TestBatchesObey(t *testing.T) {
	var busy peak.Gauge
	h := func(context.Context, *onceq.Job) error {
		busy.In()
		rig.Takes(time.Second)
		busy.Out()
		return nil
	}
	rig.Bubble(t, h, func(r *rig.Rig) {
		var gets atomic.Int64
		r.Store.Set(func(s *rig.Store) { s.OnGet = func() error { gets.Add(1); return nil } })
		b := must.Get(r.Cfg.Batches())
		n := 0
		run := func() (out []onceq.Disposition) {
			var ds []onceq.Delivery
			for range 10 {
				n++
				m := rig.Message(fmt.Sprint(n))
				m.Meta.ID, m.Meta.Type = fmt.Sprint(n), "charge"
				ds = append(ds, onceq.Delivery{Message: &broker.Message{ID: fmt.Sprint(n), Attempt: 1, Body: m.Body, Meta: m.Meta}})
			}
			out = make([]onceq.Disposition, len(ds))
			b.Process(r.Context(), ds, nil, func(i int, d onceq.Disposition) { out[i] = d })
			return out
		}
		want := func(what string, outcome onceq.Outcome) {
			t.Helper()
			rig.Pass(10 * time.Second)
			for _, d := range run() {
				if d.Report.Outcome != outcome || (outcome == onceq.OutcomePaused) != (d.Action == onceq.Nack && d.Delay > 0) {
					t.Errorf("%s: %+v", what, d)
				}
			}
		}
		want("no rule", onceq.OutcomeDone)
		for range 5 {
			run()
		}
		if gets.Load() != 1 {
			t.Errorf("in 6 batches the rules were read %d times", gets.Load())
		}
		id := r.Orders(time.Hour, ofQueue)
		want("queue", onceq.OutcomePaused)
		r.Rules(func(rs *controlstore.Rules) { rs.Remove(id) })
		want("no rule any more", onceq.OutcomeDone)
		id = r.Orders(time.Hour, func(u *control.Rule) { u.Type = "charge" })
		want("type", onceq.OutcomePaused)
		refuse(r, rig.ErrBoom)
		want("unreadable", onceq.OutcomePaused)
		mend(r)
		r.Rules(func(rs *controlstore.Rules) { rs.Remove(id) })
		r.Orders(time.Hour, func(u *control.Rule) { u.Do, u.Slots, u.Queue = control.Limit, 2, rig.Scope })
		busy.Reset()
		want("limit", onceq.OutcomeDone)
		if busy.Top() != 2 {
			t.Errorf("%d handlers at once, want 2", busy.Top())
		}
	}, rig.Steered)
}

// TestDoObeys: a call whose scope or type is paused is told so. Rules of queues do not touch it.
func TestDoObeys(t *testing.T) {
	rig.Bubble(t, func(context.Context, *onceq.Job) error { return nil }, func(r *rig.Rig) {
		p := must.Get(onceq.NewProcessor(r.Cfg.ProcessorConfig))
		do := func(k dedupe.Key) error {
			_, err := onceq.Do(r.Context(), p, k, nil, func(context.Context, *onceq.Job) (int, error) { return 1, nil })
			return err
		}
		r.Orders(time.Hour, ofQueue)
		r.Orders(time.Hour, func(*control.Rule) {})
		id := r.Orders(time.Hour, func(u *control.Rule) { u.Scope = "bank" })
		r.Orders(time.Hour, func(u *control.Rule) { u.Type = "charge" })
		r.Orders(time.Hour, func(u *control.Rule) { u.Type, u.Queue = "refund", rig.Scope })
		for k, paused := range map[dedupe.Key]bool{
			{Key: "a"}: false, {Scope: "bank", Key: "a"}: true, {Scope: "bank:pay", Key: "a"}: true, {Scope: "banks", Key: "a"}: false,
			{Scope: "x:charge", Key: "a"}: true, {Scope: "x:refund", Key: "a"}: false,
		} {
			err := do(k)
			var e *onceq.PausedError
			if errors.As(err, &e) != paused || !paused && err != nil {
				t.Errorf("%v: %v", k, err)
			}
			if paused && (e.By != "ana" || e.Reason != "SMTP migration" || time.Until(e.Until) < time.Hour-time.Minute || e.Key != k) {
				t.Errorf("%v: %+v", k, e)
			}
		}
		r.Rules(func(rs *controlstore.Rules) { rs.Remove(id) })
		rig.Pass(10 * time.Second)
		if err := do(dedupe.Key{Scope: "bank", Key: "b"}); err != nil {
			t.Error(err)
		}
	}, rig.Steered)
}

// TestControlOptions: what cannot be is refused with its field and limit.
func TestControlOptions(t *testing.T) {
	for want, o := range map[string]onceq.ControlOptions{
		"ProcessorConfig.Control.Every: 10ns is below 2s; is its unit missing?": {Every: 10},
		"ProcessorConfig.Control.Every: 1m0.001s is above 1m0s":                 {Every: time.Minute + time.Millisecond},
		"ProcessorConfig.Control.Jobs: 101 is above 100":                        {Jobs: 101},
		"ProcessorConfig.Control.Required: is set, and Every says that no":      {Every: -1, Required: true},
	} {
		_, err := onceq.NewProcessor(onceq.ProcessorConfig{Scope: "s", Store: rig.NewStore(t), Control: o})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// TestNoRulesByDefault: where the store is not durable, where it is wrapped by onceqtest, and where
// Every says so, nobody reads or writes anything beside the jobs.
func TestNoRulesByDefault(t *testing.T) {
	durable := func(l dedupe.Limits) dedupe.Limits { l.Durable = true; return l }
	for name, c := range map[string]struct {
		set  rig.Option
		want bool
	}{
		"memory":  {func(*rig.Rig) {}, false},
		"durable": {func(r *rig.Rig) { r.Store.Set(func(s *rig.Store) { s.ChangeLimits = durable }) }, true},
		"switched off": {func(r *rig.Rig) {
			r.Store.Set(func(s *rig.Store) { s.ChangeLimits = durable })
			r.Cfg.Control.Every = -1
		}, false},
		"a test's": {func(r *rig.Rig) {
			r.Store.Set(func(s *rig.Store) { s.ChangeLimits = durable })
			r.Cfg.Store = new(onceqtest.Process).Store(r.Store)
		}, false},
		"a test's word": {func(r *rig.Rig) { r.Cfg.Store = new(onceqtest.Process).Store(r.Store); rig.Steered(r) }, true},
	} {
		rig.Bubble(t, func(context.Context, *onceq.Job) error { return nil }, func(r *rig.Rig) {
			r.RunFor(time.Minute)
			if got := len(seatsOf(r)) == 1; got != c.want {
				t.Errorf("%s: a seat was taken: %v", name, got)
			}
		}, c.set, rig.With(func(c *rig.Setup) { c.Queue = rig.Scope }))
	}
}

// TestManyWorkersObey: of 20 workers on one store none starts a handler 15 seconds after the pause
// or later.
func TestManyWorkersObey(t *testing.T) {
	var last atomic.Int64
	h := func(context.Context, *onceq.Job) error {
		last.Store(time.Now().UnixNano())
		rig.Takes(time.Second)
		return nil
	}
	rig.Bubble(t, h, func(r *rig.Rig) {
		ctx, cancel := context.WithCancel(r.Context())
		done := make(chan error, 21)
		start := func(n int) {
			w := r.Worker(func(c *rig.Setup) { c.Owner = fmt.Sprint("w-", n) })
			go func() { done <- w.Run(ctx) }()
		}
		for n := range 20 {
			start(n)
		}
		for i := range 20_000 {
			r.Send(fmt.Sprint(i))
		}
		rig.Pass(20 * time.Second)
		r.Orders(time.Hour, ofQueue)
		paused := time.Now()
		rig.Pass(rig.Bound)
		start(20)
		rig.Pass(10 * time.Minute)
		if at := time.Unix(0, last.Load()); at.Sub(paused) > rig.Bound || at.Before(paused.Add(-time.Second)) {
			t.Errorf("the last handler started %v after the pause", at.Sub(paused))
		}
		if n := len(seatsOf(r)); n != 21 {
			t.Errorf("%d workers sit", n)
		}
		cancel()
		for range 21 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		synctest.Wait()
	}, rig.Steered, rig.Warnings)
}

// TestRunAgainAfterPause: a second Run of a worker that was paused reads the rules first, and
// begins at once where the pause is over.
func TestRunAgainAfterPause(t *testing.T) {
	rig.Bubble(t, func(context.Context, *onceq.Job) error { return nil }, func(r *rig.Rig) {
		id := r.Orders(time.Hour, ofQueue)
		r.RunFor(time.Minute)
		r.Rules(func(rs *controlstore.Rules) { rs.Remove(id) })
		r.Send("a")
		began := time.Now()
		r.Start()
		rig.Pass(time.Second)
		r.WantOutcomes("a", "done")
		for _, e := range r.Seen.Of("a") {
			if e.Began.Sub(began) > 50*time.Millisecond {
				t.Errorf("the worker has hesitated for %v", e.Began.Sub(began))
			}
		}
	}, rig.Steered)
}

// TestRunAgainWithOneReasonLeft: who ends one of two reasons does not end the other for the next
// Run either.
func TestRunAgainWithOneReasonLeft(t *testing.T) {
	rig.Bubble(t, func(context.Context, *onceq.Job) error { return nil }, func(r *rig.Rig) {
		id := r.Orders(time.Hour, ofQueue)
		r.Start()
		r.W.Pause()
		rig.Pass(rig.Bound)
		r.Rules(func(rs *controlstore.Rules) { rs.Remove(id) }) // one reason ends, and the program's is left
		rig.Pass(2 * rig.Bound)
		if err := r.Stop(); err != nil {
			t.Fatal(err)
		}
		r.Done = nil
		r.Send("a")
		r.Start()
		rig.Pass(time.Minute)
		r.WantOutcomes("a")
		if s := r.W.Stats(); len(s.Paused) != 1 || s.Paused[0] != onceq.ReasonLocal {
			t.Errorf("the second Run is paused for %q", s.Paused)
		}
		r.W.Resume()
		rig.Pass(time.Minute)
		r.WantOutcomes("a", "done")
	}, rig.Steered)
}

// TestBusyAfterLostLease: a job whose claim another has taken counts as busy until its handler
// returns, and not longer.
func TestBusyAfterLostLease(t *testing.T) {
	release := atomic.Pointer[chan struct{}]{}
	h := func(ctx context.Context, _ *onceq.Job) error { <-*release.Load(); return ctx.Err() }
	rig.Bubble(t, h, func(r *rig.Rig) {
		c := make(chan struct{})
		release.Store(&c)
		r.Send("a")
		r.Start()
		rig.Pass(time.Second)
		k := dedupe.Key{Scope: rig.Scope, Key: "a"}
		rec, err := r.Store.Store.Get(r.Context(), []dedupe.Key{k})
		if err != nil || rec[0] == nil {
			t.Fatal(rec, err)
		}
		if _, err := r.Store.Store.Forget(r.Context(), []dedupe.Forgotten{{Key: k, Fence: rec[0].Fence, Force: true}}); err != nil {
			t.Fatal(err)
		}
		rig.Pass(time.Minute)
		// The message has come again, and its second handler runs beside the first.
		if s := r.W.Stats(); s.Busy != 2 || s.Overdue != 1 {
			t.Errorf("while its handler runs on: %+v", s)
		}
		close(c)
		rig.Pass(time.Second)
		if s := r.W.Stats(); s.Busy != 0 || s.Overdue != 0 || s.Unsettled != 0 || s.Outcomes[onceq.OutcomeLeaseLost] != 1 {
			t.Errorf("when its handler has returned: %+v", s)
		}
	})
}

// TestDurationsOnCard: a card says how long the handlers of the last five minutes took, by type.
func TestDurationsOnCard(t *testing.T) {
	mux := new(onceq.Mux)
	mux.On("charge", onceq.HandlerFunc(func(_ context.Context, j *onceq.Job) error {
		rig.Takes(time.Second)
		if j.Key().Key == "0" {
			rig.Takes(time.Minute)
		}
		return nil
	}), nil)
	mux.On("mail", onceq.HandlerFunc(func(context.Context, *onceq.Job) error { rig.Takes(10 * time.Millisecond); return nil }), nil)
	rig.Bubble(t, nil, func(r *rig.Rig) {
		r.Start()
		rig.Pass(time.Minute)
		if d := seatsOf(r)[0].Status.Durations; len(d) != 0 {
			t.Errorf("before any job the card says %v", d)
		}
		for i := range 40 {
			r.Put(rig.JobOf("charge", fmt.Sprint(i), ""))
		}
		r.Put(rig.JobOf("mail", "m", ""))
		rig.Pass(2 * time.Minute)
		near := func(d, want time.Duration) bool { return d > want*3/4 && d < want*5/4 }
		d := seatsOf(r)[0].Status.Durations
		if q := d["charge"]; !near(q.P50, time.Second) || !near(q.P95, time.Second) || q.Max != 61*time.Second {
			t.Errorf("the times are %v", d)
		}
		if q := d["mail"]; len(d) != 2 || !near(q.P50, 10*time.Millisecond) || q.Max != 10*time.Millisecond {
			t.Errorf("the times are %v", d)
		}
		r.Put(rig.JobOf("mail", "n", ""))
		rig.Pass(4 * time.Minute)
		r.Put(rig.JobOf("charge", "last", ""))
		rig.Pass(3 * time.Minute)
		if q := seatsOf(r)[0].Status.Durations["charge"]; !near(q.P50, time.Second) || q.Max != time.Second {
			t.Errorf("minutes later they are %v", q)
		}
		rig.Pass(6 * time.Minute)
		if d := seatsOf(r)[0].Status.Durations; len(d) != 0 {
			t.Errorf("after a rest the card says %v", d)
		}
	}, rig.Steered, rig.With(func(c *rig.Setup) { c.Handler = mux; c.Concurrency = 50 }))
}

// TestMinuteOnCard: a card counts the handlers that ended in the last minute and those that failed,
// by type; what is older is forgotten.
func TestMinuteOnCard(t *testing.T) {
	mux := new(onceq.Mux)
	mux.On("charge", onceq.HandlerFunc(func(_ context.Context, j *onceq.Job) error {
		rig.Takes(10 * time.Millisecond)
		if j.Key().Key[0] == 'x' {
			return onceq.Permanent(errors.New("the card has expired"))
		}
		return nil
	}), nil)
	mux.On("mail", onceq.HandlerFunc(func(context.Context, *onceq.Job) error { rig.Takes(time.Millisecond); return nil }), nil)
	rig.Bubble(t, nil, func(r *rig.Rig) {
		r.Start()
		rig.Pass(time.Minute)
		if c := seatsOf(r)[0].Status; c.Minute == nil || *c.Minute != (control.Runs{}) || len(c.MinuteTypes) != 0 {
			t.Errorf("before any job the card says %+v", c)
		}
		for i := range 9 {
			r.Put(rig.JobOf("charge", fmt.Sprint(i), ""))
		}
		r.Put(rig.JobOf("charge", "x", ""))
		r.Put(rig.JobOf("mail", "m", ""))
		rig.Pass(30 * time.Second)
		c := seatsOf(r)[0].Status
		if *c.Minute != (control.Runs{Runs: 11, Errors: 1}) || c.MinuteTypes["charge"] != (control.Runs{Runs: 10, Errors: 1}) || c.MinuteTypes["mail"] != (control.Runs{Runs: 1}) {
			t.Errorf("the card says %+v %+v", c.Minute, c.MinuteTypes)
		}
		rig.Pass(2 * time.Minute)
		if c := seatsOf(r)[0].Status; *c.Minute != (control.Runs{}) || len(c.MinuteTypes) != 0 {
			t.Errorf("two minutes later it says %+v %+v", c.Minute, c.MinuteTypes)
		}
	}, rig.Steered, rig.With(func(c *rig.Setup) { c.Handler = mux }))
}

// TestFullOnCard: a card says since when each slot is busy and nothing has begun, and says nothing
// while a slot is free.
func TestFullOnCard(t *testing.T) {
	h := func(_ context.Context, j *onceq.Job) error {
		if j.Key().Key == "late" {
			rig.Takes(20 * time.Second)
		}
		rig.Takes(2 * time.Minute)
		return nil
	}
	rig.Bubble(t, h, func(r *rig.Rig) {
		r.Send("a")
		r.Start()
		rig.Pass(25 * time.Second)
		if c := seatsOf(r)[0].Status; !c.FullSince.IsZero() || c.Busy != 1 {
			t.Errorf("with a free slot the card says %+v", c)
		}
		began := time.Now()
		r.Send("late", "waits")
		rig.Pass(65 * time.Second)
		if c := seatsOf(r)[0].Status; c.Busy != 2 || c.FullSince.Before(began) || c.FullSince.After(began.Add(15*time.Second)) || c.Retention == 0 || c.Interrupted != "rerun" {
			t.Errorf("full since %v the card says %+v", began, c)
		}
	}, rig.Steered, rig.With(func(c *rig.Setup) { c.Concurrency, c.DrainTimeout = 2, 10*time.Minute }))
}

// TestDurationsOfAnEarlierRun: a card says nothing of what an earlier Run of its worker did, not
// even where the new one has ended a job.
func TestDurationsOfAnEarlierRun(t *testing.T) {
	handler := onceq.HandlerFunc(func(_ context.Context, j *onceq.Job) error {
		rig.Takes(time.Second)
		if j.Key().Key == "long" {
			rig.Takes(time.Minute)
		}
		return nil
	})
	rig.Bubble(t, nil, func(r *rig.Rig) {
		r.Start()
		r.Put(rig.JobOf("", "long", ""))
		rig.Pass(63 * time.Second) // no card has told of it
		if err := r.Stop(); err != nil {
			t.Error(err)
		}
		r.Start()
		for range 15 { // the first card is written within ten
			rig.Pass(time.Second)
			if s := seatsOf(r); len(s) > 0 && len(s[0].Status.Durations) != 0 {
				t.Fatalf("a card without a job says %v", s[0].Status.Durations)
			}
		}
		r.Put(rig.JobOf("", "short", ""))
		rig.Pass(time.Minute)
		if q := seatsOf(r)[0].Status.Durations[""]; q.Max != time.Second {
			t.Errorf("the times are %v, want those of one job of a second", q)
		}
	}, rig.Steered, rig.With(func(c *rig.Setup) { c.Handler = handler }))
}
