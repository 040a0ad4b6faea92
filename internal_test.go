package onceq

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/memstore"
	"github.com/onceq/onceq/internal/ahead"
	"github.com/onceq/onceq/internal/engine"
	"github.com/onceq/onceq/internal/must"
)

// worked is all that one worker is made of.
type worked struct {
	ProcessorConfig
	WorkerConfig
	queue broker.Receiver
}

// inside runs f in virtual time, beside a worker whose queue holds n jobs.
func inside(t *testing.T, n int, change func(c *worked), f func(w *Worker)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		q := must.Get(membroker.New(&membroker.Options{Preset: membroker.SQSStandard}))
		st := must.Get(memstore.New(nil))
		c := worked{ProcessorConfig{Store: st, Scope: "test"}, WorkerConfig{DeadLetter: KeepInQueue}, q}
		change(&c)
		p, err := NewProcessor(c.ProcessorConfig)
		if err != nil {
			t.Fatal(err)
		}
		w := must.Get(p.Worker(c.queue, c.WorkerConfig))
		if err := Send(t.Context(), q, make([]broker.Outgoing, n)); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- w.Run(ctx) }()
		f(w)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		<-time.After(time.Minute)
		if n := w.p.e.Held(); n != 0 {
			t.Errorf("%d leases are held after the end", n)
		}
	})
}

// A worker that always has something waiting does not keep the places of all that it has done.
func TestQueueOfABusyWorkerStaysShort(t *testing.T) {
	inside(t, 2000, func(c *worked) {
		c.Concurrency = 4
		c.Handler = HandlerFunc(func(_ context.Context, j *Job) error {
			<-time.After(time.Second + time.Duration(j.Fence()%97)*time.Millisecond*7)
			return nil
		})
	}, func(w *Worker) {
		<-time.After(5 * time.Minute)
		n, places := w.flow.Waiting()
		if n == 0 {
			t.Error("nothing waits")
		}
		if places > 100 {
			t.Errorf("the queue has %d places for %d that wait", places, n)
		}
	})
}

// lineReader is called with each line of a log, where that is written.
type lineReader func(line string)

func (f lineReader) Write(line []byte) (int, error) { f(string(line)); return len(line), nil }

// A Bulk logs under no lock, because a Logger that blocks would hold up all of its batches.
func TestBulkLogsUnderNoLock(t *testing.T) {
	h := Bulk(BulkOptions{Max: 20}, func(context.Context, []*Job) []error { return nil }).(*bulk)
	told := 0
	inside(t, 1, func(c *worked) {
		c.Handler = HandlerFunc(h.Handle) // so that nobody sees it before the first job
		c.Logger = slog.New(slog.NewTextHandler(lineReader(func(line string) {
			switch {
			case !strings.Contains(line, "below the Max of a Bulk"):
			case h.mu.TryLock():
				told++
				h.mu.Unlock()
			default:
				t.Error("it is logged under the lock")
			}
		}), nil))
	}, func(*Worker) { <-time.After(time.Second) })
	if told != 1 {
		t.Errorf("it was told %d times", told)
	}
}

// A lease is not held again after its run has ended, because nobody would look after it.
func TestLostDeliveryOfAnEndedRunStaysReleased(t *testing.T) {
	ended := make(map[string]int)
	inside(t, 2, func(c *worked) {
		c.Concurrency = 1
		c.CallTimeout = time.Minute
		c.queue = losing{c.queue.(*membroker.Broker)}
		c.Store = slowClaims{c.Store}
		c.Handler = HandlerFunc(func(context.Context, *Job) error { return nil })
		c.Observer = slowEnd{ended}
	}, func(*Worker) { <-time.After(5 * time.Minute) })
	if ended["lost-before-claim"] == 0 || ended["done"] == 0 {
		t.Errorf("the runs ended as %v", ended)
	}
}

// The flow must have a run before its delivery is held. Else the delivery could be found lost, and
// the run be over before it has begun. The list of the runs would break, and Run would not return.
func TestNothingIsHeldThatTheFlowDoesNotHave(t *testing.T) {
	inside(t, 0, func(c *worked) {
		c.Handler = HandlerFunc(func(context.Context, *Job) error { <-time.After(time.Second); return nil })
	}, func(w *Worker) {
		synctest.Wait()
		rs := w.taken(w.flow, []*broker.Message{{ID: "1", Meta: &broker.Meta{Key: "k"}}}, time.Now())
		if n := w.p.e.Held(); n != 0 {
			t.Errorf("%d leases are held too early", n)
		}
		w.flow.Offer(0, rs)
		if n := w.p.e.Held(); n != 1 {
			t.Errorf("%d leases are held, want 1", n)
		}
	})
}

// losing loses every delivery at its first extension, the youngest first.
type losing struct{ *membroker.Broker }

