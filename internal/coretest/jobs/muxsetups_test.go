package jobs

import (
	"bytes"
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/coretest/rig"
	"github.com/onceq/onceq/internal/must"
)

// untypedMux is a worker's Handler that knows one type.
func untypedMux(r *rig.Rig) {
	mux := new(onceq.Mux)
	mux.On("mail", rig.Returns(nil), nil)
	r.Cfg.Handler = mux
	rig.ByBody(&r.Cfg)
}

// A Mux goes by the type, which a foreign producer does not give: its queue is not emptied into the
// dead-letter queue. The letters that there are in the end, a worker with one handler takes.
func TestMuxOnForeignMessages(t *testing.T) {
	rig.Bubble(t, rig.Never(t), func(r *rig.Rig) {
		r.SendForeign("a", "b")
		r.Start()
		rig.Pass(23 * time.Hour)
		r.NoLetters()
		r.WantQueue(2)
		if n := r.Logged.Count("messages have no type", "by Mux.Untyped, or give their queue a Processor with one Handler"); n < 200 || n > 300 {
			t.Errorf("%d errors in 23 hours, want one each five minutes", n)
		}
		if n := r.Store.Claims.Load(); n != 0 {
			t.Errorf("%d claims", n)
		}
		rig.Pass(2 * time.Hour)
		ls := r.Letters()
		if len(ls) != 2 || ls[0].Meta.Dead.Class != onceq.ClassNoHandler || ls[0].Meta.Dead.Fence != 0 {
			t.Fatalf("the letters are %+v", ls)
		}
		if err := r.Stop(); err != nil {
			t.Error(err)
		}
		r.W = r.Worker(func(c *rig.Setup) { c.Handler = rig.Returns(nil) })
		for _, l := range ls {
			r.Replay(l)
		}
		r.RunFor(time.Minute)
		r.WantStatus("a", dedupe.Done)
		r.WantStatus("b", dedupe.Done)
	}, untypedMux)
}

// Where producers give types, a message without one is tried again, and ends as a letter.
func TestMuxOnOneUntypedMessage(t *testing.T) {
	rig.Bubble(t, rig.Never(t), func(r *rig.Rig) {
		r.Put(broker.Outgoing{Body: []byte("m"), Meta: &broker.Meta{Key: "m", Type: "mail"}})
		r.Start()
		rig.Pass(time.Second)
		r.SendForeign("a")
		rig.Pass(time.Hour)
		r.Letter(onceq.ClassNoHandler)
		r.WantQueue(0)
	}, rig.Steady, untypedMux)
}

// A Handler that hides a Mux is found out by its first jobs. The others stay in their queue, and a
// mended worker runs them all.
func TestHiddenMuxHoldsBack(t *testing.T) {
	mux := new(onceq.Mux)
	ran := make(map[string]bool)
	mux.On("mail", onceq.HandlerFunc(func(_ context.Context, j *onceq.Job) error { ran[j.Key().Key] = true; return nil }), nil)
	rig.Bubble(t, mux.Handle, func(r *rig.Rig) {
		keys := rig.Numbered("k", 40)
		for _, k := range keys {
			r.Put(rig.Typed("mail", k))
		}
		r.Start()
		rig.Pass(12 * time.Hour)
		r.NoLetters()
		r.WantQueue(40)
		if n := r.Logged.Count("the Handler wraps a Mux", "Wrap the Mux with Chain"); n < 100 {
			t.Errorf("%d errors in 12 hours, want one each five minutes", n)
		}
		if err := r.Stop(); err != nil {
			t.Error(err)
		}
		r.W = r.Worker(func(c *rig.Setup) { c.Handler = mux; c.Concurrency = 1 })
		r.RunFor(2 * time.Hour)
		r.NoLetters()
		r.WantQueue(0)
		if len(ran) != 40 {
			t.Errorf("%d jobs have run, want 40", len(ran))
		}
	})
}

// Types that share a scope share their keys, which may be a mistake.
func TestSharedScopesAreToldOf(t *testing.T) {
	for shared, want := range map[string]int{"": 0, "old": 1} {
		var log bytes.Buffer
		mux := new(onceq.Mux)
		mux.On("mail", rig.Never(t), &onceq.JobOptions{Scope: shared})
		mux.On("charge", rig.Never(t), &onceq.JobOptions{Scope: shared})
		mux.On("other", rig.Never(t), nil)
		c := rig.Config(t)
		c.Handler, c.Logger = mux, slog.New(slog.NewTextHandler(&log, nil))
		if _, err := rig.NewWorker(c); err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(log.String(), "type=mail other=charge scope=old"); n != want {
			t.Errorf("scope %q: %d warnings, want %d:\n%s", shared, n, want, &log)
		}
	}
}

