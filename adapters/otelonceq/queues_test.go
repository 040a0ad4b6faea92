package otelonceq_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/otelonceq"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/must"
)

// depth is a broker that tells what a test says.
type depth struct {
	calls atomic.Int64
	get   func(ctx context.Context) (broker.Depth, error)
}

func (d *depth) Depth(ctx context.Context) (broker.Depth, error) {
	d.calls.Add(1)
	return d.get(ctx)
}

func TestQueuesRefuses(t *testing.T) {
	r := newRig(t, rigOptions{noTraces: true})
	d := &depth{}
	for want, c := range map[string]struct {
		o  otelonceq.QueueOptions
		qs []otelonceq.Queue
	}{
		"QueueOptions.Every is 100ms, want 1s to 1h0m0s":  {o: otelonceq.QueueOptions{Every: 100 * time.Millisecond}},
		"QueueOptions.Every is 2h0m0s":                    {o: otelonceq.QueueOptions{Every: 2 * time.Hour}},
		"QueueOptions.Timeout":                            {o: otelonceq.QueueOptions{Timeout: 5}},
		"Queue.Broker of queue 1 is nil":                  {qs: []otelonceq.Queue{{Name: "a", Broker: d}, {Name: "b"}}},
		"Queue.Name of queue 0 is empty, and its broker ": {qs: []otelonceq.Queue{{Broker: d}}},
		`Queue.DeadLetterOf of queue "a" is its own name`: {qs: []otelonceq.Queue{{Name: "a", Broker: d, DeadLetterOf: "a"}}},
		`Queue.Name "a" is given twice`:                   {qs: []otelonceq.Queue{{Name: "a", Broker: d}, {Name: "a", Broker: d}}},
	} {
		stop, err := r.tel.Queues(c.o, c.qs...)
		if stop != nil || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Queues answers %v, want %q", err, want)
		}
	}
}

func TestQueues(t *testing.T) {
	bubble(t, rigOptions{noTraces: true}, func(t *testing.T, r *rig) {
		numbers := broker.Depth{Visible: 7, InFlight: 3, Delayed: 1}
		var fails atomic.Bool
		moving := &depth{get: func(context.Context) (broker.Depth, error) {
			if fails.Load() {
				return broker.Depth{}, errBoom
			}
			return numbers, nil
		}}
		hanging := &depth{get: func(ctx context.Context) (broker.Depth, error) { <-ctx.Done(); return broker.Depth{}, ctx.Err() }}
		bad := &depth{get: func(context.Context) (broker.Depth, error) { panic("boom") }}
		dead := &depth{get: func(context.Context) (broker.Depth, error) {
			return broker.Depth{Visible: 4, InFlight: 2, Delayed: 9}, nil
		}}
		stop, err := r.tel.Queues(otelonceq.QueueOptions{},
			otelonceq.Queue{Name: "hangs", Broker: hanging}, otelonceq.Queue{Name: "panics", Broker: bad},
			otelonceq.Queue{Name: "moves", Broker: moving}, otelonceq.Queue{Name: "moves-dead", Broker: dead, DeadLetterOf: "moves"})
		if err != nil {
			t.Fatal(err)
		}
		<-time.After(time.Second)
		fs := r.scrape()
		r.want(fs, 7, "queue_depth", "queue=moves", "state=visible")
		r.want(fs, 3, "queue_depth", "queue=moves", "state=in_flight")
		r.want(fs, 1, "queue_depth", "queue=moves", "state=delayed")
		r.want(fs, 6, "dead_letter_queue_size", "queue=moves")
		for _, queue := range []string{"hangs", "panics", "moves-dead"} {
			if _, there := fs.value("queue_depth", "queue="+queue); there {
				t.Errorf("%s has a depth", queue)
			}
		}
		// A scrape asks nobody.
		before := moving.calls.Load()
		for range 10 {
			r.scrape()
		}
		if n := moving.calls.Load(); n != before {
			t.Errorf("ten scrapes have asked %d times", n-before)
		}
		// Every 30 s, give or take a tenth.
		<-time.After(10 * time.Minute)
		if n := moving.calls.Load(); n < 18 || n > 23 {
			t.Errorf("asked %d times in 10 minutes", n)
		}
		if n := hanging.calls.Load(); n < 18 || n > 23 {
			t.Errorf("the one that hangs was asked %d times", n)
		}
		// What cannot be read any more goes.
		fails.Store(true)
		<-time.After(time.Minute)
		r.want(r.scrape(), 7, "queue_depth", "queue=moves", "state=visible")
		<-time.After(3 * time.Minute)
		if _, there := r.scrape().value("queue_depth", "queue=moves"); there {
			t.Error("an old depth is still there")
		}
		if n := len(r.log.Lines("queue=moves")); n != 1 {
			t.Errorf("%d log lines of a queue that fails", n)
		}
		fails.Store(false)
		<-time.After(time.Minute)
		r.want(r.scrape(), 7, "queue_depth", "queue=moves", "state=visible")
		if got := r.log.Lines("can be read again"); len(got) != 1 {
			t.Errorf("log: %v", got)
		}
		stop()
		stop()
		after := moving.calls.Load()
		<-time.After(10 * time.Minute)
		if n := moving.calls.Load(); n != after {
			t.Errorf("asked %d times after stop", n-after)
		}
		if _, there := r.scrape()["queue_depth"]; there {
			t.Error("depths are there after stop")
		}
	})
}

