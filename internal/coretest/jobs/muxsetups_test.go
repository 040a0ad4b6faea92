package onceq_test

import (
	"bytes"
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
)

// untypedMux is a worker's Handler that knows one type.
func untypedMux(r *rig) {
	mux := new(onceq.Mux)
	mux.On("mail", returns(nil), nil)
	r.cfg.Handler = mux
	byBody(&r.cfg)
}

// A Mux goes by the type, which a foreign producer does not give: its queue is not emptied into the
// dead-letter queue. The letters that there are in the end, a worker with one handler takes.
func TestMuxOnForeignMessages(t *testing.T) {
	bubble(t, never(t), func(r *rig) {
		r.sendForeign("a", "b")
		r.start()
		pass(23 * time.Hour)
		r.noLetters()
		r.wantQueue(2)
		if n := r.log.count("messages have no type", "by Mux.Untyped, or give their queue a Processor with one Handler"); n < 200 || n > 300 {
			t.Errorf("%d errors in 23 hours, want one each five minutes", n)
		}
		if n := r.store.claims.Load(); n != 0 {
			t.Errorf("%d claims", n)
		}
		pass(2 * time.Hour)
		ls := r.letters()
		if len(ls) != 2 || ls[0].Meta.Dead.Class != onceq.ClassNoHandler || ls[0].Meta.Dead.Fence != 0 {
			t.Fatalf("the letters are %+v", ls)
		}
		if err := r.stop(); err != nil {
			t.Error(err)
		}
		r.w = r.worker(func(c *setup) { c.Handler = returns(nil) })
		for _, l := range ls {
			r.replay(l)
		}
		r.run(time.Minute)
		r.wantStatus("a", dedupe.Done)
		r.wantStatus("b", dedupe.Done)
	}, untypedMux)
}

// Where producers give types, a message without one is tried again, and ends as a letter.
func TestMuxOnOneUntypedMessage(t *testing.T) {
	bubble(t, never(t), func(r *rig) {
		r.put(broker.Outgoing{Body: []byte("m"), Meta: &broker.Meta{Key: "m", Type: "mail"}})
		r.start()
		pass(time.Second)
		r.sendForeign("a")
		pass(time.Hour)
		r.letter(onceq.ClassNoHandler)
		r.wantQueue(0)
	}, steady, untypedMux)
}

// A Handler that hides a Mux is found out by its first jobs. The others stay in their queue, and a
// mended worker runs them all.
func TestHiddenMuxHoldsBack(t *testing.T) {
	mux := new(onceq.Mux)
	ran := make(map[string]bool)
	mux.On("mail", onceq.HandlerFunc(func(_ context.Context, j *onceq.Job) error { ran[j.Key().Key] = true; return nil }), nil)
	bubble(t, mux.Handle, func(r *rig) {
		keys := numbered("k", 40)
		for _, k := range keys {
			r.put(typed("mail", k))
		}
		r.start()
		pass(12 * time.Hour)
		r.noLetters()
		r.wantQueue(40)
		if n := r.log.count("the Handler wraps a Mux", "Wrap the Mux with Chain"); n < 100 {
			t.Errorf("%d errors in 12 hours, want one each five minutes", n)
		}
		if err := r.stop(); err != nil {
			t.Error(err)
		}
		r.w = r.worker(func(c *setup) { c.Handler = mux; c.Concurrency = 1 })
		r.run(2 * time.Hour)
		r.noLetters()
		r.wantQueue(0)
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
		mux.On("mail", never(t), &onceq.JobOptions{Scope: shared})
		mux.On("charge", never(t), &onceq.JobOptions{Scope: shared})
		mux.On("other", never(t), nil)
		c := config(t)
		c.Handler, c.Logger = mux, slog.New(slog.NewTextHandler(&log, nil))
		if _, err := newWorker(c); err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(log.String(), "type=mail other=charge scope=old"); n != want {
			t.Errorf("scope %q: %d warnings, want %d:\n%s", shared, n, want, &log)
		}
	}
}

// One queue of a Processor at most does without a Name.
func TestQueuesNeedNames(t *testing.T) {
	c := config(t)
	p, err := onceq.NewProcessor(c.ProcessorConfig)
	if err != nil {
		t.Fatal(err)
	}
	other := newBroker(t, membroker.Options{})
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
	var log logged
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	defer slog.SetDefault(before)
	h := func(_ context.Context, j *onceq.Job) error {
		if j.Key().Key == "bad" {
			return onceq.Permanent(errBoom)
		}
		return nil
	}
	bubble(t, h, func(r *rig) {
		r.send("good", "bad")
		r.run(time.Second)
		if n := log.count("key=bad", "outcome=failed", "level=WARN"); n != 1 {
			t.Errorf("%d lines tell of the job that failed, want 1", n)
		}
		if n := log.count("level=INFO"); n != 0 {
			t.Errorf("%d lines of INFO, want none", n)
		}
	}, with(func(c *setup) { c.Logger = nil }))
}

// A job that a dead worker has left is parked by the delivery that finds it, which says so. Later
// ones find it parked, and another message with its key is told apart.
func TestParkedByATakeover(t *testing.T) {
	bubble(t, never(t), func(r *rig) {
		var dead atomic.Bool
		m, released := mortal{r.store, &dead}, make(chan struct{})
		kill := r.beside(func(c *setup) {
			c.Store, c.Broker, c.DrainTimeout = m, mortalQueue{r.q, m}, -1
			c.Handler = onceq.HandlerFunc(func(context.Context, *onceq.Job) error { <-released; return nil })
		})
		r.send("a")
		pass(time.Second)
		dead.Store(true)
		r.start()
		pass(2 * time.Minute)
		l := r.letter(onceq.ClassInterrupted)
		own := broker.Outgoing{Body: l.Body, Meta: l.Meta.Clone()}
		own.Meta.Dead = nil
		r.put(own)
		pass(time.Minute)
		r.letter(onceq.ClassInterrupted)
		// Its producer has chosen the same key.
		r.put(broker.Outgoing{Body: []byte("other"), Meta: &broker.Meta{Key: "a"}})
		pass(time.Minute)
		r.letter(onceq.ClassDuplicate)
		var got []string
		for _, rec := range r.seen.of("a") {
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
	}, parks)
}

// What waits behind a foreign message in its group shows, too, that producers know onceq.
func TestForeignHeadOfAGroupOfOurs(t *testing.T) {
	bubble(t, returns(nil), func(r *rig) {
		if _, err := r.q.Send(r.Context(), []broker.Outgoing{{Body: []byte("foreign"), Group: "g", DedupID: "1"}}); err != nil {
			t.Fatal(err)
		}
		r.send("g/ours")
		r.start()
		pass(time.Hour)
		r.wantStatus("ours", dedupe.Done)
		r.letter(onceq.ClassNoKey)
	}, preset(membroker.SQSFIFO))
}

// A Handler that gives only some jobs to a hidden Mux goes on with the others.
func TestHiddenMuxOfSomeJobs(t *testing.T) {
	mux := new(onceq.Mux)
	mux.On("mail", never(t), nil)
	h := func(ctx context.Context, j *onceq.Job) error {
		if j.Type() == "mail" {
			return mux.Handle(ctx, j)
		}
		return nil
	}
	bubble(t, h, func(r *rig) {
		r.put(typed("other", "a"), typed("mail", "b"))
		r.start()
		pass(time.Minute)
		r.put(typed("other", "c"))
		pass(time.Hour)
		r.wantStatus("a", dedupe.Done)
		r.wantStatus("c", dedupe.Done)
		r.letter(onceq.ClassConfig)
	}, steady)
}
