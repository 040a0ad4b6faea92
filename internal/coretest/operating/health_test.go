package operating

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe/memstore"
	"github.com/onceq/onceq/internal/coretest/rig"
	"github.com/onceq/onceq/internal/faulty"
	"github.com/onceq/onceq/internal/must"
	"github.com/onceq/onceq/onceqtest"
)

// shortPolls is a queue whose longest wait is 5 s, as that of a long poll.
type shortPolls struct{ *rig.Queue }

func (q shortPolls) Limits() broker.Limits {
	l := q.Queue.Limits()
	l.MaxWait = 5 * sec
	return l
}

func (q shortPolls) Receive(ctx context.Context, o broker.ReceiveOptions) ([]*broker.Message, error) {
	o.Wait = 5 * sec
	return q.Queue.Receive(ctx, o)
}

func pollsFor5s(r *rig.Rig) { r.Cfg.Broker = shortPolls{r.Q} }

func away(op onceqtest.Op) faulty.Func {
	return func(_ context.Context, c onceqtest.Call) (f faulty.Faults) {
		if c.Op == op {
			f = faulty.Fail(rig.ErrBoom)
		}
		return f
	}
}

// wantHealth checks state, since when it holds, and what the probes are answered: ready and live
// are parts of their sentences, "" = 200.
func wantHealth(r *rig.Rig, state onceq.State, since time.Duration, ready, live string) {
	r.Helper()
	h := r.W.Health()
	says := func(what string, err error, want string) {
		r.Helper()
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			r.Errorf("after %v %s is %v, want %q", r.Since(), what, err, want)
		}
	}
	says("ready", h.Ready(30*sec), ready)
	says("live", h.Live(nil), live)
	got := h.Since.Sub(r.Began)
	if h.Since.IsZero() {
		got = 0
	}
	if h.State != state || got < since-sec || got > since+sec {
		r.Errorf("after %v the state is %s since %v, want %s since %v", r.Since(), h.State, got, state, since)
	}
}

// TestHealthStates goes through each state and back.
func TestHealthStates(t *testing.T) {
	const (
		starting = "starting: no poll was answered yet"
		draining = "draining"
		stopped  = "stopped: Run is not under way"
		queue    = "the queue has failed for"
		store    = "the store has failed for"
	)
	rig.Bubble(t, func(context.Context, *onceq.Job) error {
		rig.Takes(20 * sec)
		return nil
	}, func(r *rig.Rig) {
		at := func(d time.Duration) { r.Helper(); rig.Pass(d - r.Since()) }
		wantHealth(r, onceq.StateStopped, 0, stopped, "")
		r.Start()
		at(2 * sec)
		wantHealth(r, onceq.StateStarting, 0, starting, "")
		at(10 * sec) // the first poll was answered, after 5 s
		wantHealth(r, onceq.StateRunning, 5*sec, "", "")

		r.W.Pause()
		at(20 * sec)
		wantHealth(r, onceq.StatePaused, 10*sec, "", "")
		at(10 * time.Minute)
		wantHealth(r, onceq.StatePaused, 10*sec, "", "")
		r.W.Resume()
		at(10*time.Minute + 10*sec)
		wantHealth(r, onceq.StateRunning, 10*time.Minute, "", "")

		r.Q.SetFault(away(onceqtest.Receive)) // the queue is away
		at(10*time.Minute + 20*sec)
		wantHealth(r, onceq.StateOutage, 10*time.Minute+15*sec, "", "")
		at(11 * time.Minute)
		wantHealth(r, onceq.StateOutage, 10*time.Minute+15*sec, queue, "")
		r.W.Pause() // a pause has the state, and the queue is not asked
		at(11*time.Minute + 5*sec)
		wantHealth(r, onceq.StatePaused, 11*time.Minute, queue, "")
		at(12 * time.Minute)
		wantHealth(r, onceq.StatePaused, 11*time.Minute, "", "")
		r.W.Resume()
		at(12*time.Minute + 10*sec)
		wantHealth(r, onceq.StateOutage, 10*time.Minute+15*sec, queue, "")
		r.Q.SetFault(nil)
		at(12*time.Minute + 25*sec)
		if h := r.W.Health(); h.State != onceq.StateRunning || h.Ready(0) != nil || len(h.Reasons) > 0 {
			t.Errorf("the queue is back, and health is %+v", h)
		}

		r.Store.Fails(rig.ErrBoom, onceqtest.Claim, onceqtest.Renew, onceqtest.Settle) // the store is away
		r.Send("a")
		at(12*time.Minute + 35*sec)
		wantHealth(r, onceq.StateOutage, 12*time.Minute+25*sec, "", "")
		at(13 * time.Minute)
		wantHealth(r, onceq.StateOutage, 12*time.Minute+25*sec, store, "")
		r.Store.Heals()
		at(13*time.Minute + 6*sec)
		if h := r.W.Health(); h.State != onceq.StateRunning || h.Ready(0) != nil || h.Since.Sub(r.Began) < 13*time.Minute {
			t.Errorf("the store is back, and health is %+v", h)
		}

		r.StopNow() // while the job runs on
		at(13*time.Minute + 10*sec)
		wantHealth(r, onceq.StateDraining, 13*time.Minute+6*sec, draining, "")
		at(14 * time.Minute)
		<-r.Done
		h := r.W.Health()
		r.Done = nil
		wantHealth(r, onceq.StateStopped, h.Since.Sub(r.Began), stopped, "")
		if d := h.Since.Sub(r.Began); d < 13*time.Minute+6*sec || d > 13*time.Minute+30*sec {
			t.Errorf("stopped since %v", d)
		}
	}, pollsFor5s)
}