// A broker that does not look at its context has one question open, and stop does not wait for it.
func TestQueuesThatHang(t *testing.T) {
	bubble(t, rigOptions{noTraces: true}, func(t *testing.T, r *rig) {
		let := make(chan struct{})
		deaf := &depth{get: func(context.Context) (broker.Depth, error) { <-let; return broker.Depth{}, nil }}
		stop, err := r.tel.Queues(otelonceq.QueueOptions{}, otelonceq.Queue{Name: "deaf", Broker: deaf}, otelonceq.Queue{Broker: r.raw})
		if err != nil {
			t.Fatal(err)
		}
		<-time.After(time.Hour)
		r.want(r.scrape(), 0, "queue_depth", "queue=orders", "state=visible")
		if n := deaf.calls.Load(); n != 1 {
			t.Errorf("asked %d times", n)
		}
		stop()
		close(let)
	})
}

func TestWorkerGauges(t *testing.T) {
	bubble(t, rigOptions{noTraces: true}, func(t *testing.T, r *rig) {
		if _, err := r.tel.Worker((*onceq.Worker)(nil)); err == nil {
			t.Error("nil is taken for a worker")
		}
		h := onceq.HandlerFunc(func(context.Context, *onceq.Job) error {
			<-time.After(2 * time.Minute)
			return nil
		})
		// Each has slots for all seven, so that all run, whoever takes them.
		one := r.worker(r.config(h), onceq.WorkerConfig{Concurrency: 7})
		two := r.worker(r.config(h), onceq.WorkerConfig{Concurrency: 7})
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 2)
		for _, w := range []*onceq.Worker{one, two} {
			go func() { ended <- w.Run(ctx) }()
		}
		for i := range 7 {
			r.send(message("charge", string(rune('a'+i))))
			<-time.After(time.Second)
		}
		<-time.After(20 * time.Second)
		fs := r.scrape()
		r.want(fs, 7, "jobs_active", "queue=orders")
		r.want(fs, 14, "worker_slots", "queue=orders")
		r.want(fs, 7./14, "worker_utilization_ratio", "queue=orders")
		r.want(fs, 2, "worker_state", "queue=orders", "state=running")
		r.want(fs, 0, "worker_state", "queue=orders", "state=paused")
		fs = r.scrape()
		if n, _ := fs.value("lease_margin_seconds", "queue=orders"); n != 2 {
			t.Errorf("%v margins of two workers", n)
		}
		if _, there := fs["pause_since_seconds"]; there {
			t.Error("a pause is shown")
		}
		paused := time.Now()
		one.Pause()
		<-time.After(time.Second)
		fs = r.scrape()
		r.want(fs, 1, "worker_state", "queue=orders", "state=running")
		r.want(fs, 1, "worker_state", "queue=orders", "state=paused")
		r.want(fs, float64(paused.UnixMilli())/1000, "pause_since_seconds", "queue=orders", "scope=", "type=")
		one.Resume()
		<-time.After(time.Second)
		if _, there := r.scrape()["pause_since_seconds"]; there {
			t.Error("a pause that is over is shown")
		}
		brake := one.Brake()
		brake(0)
		fs = r.scrape()
		r.want(fs, 1, "worker_state", "queue=orders", "state=breaker")
		r.want(fs, 0, "worker_state", "queue=orders", "state=paused")
		one.Pause()
		r.want(r.scrape(), 1, "worker_state", "queue=orders", "state=paused")
		brake(-1)
		<-time.After(20 * time.Second)
		stop()
		<-time.After(time.Second)
		r.want(r.scrape(), 2, "worker_state", "queue=orders", "state=draining")
		for range 2 {
			if err := <-ended; err != nil && !errors.As(err, new(*onceq.DrainError)) {
				t.Error(err)
			}
		}
		fs = r.scrape()
		r.want(fs, 0, "jobs_active", "queue=orders")
		if _, there := fs["pause_since_seconds"]; there {
			t.Error("the pause of a worker that has ended is shown")
		}
		<-time.After(2 * time.Minute) // abandoned handlers end
	})
}

func TestWorkerUnregister(t *testing.T) {
	r := newRig(t, rigOptions{noTraces: true})
	p := must.Get(onceq.NewProcessor(r.config(onceq.HandlerFunc(func(context.Context, *onceq.Job) error { return nil }))))
	w := must.Get(p.Worker(r.queue, onceq.WorkerConfig{DeadLetter: r.dead}))
	reg := must.Get(r.tel.Worker(w))
	r.want(r.scrape(), 0, "worker_slots", "queue=orders")
	for range 2 {
		if err := reg.Unregister(); err != nil {
			t.Error(err)
		}
	}
	if _, there := r.scrape()["worker_slots"]; there {
		t.Error("the worker is still shown")
	}
}

// staffed is a Worker that has three slots and runs.
type staffed struct{ name string }

func (*staffed) Stats() onceq.Stats     { return onceq.Stats{Load: onceq.Load{Slots: 3, Busy: 1}} }
func (s *staffed) Queue() string        { return s.name }
func (s *staffed) Health() onceq.Health { return onceq.Health{} }

// A Worker that two parts of a program register is one worker, until both have let it go.
func TestWorkerTwice(t *testing.T) {
	r := newRig(t, rigOptions{noTraces: true})
	w := &staffed{"orders"}
	for _, w := range []*staffed{w, w, {"orders"}} {
		reg := must.Get(r.tel.Worker(w))
		defer func() {
			if err := reg.Unregister(); err != nil {
				t.Error(err)
			}
		}()
	}
	r.want(r.scrape(), 6, "worker_slots", "queue=orders")
	first := must.Get(r.tel.Worker(w))
	for range 5 { // once counts
		if err := first.Unregister(); err != nil {
			t.Error(err)
		}
	}
	r.want(r.scrape(), 6, "worker_slots", "queue=orders")
	r.want(r.scrape(), 2, "jobs_active", "queue=orders")
}