func (q losing) Receive(ctx context.Context, o broker.ReceiveOptions) ([]*broker.Message, error) {
	ms, err := q.Broker.Receive(ctx, o)
	for i, m := range ms {
		m.Deadline = m.Deadline.Add(-time.Duration(i) * time.Second)
	}
	return ms, err
}

func (q losing) Extend(context.Context, []broker.Hold) error { return broker.ErrReceiptExpired }

// slowClaims are answered after the first beat.
type slowClaims struct{ dedupe.Store }

func (s slowClaims) Claim(ctx context.Context, rs []dedupe.ClaimRequest) ([]dedupe.Claim, error) {
	<-time.After(20 * time.Second)
	return s.Store.Claim(ctx, rs)
}

// slowEnd takes its time over a delivery that was lost.
type slowEnd struct{ ended map[string]int }

func (slowEnd) JobStarted(ctx context.Context, _ *Job) context.Context { return ctx }

func (s slowEnd) JobEnded(_ context.Context, r *JobReport) {
	if r.Outcome == "lost-before-claim" {
		<-time.After(30 * time.Second)
	}
	s.ended[string(r.Outcome)]++
}

// Nothing of a batch stays with the manager that renews the claims.
func TestBatchLeavesNoLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := must.Get(memstore.New(nil))
		p, err := NewProcessor(ProcessorConfig{
			Store: st, Scope: "test",
			Handler: HandlerFunc(func(_ context.Context, j *Job) error {
				<-time.After(time.Duration(len(j.Message.Body)) * time.Second)
				return nil
			}),
		})
		if err != nil {
			t.Fatal(err)
		}
		b := must.Get(p.Batches(BatchConfig{DeadLetter: KeepInQueue}))
		for _, until := range []time.Time{{}, time.Now().Add(10 * time.Second)} {
			ds := []Delivery{{Until: until}, {Until: until}}
			for i := range ds {
				k := string(rune('a' + i))
				ds[i].Message = &broker.Message{ID: k, Meta: &broker.Meta{ID: k, Key: k}, Body: make([]byte, 1+20*i)}
			}
			b.Process(t.Context(), ds, nil, func(int, Disposition) {})
			if n := b.in.e.Held(); n != 0 {
				t.Errorf("%d leases are held after the return", n)
			}
		}
	})
}

// A claim may be won in the moment in which its caller gives up, before the flow is stopped. f must
// not run any more, because the caller is told that it has not run and will not run.
func TestDoClaimWonAsTheCallerLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := must.Get(memstore.New(nil))
		p, err := NewProcessor(ProcessorConfig{Store: st, Scope: "test"})
		if err != nil {
			t.Fatal(err)
		}
		key := dedupe.Key{Scope: "test", Key: "a"}
		c := must.Get(newCall(p, key, nil))
		c.f = func(context.Context, *Job) error {
			t.Error("it ran")
			return nil
		}
		try := c.newTry(t.Context(), nil)
		try.left, try.outage = true, true // and not stopped yet
		try.f.Offer(0, []*run{try.r})
		<-try.over
		if notRun := new(NotRunError); !errors.As(try.mine.err, &notRun) {
			t.Errorf("answered %v", try.mine.err)
		}
		rs, err := st.Get(t.Context(), []dedupe.Key{key})
		if err != nil || rs[0] == nil || rs[0].Status != dedupe.Released || rs[0].Attempt != 0 {
			t.Errorf("the record is %+v, %v", rs[0], err)
		}
		<-time.After(time.Minute)
	})
}

// The claim may be won, and the caller's context may end, before the call looks at either. f must
// not start, although nobody has cut off the run's own context yet.
func TestDoClaimWonAsTheContextEnds(t *testing.T) {
	for i := range 20 { // select takes either
		synctest.Test(t, func(t *testing.T) {
			memory := must.Get(memstore.New(nil))
			var st dedupe.Store = memory
			if i%2 == 0 {
				st = struct{ dedupe.Store }{memory} // which might wait
			}
			p, err := NewProcessor(ProcessorConfig{Store: st, Scope: "test"})
			if err != nil {
				t.Fatal(err)
			}
			c := must.Get(newCall(p, dedupe.Key{Scope: "test", Key: "a"}, nil))
			c.f = func(context.Context, *Job) error {
				t.Error("it ran")
				return nil
			}
			gone := errors.New("the client has gone")
			ctx, cancel := context.WithCancelCause(t.Context())
			try := c.newTry(ctx, nil)
			try.f.Offer(0, []*run{try.r})
			synctest.Wait() // the claim is won
			cancel(gone)
			if a, ended := try.awaitClaim(ctx); ended {
				t.Fatalf("the claim was left: %v", a.err)
			}
			p.calls.e.Work(try.r)
			<-try.over
			if notRun := new(NotRunError); !errors.As(try.mine.err, &notRun) || !errors.Is(try.mine.err, gone) {
				t.Errorf("answered %v", try.mine.err)
			}
			<-time.After(time.Minute)
		})
	}
}