// The rule: a worker of an empty queue is ready within five seconds, however long the queue waits
// for a message (membroker: an hour). Else a rollout at night waits for each pod.
func TestReadyOnAnEmptyQueue(t *testing.T) {
	rig.Bubble(t, rig.Returns(nil), func(r *rig.Rig) {
		r.Start()
		rig.Pass(5*sec + time.Millisecond)
		wantHealth(r, onceq.StateRunning, 5*sec, "", "")
	})
}

// A worker that never got an answer to a poll is not ready, however short it has been asking.
func TestHealthOfAQueueThatNeverAnswered(t *testing.T) {
	rig.Bubble(t, rig.Returns(nil), func(r *rig.Rig) {
		r.Q.SetFault(away(onceqtest.Receive))
		r.Start()
		rig.Pass(10 * sec)
		wantHealth(r, onceq.StateOutage, 0, "starting: no poll was answered yet", "")
		r.Q.SetFault(nil)
		rig.Pass(20 * sec)
		if h := r.W.Health(); h.State != onceq.StateRunning || h.Ready(0) != nil {
			t.Errorf("in the end health is %+v", h)
		}
	}, pollsFor5s)
}

// A store that is away for ten minutes restarts no worker, while jobs run and messages wait. The
// worker is not ready after 30 s, and again 5 s after the store is back.
func TestHealthOutlastsTheStore(t *testing.T) {
	for name, sends := range map[string]int{"a job that runs": 1, "messages that come": 20} {
		t.Run(name, func(t *testing.T) {
			rig.Bubble(t, func(context.Context, *onceq.Job) error {
				rig.Takes(time.Hour)
				return nil
			}, func(r *rig.Rig) {
				r.Send("first")
				r.Start()
				rig.Pass(20 * sec)
				r.Store.Fails(rig.ErrBoom, onceqtest.Claim, onceqtest.Renew, onceqtest.Settle)
				if sends > 1 {
					r.Send(rig.Numbered("k", sends)...)
				}
				var unready time.Duration
				began := time.Now()
				for time.Since(began) < 10*time.Minute {
					rig.Pass(sec)
					h := r.W.Health()
					if err := h.Live(&onceq.Liveness{Overdue: time.Hour}); err != nil {
						t.Fatalf("after %v live fails: %v", time.Since(began), err)
					}
					if since := h.Store.Failing; h.Ready(30*sec) != nil {
						if unready == 0 {
							unready = time.Since(began)
						}
						if time.Since(since) < 30*sec || h.Store.Err != rig.ErrBoom.Error() {
							t.Fatalf("after %v: not ready, and the store is %+v", time.Since(began), h.Store)
						}
					} else if unready != 0 {
						t.Fatalf("after %v it is ready", time.Since(began))
					}
				}
				if unready < 30*sec || unready > 45*sec { // a job alone asks with its next beat
					t.Errorf("not ready after %v", unready)
				}
				r.Store.Heals()
				rig.Pass(5 * sec)
				if h := r.W.Health(); h.Ready(0) != nil || h.State != onceq.StateRunning {
					t.Errorf("5 s after the store is back, health is %+v", h)
				}
				r.StopNow()
				<-r.Done
				r.Done = nil
				rig.Pass(time.Hour)
			}, pollsFor5s)
		})
	}
}