// One queue of a Processor at most does without a Name.
func TestQueuesNeedNames(t *testing.T) {
	c := rig.Config(t)
	p := must.Get(onceq.NewProcessor(c.ProcessorConfig))
	other := rig.NewBroker(t, membroker.Options{})
	for _, w := range []struct {
		queue broker.Receiver
		name  string
		taken bool
	}{{c.Broker, "", true}, {c.Broker, "", true}, {other, "", false}, {other, "other", true}, {c.Broker, "other", true}} {
		_, err := p.Worker(w.queue, onceq.WorkerConfig{DeadLetter: onceq.KeepInQueue, Name: w.name})
		if (err == nil) != w.taken || err != nil && !strings.HasPrefix(err.Error(), "onceq: WorkerConfig.Name: ") {
			t.Errorf("%+v: %v", w, err)
		}
	}
	if _, err := p.Batches(onceq.BatchConfig{DeadLetter: onceq.KeepInQueue}); err == nil || !strings.HasPrefix(err.Error(), "onceq: BatchConfig.Name: ") {
		t.Errorf("Batches: %v", err)
	}
	if _, err := p.Batches(onceq.BatchConfig{DeadLetter: onceq.KeepInQueue, Name: "batches"}); err != nil {
		t.Error(err)
	}
}

// Without a Logger a person is told all the same of what has gone wrong, and of no more.
func TestDefaultLogger(t *testing.T) {
	var log rig.Logged
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	defer slog.SetDefault(before)
	h := func(_ context.Context, j *onceq.Job) error {
		if j.Key().Key == "bad" {
			return onceq.Permanent(rig.ErrBoom)
		}
		return nil
	}
	rig.Bubble(t, h, func(r *rig.Rig) {
		r.Send("good", "bad")
		r.RunFor(time.Second)
		if n := log.Count("key=bad", "outcome=failed", "level=WARN"); n != 1 {
			t.Errorf("%d lines tell of the job that failed, want 1", n)
		}
		if n := log.Count("level=INFO"); n != 0 {
			t.Errorf("%d lines of INFO, want none", n)
		}
	}, rig.With(func(c *rig.Setup) { c.Logger = nil }))
}

// A job that a dead worker has left is parked by the delivery that finds it, which says so. Later
// ones find it parked, and another message with its key is told apart.
func TestParkedByATakeover(t *testing.T) {
	rig.Bubble(t, rig.Never(t), func(r *rig.Rig) {
		process, store, queue := rig.Mortal(r.Store, r.Q)
		released := make(chan struct{})
		kill := r.Beside(func(c *rig.Setup) {
			c.Store, c.Broker, c.DrainTimeout = store, queue, -1
			c.Handler = onceq.HandlerFunc(func(context.Context, *onceq.Job) error { <-released; return nil })
		})
		r.Send("a")
		rig.Pass(time.Second)
		process.Kill()
		r.Start()
		rig.Pass(2 * time.Minute)
		l := r.Letter(onceq.ClassInterrupted)
		own := broker.Outgoing{Body: l.Body, Meta: l.Meta.Clone()}
		own.Meta.Dead = nil
		r.Put(own)
		rig.Pass(time.Minute)
		r.Letter(onceq.ClassInterrupted)
		// Its producer has chosen the same key.
		r.Put(broker.Outgoing{Body: []byte("other"), Meta: &broker.Meta{Key: "a"}})
		rig.Pass(time.Minute)
		r.Letter(onceq.ClassDuplicate)
		var got []string
		for _, rec := range r.Seen.Of("a") {
			if rec.Outcome == onceq.OutcomeParked && !strings.Contains(rec.Err, "died") {
				t.Errorf("the job was parked with the error %q", rec.Err)
			}
			if rec.Outcome != onceq.OutcomeInProgress {
				got = append(got, string(rec.Outcome))
			}
		}
		if want := []string{"parked", "already-parked", "duplicate"}; !slices.Equal(got, want) {
			t.Errorf("the deliveries ended as %q, want %q", got, want)
		}
		close(released)
		kill()
	}, rig.Parks)
}

// What waits behind a foreign message in its group shows, too, that producers know onceq.
func TestForeignHeadOfAGroupOfOurs(t *testing.T) {
	rig.Bubble(t, rig.Returns(nil), func(r *rig.Rig) {
		if _, err := r.Q.Send(r.Context(), []broker.Outgoing{{Body: []byte("foreign"), Group: "g", DedupID: "1"}}); err != nil {
			t.Fatal(err)
		}
		r.Send("g/ours")
		r.Start()
		rig.Pass(time.Hour)
		r.WantStatus("ours", dedupe.Done)
		r.Letter(onceq.ClassNoKey)
	}, rig.Preset(membroker.SQSFIFO))
}

// A Handler that gives only some jobs to a hidden Mux goes on with the others.
func TestHiddenMuxOfSomeJobs(t *testing.T) {
	mux := new(onceq.Mux)
	mux.On("mail", rig.Never(t), nil)
	h := func(ctx context.Context, j *onceq.Job) error {
		if j.Type() == "mail" {
			return mux.Handle(ctx, j)
		}
		return nil
	}
	rig.Bubble(t, h, func(r *rig.Rig) {
		r.Put(rig.Typed("other", "a"), rig.Typed("mail", "b"))
		r.Start()
		rig.Pass(time.Minute)
		r.Put(rig.Typed("other", "c"))
		rig.Pass(time.Hour)
		r.WantStatus("a", dedupe.Done)
		r.WantStatus("c", dedupe.Done)
		r.Letter(onceq.ClassConfig)
	}, rig.Steady)
}