// TestPausesForTwoReasons: neither the program nor an operator ends the other's pause, in whatever
// order they come and go.
func TestPausesForTwoReasons(t *testing.T) {
	var ran atomic.Int32
	inside(t, 3, func(c *worked) {
		c.Handler = HandlerFunc(func(context.Context, *Job) error { ran.Add(1); return nil })
		c.Key = func(m *broker.Message) (dedupe.Key, error) { return dedupe.Key{Key: m.ID}, nil }
	}, func(w *Worker) {
		<-time.After(time.Second)
		wants := func(state State, jobs int, reasons ...string) {
			t.Helper()
			<-time.After(time.Minute)
			synctest.Wait()
			h := w.Health()
			if s := w.Stats(); h.State != state || !slices.Equal(s.Paused, reasons) || int(ran.Load()) != jobs {
				t.Errorf("%s, paused for %q, %d jobs have run; want %s, %q, %d", h.State, s.Paused, ran.Load(), state, reasons, jobs)
			}
			if len(h.Reasons) != len(reasons) || h.Ready(0) != nil || h.Live(nil) != nil {
				t.Errorf("health is %+v; ready: %v, live: %v", h, h.Ready(0), h.Live(nil))
			}
		}
		send := func() {
			t.Helper()
			if err := Send(t.Context(), w.queue.(broker.Sender), make([]broker.Outgoing, 1)); err != nil {
				t.Fatal(err)
			}
		}
		wants(StateRunning, 3)
		w.pause(engine.ByRules)
		send()
		wants(StatePaused, 3, ReasonRules)
		w.Resume() // there is no pause of the program
		wants(StatePaused, 3, ReasonRules)
		w.Pause()
		wants(StatePaused, 3, ReasonLocal, ReasonRules)
		w.Resume()
		wants(StatePaused, 3, ReasonRules)
		w.Pause()
		w.resume(engine.ByRules)
		wants(StatePaused, 3, ReasonLocal)
		w.resume(engine.ByRules)
		wants(StatePaused, 3, ReasonLocal)
		w.Resume()
		wants(StateRunning, 4)
	})
}

// TestBeatsLate: a scheduler of beats counts as late when it is later than a lease's whole time.
func TestBeatsLate(t *testing.T) {
	inside(t, 1, func(c *worked) {
		c.Handler = HandlerFunc(func(context.Context, *Job) error { <-time.After(time.Hour); return nil })
		c.Key = func(m *broker.Message) (dedupe.Key, error) { return dedupe.Key{Key: m.ID}, nil }
		c.Lease, c.Visibility, c.DrainTimeout = 30*time.Second, 60*time.Second, 2*time.Hour
	}, func(w *Worker) {
		<-time.After(10 * time.Minute)
		synctest.Wait()
		for after, late := range map[time.Duration]bool{0: false, 29 * time.Second: false, 45 * time.Second: true, time.Hour: true} {
			d := w.p.e.BeatsLate(time.Now().Add(after))
			h := Health{Late: d}
			if (d > 0) != late || (h.Live(nil) != nil) != late || d > after-30*time.Second && late {
				t.Errorf("%v later the beats are %v late, live: %v", after, d, h.Live(nil))
			}
		}
	})
}

// TestDedupIDsOfCopies: messages of two queues may have one id, and be carried to the same queue,
// before their workers have asked for a key. A queue that took them for one would lose a job.
func TestDedupIDsOfCopies(t *testing.T) {
	to := must.Get(membroker.New(nil))
	c := &carrier{to: to, patience: func() ahead.Queue { return ahead.Queue{} }}
	copied := func(id, job string) string {
		r := &run{}
		r.Message = &broker.Message{ID: id, Meta: &broker.Meta{ID: job, Key: job}}
		return c.copyOf(r).DedupID
	}
	first := copied("1", "a")
	if first == "" || first != copied("1", "a") || first == copied("1", "b") || first == copied("2", "a") {
		t.Errorf("%q is the id of a copy of another message, or not of this one's second copy", first)
	}
}

// TestPollersByDefault: a receive batch of SQS is ten messages, one of Pub/Sub a thousand.
func TestPollersByDefault(t *testing.T) {
	for _, c := range []struct {
		concurrency, batch int
		billed             bool
		want               int
	}{
		{10, 10, true, 1},
		{100, 10, true, 5},
		{1000, 10, true, 16},
		{10, 1000, true, 1},
		{499, 1000, true, 1},
		{500, 1000, true, 2},
		{1000, 1000, true, 4},
		{10_000, 1000, true, 16},
		{1000, 1000, false, 1},
		{10_000, 1000, false, 5},
	} {
		got := WorkerConfig{Concurrency: c.concurrency}.complete(broker.Limits{ReceiveBatch: c.batch, PerRequestCost: c.billed}).Pollers
		if got != c.want {
			t.Errorf("%+v: %d pollers", c, got)
		}
	}
}