// Letters that are not taken are told of, and no probe fails for them.
func TestHealthOfLetters(t *testing.T) {
	rig.Bubble(t, rig.Failing, func(r *rig.Rig) {
		r.DLQ.SetFault(away(onceqtest.Send))
		r.Send("a")
		r.Start()
		rig.Pass(time.Minute)
		h := r.W.Health()
		if h.State != onceq.StateRunning || h.Ready(30*sec) != nil || h.Live(nil) != nil {
			t.Errorf("health is %+v", h)
		}
		if h.Letters.Failing.IsZero() || len(h.Reasons) != 1 || h.Reasons[0] != "letters: boom" {
			t.Errorf("nothing tells of the letters: %+v", h)
		}
		r.DLQ.SetFault(nil)
		rig.Pass(10 * sec)
		if h := r.W.Health(); !h.Letters.Failing.IsZero() || h.Letters.Seen.IsZero() || h.Reasons != nil {
			t.Errorf("in the end health is %+v", h)
		}
	}, pollsFor5s)
}

// The rule: letters that are not taken are told of for as long as that lasts. One handler gives
// such a message back for five minutes, because its letter would keep all others from running.
func TestHealthOfLettersOfOneHandler(t *testing.T) {
	rig.Bubble(t, rig.Failing, func(r *rig.Rig) {
		r.DLQ.SetFault(away(onceqtest.Send))
		r.Send("a")
		r.Start()
		began := time.Now()
		for time.Since(began) < 20*time.Minute {
			rig.Pass(10 * sec)
			if h := r.W.Health(); h.Letters.Err != "boom" || len(h.Reasons) != 1 {
				t.Fatalf("after %v nothing tells of the letters: %+v", time.Since(began), h)
			}
		}
		r.DLQ.SetFault(nil)
		rig.Pass(6 * time.Minute)
		r.Letter("permanent")
		if h := r.W.Health(); !h.Letters.Failing.IsZero() || h.Reasons != nil {
			t.Errorf("in the end health is %+v", h)
		}
	}, pollsFor5s, rig.With(func(c *rig.Setup) { c.Concurrency = 1 }))
}

// hung is a queue whose receives hang, whatever their context says.
type hung struct {
	shortPolls
	until chan struct{}
}

func (q hung) Receive(ctx context.Context, o broker.ReceiveOptions) ([]*broker.Message, error) {
	<-q.until
	return q.shortPolls.Receive(ctx, o)
}

// Pollers that hang fail live, and only where slots are free and nothing is paused.
func TestHealthOfPollersThatHang(t *testing.T) {
	for _, pollers := range []int{1, 3} {
		h := hung{until: make(chan struct{})}
		rig.Bubble(t, rig.Returns(nil), func(r *rig.Rig) {
			h.until = make(chan struct{})
			h.shortPolls = shortPolls{r.Q}
			r.W = r.Worker(func(c *rig.Setup) { c.Broker, c.Pollers = h, pollers })
			r.Start()
			rig.Pass(time.Minute)
			wantHealth(r, onceq.StateOutage, time.Duration(7*pollers)*sec, "starting: no poll was answered yet", "") // one steps in for the other
			rig.Pass(90 * sec)
			if err := r.W.Health(); err.Live(nil) == nil || !strings.Contains(err.Live(nil).Error(), "no receive has come back") {
				t.Errorf("after %v live is %v", r.Since(), err.Live(nil))
			}
			long := r.W.Health()
			if long.Live(&onceq.Liveness{Stuck: time.Hour}) != nil {
				t.Error("live fails before Liveness.Stuck")
			}
			r.W.Pause()
			if h := r.W.Health(); h.Live(nil) != nil {
				t.Errorf("paused, and live is %v", h.Live(nil))
			}
			r.W.Resume()
			close(h.until)
			rig.Pass(20 * sec)
			if h := r.W.Health(); h.Live(nil) != nil || h.Ready(0) != nil || h.State != onceq.StateRunning {
				t.Errorf("in the end health is %+v", h)
			}
		}, pollsFor5s)
	}
}

