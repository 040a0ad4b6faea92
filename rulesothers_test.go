package onceq_test

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
	"github.com/onceq/onceq/internal/peak"
	"github.com/onceq/onceq/onceqtest"
)

// TestBatchesObey: a batch of a paused queue, scope or type is given back, and a limit bounds it.
// The rules are read at most once each Every.
func TestBatchesObey(t *testing.T) {
	var busy peak.Gauge
	h := func(context.Context, *onceq.Job) error {
		busy.In()
		takes(time.Second)
		busy.Out()
		return nil
	}
	bubble(t, h, func(r *rig) {
		var gets atomic.Int64
		r.store.set(func(s *store) { s.onGet = func() error { gets.Add(1); return nil } })
		b, err := r.cfg.batches()
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		run := func() (out []onceq.Disposition) {
			var ds []onceq.Delivery
			for range 10 {
				n++
				m := message(fmt.Sprint(n))
				m.Meta.ID, m.Meta.Type = fmt.Sprint(n), "charge"
				ds = append(ds, onceq.Delivery{Message: &broker.Message{ID: fmt.Sprint(n), Attempt: 1, Body: m.Body, Meta: m.Meta}})
			}
			out = make([]onceq.Disposition, len(ds))
			b.Process(r.Context(), ds, nil, func(i int, d onceq.Disposition) { out[i] = d })
			return out
		}
		want := func(what string, outcome onceq.Outcome) {
			t.Helper()
			pass(10 * time.Second)
			for _, d := range run() {
				if d.Record.Outcome != outcome || (outcome == onceq.OutcomePaused) != (d.Action == onceq.Nack && d.Delay > 0) {
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
		id := r.orders(time.Hour, ofQueue)
		want("queue", onceq.OutcomePaused)
		r.rules(func(rs *controlstore.Rules) { rs.Remove(id) })
		want("no rule any more", onceq.OutcomeDone)
		id = r.orders(time.Hour, func(u *control.Rule) { u.Type = "charge" })
		want("type", onceq.OutcomePaused)
		r.refuse(errBoom)
		want("unreadable", onceq.OutcomePaused)
		r.mend()
		r.rules(func(rs *controlstore.Rules) { rs.Remove(id) })
		r.orders(time.Hour, func(u *control.Rule) { u.Do, u.Slots, u.Queue = control.Limit, 2, scope })
		busy.Reset()
		want("limit", onceq.OutcomeDone)
		if busy.Top() != 2 {
			t.Errorf("%d handlers at once, want 2", busy.Top())
		}
	}, steered)
}

// TestDoObeys: a call whose scope or type is paused is told so. Rules of queues do not touch it.
func TestDoObeys(t *testing.T) {
	bubble(t, func(context.Context, *onceq.Job) error { return nil }, func(r *rig) {
		p, err := onceq.NewProcessor(r.cfg.ProcessorConfig)
		if err != nil {
			t.Fatal(err)
		}
		do := func(k dedupe.Key) error {
			_, err := onceq.Do(r.Context(), p, k, nil, func(context.Context, *onceq.Job) (int, error) { return 1, nil })
			return err
		}
		r.orders(time.Hour, ofQueue)
		r.orders(time.Hour, func(*control.Rule) {})
		id := r.orders(time.Hour, func(u *control.Rule) { u.Scope = "bank" })
		r.orders(time.Hour, func(u *control.Rule) { u.Type = "charge" })
		r.orders(time.Hour, func(u *control.Rule) { u.Type, u.Queue = "refund", scope })
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
		r.rules(func(rs *controlstore.Rules) { rs.Remove(id) })
		pass(10 * time.Second)
		if err := do(dedupe.Key{Scope: "bank", Key: "b"}); err != nil {
			t.Error(err)
		}
	}, steered)
}

// TestControlOptions: what cannot be is refused with its field and limit.
func TestControlOptions(t *testing.T) {
	for want, o := range map[string]onceq.ControlOptions{
		"ProcessorConfig.Control.Every: 10ns is below 2s; is its unit missing?": {Every: 10},
		"ProcessorConfig.Control.Every: 1m0.001s is above 1m0s":                 {Every: time.Minute + time.Millisecond},
		"ProcessorConfig.Control.Jobs: 101 is above 100":                        {Jobs: 101},
		"ProcessorConfig.Control.Required: is set, and Every says that no":      {Every: -1, Required: true},
	} {
		_, err := onceq.NewProcessor(onceq.ProcessorConfig{Scope: "s", Store: newStore(t), Control: o})
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
		set  option
		want bool
	}{
		"memory":       {func(*rig) {}, false},
		"durable":      {func(r *rig) { r.store.set(func(s *store) { s.limits = durable }) }, true},
		"switched off": {func(r *rig) { r.store.set(func(s *store) { s.limits = durable }); r.cfg.Control.Every = -1 }, false},
		"a test's": {func(r *rig) {
			r.store.set(func(s *store) { s.limits = durable })
			r.cfg.Store = new(onceqtest.Process).Store(r.store)
		}, false},
		"a test's word": {func(r *rig) { r.cfg.Store = new(onceqtest.Process).Store(r.store); steered(r) }, true},
	} {
		bubble(t, func(context.Context, *onceq.Job) error { return nil }, func(r *rig) {
			r.run(time.Minute)
			if got := len(r.seats()) == 1; got != c.want {
				t.Errorf("%s: a seat was taken: %v", name, got)
			}
		}, c.set, with(func(c *setup) { c.Queue = scope }))
	}
}

// TestManyWorkersObey: of 20 workers on one store none starts a handler 15 seconds after the pause
// or later.
func TestManyWorkersObey(t *testing.T) {
	var last atomic.Int64
	h := func(context.Context, *onceq.Job) error {
		last.Store(time.Now().UnixNano())
		takes(time.Second)
		return nil
	}
	bubble(t, h, func(r *rig) {
		ctx, cancel := context.WithCancel(r.Context())
		done := make(chan error, 21)
		start := func(n int) {
			w := r.worker(func(c *setup) { c.Owner = fmt.Sprint("w-", n) })
			go func() { done <- w.Run(ctx) }()
		}
		for n := range 20 {
			start(n)
		}
		for i := range 20_000 {
			r.send(fmt.Sprint(i))
		}
		pass(20 * time.Second)
		r.orders(time.Hour, ofQueue)
		paused := time.Now()
		pass(bound)
		start(20)
		pass(10 * time.Minute)
		if at := time.Unix(0, last.Load()); at.Sub(paused) > bound || at.Before(paused.Add(-time.Second)) {
			t.Errorf("the last handler started %v after the pause", at.Sub(paused))
		}
		if n := len(r.seats()); n != 21 {
			t.Errorf("%d workers sit", n)
		}
		cancel()
		for range 21 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		synctest.Wait()
	}, steered, warnings)
}

// TestRunAgainAfterPause: a second Run of a worker that was paused reads the rules first, and
// begins at once where the pause is over.
func TestRunAgainAfterPause(t *testing.T) {
	bubble(t, func(context.Context, *onceq.Job) error { return nil }, func(r *rig) {
		id := r.orders(time.Hour, ofQueue)
		r.run(time.Minute)
		r.rules(func(rs *controlstore.Rules) { rs.Remove(id) })
		r.send("a")
		began := time.Now()
		r.start()
		pass(time.Second)
		r.wantOutcomes("a", "done")
		for _, e := range r.seen.of("a") {
			if e.Began.Sub(began) > 50*time.Millisecond {
				t.Errorf("the worker has hesitated for %v", e.Began.Sub(began))
			}
		}
	}, steered)
}

// TestRunAgainWithOneReasonLeft: who ends one of two reasons does not end the other for the next
// Run either.
func TestRunAgainWithOneReasonLeft(t *testing.T) {
	bubble(t, func(context.Context, *onceq.Job) error { return nil }, func(r *rig) {
		id := r.orders(time.Hour, ofQueue)
		r.start()
		r.w.Pause()
		pass(bound)
		r.rules(func(rs *controlstore.Rules) { rs.Remove(id) }) // one reason ends, and the program's is left
		pass(2 * bound)
		if err := r.stop(); err != nil {
			t.Fatal(err)
		}
		r.done = nil
		r.send("a")
		r.start()
		pass(time.Minute)
		r.wantOutcomes("a")
		if s := r.w.Stats(); len(s.Paused) != 1 || s.Paused[0] != onceq.ReasonLocal {
			t.Errorf("the second Run is paused for %q", s.Paused)
		}
		r.w.Resume()
		pass(time.Minute)
		r.wantOutcomes("a", "done")
	}, steered)
}

// TestBusyAfterLostLease: a job whose claim another has taken counts as busy until its handler
// returns, and not longer.
func TestBusyAfterLostLease(t *testing.T) {
	release := atomic.Pointer[chan struct{}]{}
	h := func(ctx context.Context, _ *onceq.Job) error { <-*release.Load(); return ctx.Err() }
	bubble(t, h, func(r *rig) {
		c := make(chan struct{})
		release.Store(&c)
		r.send("a")
		r.start()
		pass(time.Second)
		k := dedupe.Key{Scope: scope, Key: "a"}
		rec, err := r.store.Store.Get(r.Context(), []dedupe.Key{k})
		if err != nil || rec[0] == nil {
			t.Fatal(rec, err)
		}
		if _, err := r.store.Store.Forget(r.Context(), []dedupe.Forgotten{{Key: k, Fence: rec[0].Fence, Force: true}}); err != nil {
			t.Fatal(err)
		}
		pass(time.Minute)
		// The message has come again, and its second handler runs beside the first.
		if s := r.w.Stats(); s.Busy != 2 || s.Overdue != 1 {
			t.Errorf("while its handler runs on: %+v", s)
		}
		close(c)
		pass(time.Second)
		if s := r.w.Stats(); s.Busy != 0 || s.Overdue != 0 || s.Unsettled != 0 || s.Outcomes[onceq.OutcomeLeaseLost] != 1 {
			t.Errorf("when its handler has returned: %+v", s)
		}
	})
}

// TestDurationsOnCard: a card says how long the handlers of the last five minutes took, by type.
func TestDurationsOnCard(t *testing.T) {
	mux := new(onceq.Mux)
	mux.On("charge", onceq.HandlerFunc(func(_ context.Context, j *onceq.Job) error {
		takes(time.Second)
		if j.Key().Key == "0" {
			takes(time.Minute)
		}
		return nil
	}), nil)
	mux.On("mail", onceq.HandlerFunc(func(context.Context, *onceq.Job) error { takes(10 * time.Millisecond); return nil }), nil)
	bubble(t, nil, func(r *rig) {
		r.start()
		pass(time.Minute)
		if d := r.seats()[0].Status.Durations; len(d) != 0 {
			t.Errorf("before any job the card says %v", d)
		}
		for i := range 40 {
			r.put(jobOf("charge", fmt.Sprint(i), ""))
		}
		r.put(jobOf("mail", "m", ""))
		pass(2 * time.Minute)
		near := func(d, want time.Duration) bool { return d > want*3/4 && d < want*5/4 }
		d := r.seats()[0].Status.Durations
		if q := d["charge"]; !near(q.P50, time.Second) || !near(q.P95, time.Second) || q.Max != 61*time.Second {
			t.Errorf("the times are %v", d)
		}
		if q := d["mail"]; len(d) != 2 || !near(q.P50, 10*time.Millisecond) || q.Max != 10*time.Millisecond {
			t.Errorf("the times are %v", d)
		}
		r.put(jobOf("mail", "n", ""))
		pass(4 * time.Minute)
		r.put(jobOf("charge", "last", ""))
		pass(3 * time.Minute)
		if q := r.seats()[0].Status.Durations["charge"]; !near(q.P50, time.Second) || q.Max != time.Second {
			t.Errorf("minutes later they are %v", q)
		}
		pass(6 * time.Minute)
		if d := r.seats()[0].Status.Durations; len(d) != 0 {
			t.Errorf("after a rest the card says %v", d)
		}
	}, steered, with(func(c *setup) { c.Handler = mux; c.Concurrency = 50 }))
}

// TestMinuteOnCard: a card counts the handlers that ended in the last minute and those that failed,
// by type; what is older is forgotten.
func TestMinuteOnCard(t *testing.T) {
	mux := new(onceq.Mux)
	mux.On("charge", onceq.HandlerFunc(func(_ context.Context, j *onceq.Job) error {
		takes(10 * time.Millisecond)
		if j.Key().Key[0] == 'x' {
			return onceq.Permanent(errors.New("the card has expired"))
		}
		return nil
	}), nil)
	mux.On("mail", onceq.HandlerFunc(func(context.Context, *onceq.Job) error { takes(time.Millisecond); return nil }), nil)
	bubble(t, nil, func(r *rig) {
		r.start()
		pass(time.Minute)
		if c := r.seats()[0].Status; c.Minute == nil || *c.Minute != (control.Runs{}) || len(c.MinuteTypes) != 0 {
			t.Errorf("before any job the card says %+v", c)
		}
		for i := range 9 {
			r.put(jobOf("charge", fmt.Sprint(i), ""))
		}
		r.put(jobOf("charge", "x", ""))
		r.put(jobOf("mail", "m", ""))
		pass(30 * time.Second)
		c := r.seats()[0].Status
		if *c.Minute != (control.Runs{Runs: 11, Errors: 1}) || c.MinuteTypes["charge"] != (control.Runs{Runs: 10, Errors: 1}) || c.MinuteTypes["mail"] != (control.Runs{Runs: 1}) {
			t.Errorf("the card says %+v %+v", c.Minute, c.MinuteTypes)
		}
		pass(2 * time.Minute)
		if c := r.seats()[0].Status; *c.Minute != (control.Runs{}) || len(c.MinuteTypes) != 0 {
			t.Errorf("two minutes later it says %+v %+v", c.Minute, c.MinuteTypes)
		}
	}, steered, with(func(c *setup) { c.Handler = mux }))
}

// TestFullOnCard: a card says since when each slot is busy and nothing has begun, and says nothing
// while a slot is free.
func TestFullOnCard(t *testing.T) {
	h := func(_ context.Context, j *onceq.Job) error {
		if j.Key().Key == "late" {
			takes(20 * time.Second)
		}
		takes(2 * time.Minute)
		return nil
	}
	bubble(t, h, func(r *rig) {
		r.send("a")
		r.start()
		pass(25 * time.Second)
		if c := r.seats()[0].Status; !c.FullSince.IsZero() || c.Busy != 1 {
			t.Errorf("with a free slot the card says %+v", c)
		}
		began := time.Now()
		r.send("late", "waits")
		pass(65 * time.Second)
		if c := r.seats()[0].Status; c.Busy != 2 || c.FullSince.Before(began) || c.FullSince.After(began.Add(15*time.Second)) || c.Retention == 0 || c.Interrupted != "rerun" {
			t.Errorf("full since %v the card says %+v", began, c)
		}
	}, steered, with(func(c *setup) { c.Concurrency, c.DrainTimeout = 2, 10*time.Minute }))
}

// TestDurationsOfAnEarlierRun: a card says nothing of what an earlier Run of its worker did, not
// even where the new one has ended a job.
func TestDurationsOfAnEarlierRun(t *testing.T) {
	handler := onceq.HandlerFunc(func(_ context.Context, j *onceq.Job) error {
		takes(time.Second)
		if j.Key().Key == "long" {
			takes(time.Minute)
		}
		return nil
	})
	bubble(t, nil, func(r *rig) {
		r.start()
		r.put(jobOf("", "long", ""))
		pass(63 * time.Second) // no card has told of it
		if err := r.stop(); err != nil {
			t.Error(err)
		}
		r.start()
		for range 15 { // the first card is written within ten
			pass(time.Second)
			if s := r.seats(); len(s) > 0 && len(s[0].Status.Durations) != 0 {
				t.Fatalf("a card without a job says %v", s[0].Status.Durations)
			}
		}
		r.put(jobOf("", "short", ""))
		pass(time.Minute)
		if q := r.seats()[0].Status.Durations[""]; q.Max != time.Second {
			t.Errorf("the times are %v, want those of one job of a second", q)
		}
	}, steered, with(func(c *setup) { c.Handler = handler }))
}