// Handlers that ignore their ended contexts fail live only where Liveness.Overdue says so, and only
// when each slot has one.
func TestHealthOfOverdueHandlers(t *testing.T) {
	rig.Bubble(t, func(context.Context, *onceq.Job) error {
		rig.Takes(time.Hour)
		return nil
	}, func(r *rig.Rig) {
		bound := &onceq.Liveness{Overdue: time.Minute}
		r.Send("a")
		r.Start()
		rig.Pass(10 * time.Minute)
		if h := r.W.Health(); h.Overdue != 1 || h.Busy != 1 || h.Live(bound) != nil {
			t.Errorf("a slot is free, and health is %+v, %v", h, h.Live(bound))
		}
		r.Send("b")
		rig.Pass(80 * sec) // its context ends after 30 s
		if h := r.W.Health(); h.Overdue != 2 || h.Live(bound) != nil || h.Stuck != 50*sec {
			t.Errorf("health is %+v, %v", h, h.Live(bound))
		}
		rig.Pass(10 * sec)
		h := r.W.Health()
		if err := h.Live(bound); err == nil || err.Error() != "all 2 slots are held by handlers that ignore their ended contexts, for 1m0s" {
			t.Errorf("live is %v", err)
		}
		if h.Live(nil) != nil || h.Ready(0) != nil {
			t.Error("without a bound a probe fails")
		}
		r.StopNow()
		<-r.Done
		r.Done = nil
		rig.Pass(time.Hour)
	}, pollsFor5s, rig.With(func(c *rig.Setup) { c.Concurrency, c.Defaults.Timeout = 2, 30*sec }))
}

func TestLiveOfANegativeBound(t *testing.T) {
	h := onceq.Health{State: onceq.StateRunning}
	if err := h.Live(&onceq.Liveness{Stuck: -sec, Overdue: -sec}); err != nil {
		t.Errorf("live is %v", err)
	}
}

func TestLiveOfLateBeats(t *testing.T) {
	h := onceq.Health{State: onceq.StateRunning, Late: 40 * sec}
	if err := h.Live(nil); err == nil || err.Error() != "no heartbeat was sent for 40s beyond a lease's whole time" {
		t.Errorf("live is %v", err)
	}
}

func BenchmarkHealth(b *testing.B) {
	w, stop := benchWorker(b, 10, 8)
	defer stop()
	for b.Loop() {
		if h := w.Health(); h.Busy != 8 || h.Live(nil) != nil {
			b.Fatalf("%+v", h)
		}
	}
}

func BenchmarkHealthOfManySlots(b *testing.B) {
	w, stop := benchWorker(b, 1000, 900)
	defer stop()
	for b.Loop() {
		if h := w.Health(); h.Busy != 900 {
			b.Fatalf("%+v", h)
		}
	}
}

// benchWorker is a worker whose slots are taken by jobs.
func benchWorker(b *testing.B, slots, jobs int) (w *onceq.Worker, stop func()) {
	b.Helper()
	q := must.Get(membroker.New(nil))
	s := must.Get(memstore.New(nil))
	begun, end := make(chan struct{}, jobs), make(chan struct{})
	p, err := onceq.NewProcessor(onceq.ProcessorConfig{Scope: rig.Scope, Store: s, Handler: onceq.HandlerFunc(func(context.Context, *onceq.Job) error {
		begun <- struct{}{}
		<-end
		return nil
	})})
	if err != nil {
		b.Fatal(err)
	}
	if w, err = p.Worker(q, onceq.WorkerConfig{DeadLetter: onceq.KeepInQueue, Concurrency: slots}); err != nil {
		b.Fatal(err)
	}
	ms := make([]broker.Outgoing, jobs)
	for i, k := range rig.Numbered("k", jobs) {
		ms[i] = rig.Message(k)
	}
	if err := onceq.Send(b.Context(), q, ms); err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	for range jobs {
		<-begun
	}
	return w, func() {
		close(end)
		cancel()
		if err := <-done; err != nil {
			b.Error(err)
		}
	}
}
