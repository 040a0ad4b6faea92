package batches

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"weak"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/coretest/rig"
	"github.com/onceq/onceq/internal/must"
)

// Two workers with one Bulk fill batches together. Under Park each start is recorded where its job
// has its claim, also where that is another store.
func TestBulkIsShared(t *testing.T) {
	var got *batchesSeen
	h := onceq.Bulk(onceq.BulkOptions{Max: 4, Linger: time.Second}, func(_ context.Context, js []*onceq.Job) []error {
		got.note(js)
		return nil
	})
	rig.Bubble(t, nil, func(r *rig.Rig) {
		got = newBatchesSeen()
		second := rig.NewQueue(r.T, membroker.Options{})
		other := r.Worker(func(c *rig.Setup) { c.Broker, c.Scope, c.Store = second, "second", rig.NewStore(r.T) })
		ctx, stop := context.WithCancel(r.Context())
		done := make(chan error, 1)
		go func() { done <- other.Run(ctx) }()
		r.Start()
		r.Send("a", "b")
		if err := onceq.Send(r.Context(), second.Broker, []broker.Outgoing{rig.Message("c"), rig.Message("d")}); err != nil {
			t.Fatal(err)
		}
		rig.Pass(100 * time.Millisecond)
		if ns := got.sizes(); !slices.Equal(ns, []int{4}) {
			t.Errorf("batches of %v, want one of 4", ns)
		}
		r.WantOutcomes("a", "done")
		r.WantOutcomes("d", "done")
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}, inBatches(4, h), rig.Parks)
}

// A worker keeps nothing of a batch that has ended: its messages are the user's memory.
func TestBulkIsForgotten(t *testing.T) {
	var mu sync.Mutex
	var jobs []weak.Pointer[onceq.Job]
	h := onceq.Bulk(onceq.BulkOptions{Max: 5}, func(_ context.Context, js []*onceq.Job) []error {
		mu.Lock()
		defer mu.Unlock()
		for _, j := range js {
			jobs = append(jobs, weak.Make(j))
		}
		return nil
	})
	rig.Bubble(t, nil, func(r *rig.Rig) {
		r.Start()
		r.Send(rig.Numbered("k", 100)...)
		rig.Pass(time.Minute)
		runtime.GC()
		mu.Lock()
		defer mu.Unlock()
		all := len(jobs)
		jobs = slices.DeleteFunc(jobs, func(j weak.Pointer[onceq.Job]) bool { return j.Value() == nil })
		if all != 100 || len(jobs) > 20 {
			t.Errorf("%d of %d jobs that have ended are kept", len(jobs), all)
		}
	}, inBatches(10, h))
}

func TestBulkUnderAMux(t *testing.T) {
	var got *batchesSeen
	var wrapped []string
	var mu sync.Mutex
	rig.Bubble(t, nil, func(r *rig.Rig) {
		r.Start()
		for _, k := range []string{"a", "b", "c"} {
			m := rig.Message(k)
			m.Meta.Type = "mail"
			r.Put(m)
		}
		rig.Pass(10 * time.Second)
		if ns := got.sizes(); !slices.Equal(ns, []int{2, 1}) {
			t.Errorf("batches of %v, want 2 and 1", ns)
		}
		if len(wrapped) != 3 {
			t.Errorf("the middleware saw %v", wrapped)
		}
	}, func(r *rig.Rig) {
		got = newBatchesSeen()
		var m onceq.Mux
		m.Use(func(next onceq.Handler) onceq.Handler {
			return onceq.HandlerFunc(func(ctx context.Context, j *onceq.Job) error {
				mu.Lock()
				wrapped = append(wrapped, j.Key().Key)
				mu.Unlock()
				return next.Handle(ctx, j)
			})
		})
		m.On("mail", onceq.Bulk(onceq.BulkOptions{Max: 2}, func(_ context.Context, js []*onceq.Job) []error {
			got.note(js)
			return nil
		}), nil)
		r.Cfg.Handler, r.Cfg.Concurrency = &m, 4
	})
}

// Behind JSON a body that does not decode is no part of the batch.
func TestBulkBehindJSON(t *testing.T) {
	var got *batchesSeen
	all := onceq.Bulk(onceq.BulkOptions{Max: 20}, func(_ context.Context, js []*onceq.Job) []error {
		got.note(js)
		return nil
	})
	h := onceq.JSON(func(ctx context.Context, j *onceq.Job, _ int) error { return all.Handle(ctx, j) })
	rig.Bubble(t, nil, func(r *rig.Rig) {
		got = newBatchesSeen()
		r.Send("1", "2", "poison")
		r.RunFor(time.Second)
		if ns := got.sizes(); !slices.Equal(ns, []int{2}) {
			t.Errorf("batches of %v, want one of 2", ns)
		}
		r.WantOutcomes("poison", "failed")
		if n := r.Logged.Count("level=WARN", "Concurrency is below the Max", "max=20", "concurrency=10"); n != 1 {
			t.Errorf("the log told %d times that no batch can be full", n)
		}
	}, inBatches(10, h))
}

// Where the options are wrong, or a Worker has too few slots for a batch, construction says so.
func TestBulkRefuses(t *testing.T) {
	f := func(context.Context, []*onceq.Job) []error { return nil }
	under := func(h onceq.Handler) onceq.Handler {
		var m onceq.Mux
		m.On("mail", h, nil)
		return &m
	}
	chain := func(h onceq.Handler) onceq.Handler {
		return onceq.Chain(h, func(next onceq.Handler) onceq.Handler { return onceq.HandlerFunc(next.Handle) })
	}
	if h := onceq.Bulk(onceq.BulkOptions{}, nil); h != nil {
		t.Errorf("a nil function makes %v", h)
	}
	for name, c := range map[string]struct {
		h    onceq.Handler
		text string
	}{
		"no function":     {onceq.Bulk(onceq.BulkOptions{}, nil), "ProcessorConfig.Handler: is nil"},
		"Max":             {onceq.Bulk(onceq.BulkOptions{Max: -1}, f), "BulkOptions.Max: -1 is not within 1 and 10000"},
		"Max, too many":   {onceq.Bulk(onceq.BulkOptions{Max: 10_001}, f), "BulkOptions.Max: 10001"},
		"Linger":          {onceq.Bulk(onceq.BulkOptions{Linger: -1}, f), "BulkOptions.Linger: -1ns is not within 1ms and 1m0s"},
		"Linger, bare":    {onceq.Bulk(onceq.BulkOptions{Linger: 50}, f), "its unit missing"},
		"Linger, long":    {onceq.Bulk(onceq.BulkOptions{Linger: time.Hour}, f), "BulkOptions.Linger: 1h0m0s"},
		"Max in a Chain":  {chain(onceq.Bulk(onceq.BulkOptions{Max: -1}, f)), "BulkOptions.Max: -1"},
		"Max in a Mux":    {under(onceq.Bulk(onceq.BulkOptions{Max: -1}, f)), `BulkOptions.Max: -1 is not within 1 and 10000 (of Mux.On("mail"))`},
		"slots":           {onceq.Bulk(onceq.BulkOptions{}, f), "WorkerConfig.Concurrency: 10 is below 100, the Max of the Bulk handler: no batch could be full"},
		"slots, in Chain": {chain(onceq.Bulk(onceq.BulkOptions{Max: 11}, f)), "WorkerConfig.Concurrency: 10 is below 11"},
		"slots, in a Mux": {under(onceq.Bulk(onceq.BulkOptions{Max: 11}, f)), `the Max of the Bulk handler of type "mail"`},
	} {
		r := rig.New(t, func(context.Context, *onceq.Job) error { return nil })
		s := r.Cfg
		s.Handler = c.h
		_, err := rig.NewWorker(s)
		var mistake *onceq.ConfigError
		if !errors.As(err, &mistake) || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: %v, want %q", name, err, c.text)
		}
	}
}

// Hidden in a wrapper that nobody can look into, wrong options fail each job, and lose none.
func TestBulkMistakeThatIsHidden(t *testing.T) {
	wrong := onceq.Bulk(onceq.BulkOptions{Max: -1}, func(context.Context, []*onceq.Job) []error { return nil })
	rig.Bubble(t, wrong.Handle, func(r *rig.Rig) {
		r.Send("a")
		r.RunFor(500 * time.Millisecond)
		r.WantOutcomes("a", "retried")
		if end := r.Seen.Of("a")[0]; !strings.Contains(end.Err, "BulkOptions.Max") {
			t.Errorf("the error is %q", end.Err)
		}
	}, rig.Steady)
}

func TestBulkInABatchOfDeliveries(t *testing.T) {
	var got *batchesSeen
	h := onceq.Bulk(onceq.BulkOptions{Linger: time.Second}, func(_ context.Context, js []*onceq.Job) []error {
		got.note(js)
		return nil
	})
	rig.Bubble(t, nil, func(r *rig.Rig) {
		bs := must.Get(r.Cfg.Batches())
		for _, c := range []struct {
			slots int
			sizes []int
		}{{0, []int{10}}, {5, []int{5, 5}}, {4, []int{4, 4, 2}}} {
			got = newBatchesSeen()
			began := time.Now()
			var ds []onceq.Delivery
			for _, k := range rig.Numbered(fmt.Sprintf("s%d-", c.slots), 10) {
				ds = append(ds, onceq.Delivery{Message: &broker.Message{ID: k, Body: []byte(k), Meta: &broker.Meta{Key: k}}, Until: began.Add(time.Minute)})
			}
			bs.Process(r.Context(), ds, &onceq.BatchOptions{Concurrency: c.slots}, func(i int, d onceq.Disposition) {
				if d.Action != onceq.Ack {
					t.Errorf("delivery %d: %+v", i, d)
				}
			})
			if ns := got.sizes(); !slices.Equal(ns, c.sizes) {
				t.Errorf("with %d slots there were batches of %v, want %v", c.slots, ns, c.sizes)
			}
			if took, most := time.Since(began), time.Duration(c.sizes[len(c.sizes)-1]%max(1, c.slots)/2)*time.Second; took != most {
				t.Errorf("with %d slots it took %v, want %v", c.slots, took, most)
			}
		}
	}, inBatches(100, h))
}

func TestBulkInDo(t *testing.T) {
	rig.Bubble(t, func(context.Context, *onceq.Job) error { return nil }, func(r *rig.Rig) {
		p, err := onceq.NewProcessor(r.Cfg.ProcessorConfig)
		if err != nil {
			t.Fatal(err)
		}
		got := newBatchesSeen()
		h := onceq.Bulk(onceq.BulkOptions{Linger: time.Minute}, func(_ context.Context, js []*onceq.Job) []error {
			got.note(js)
			return []error{nil}
		})
		began := time.Now()
		_, err = onceq.Do(r.Context(), p, rig.Key("one"), nil, func(ctx context.Context, j *onceq.Job) (int, error) {
			return 7, h.Handle(ctx, j)
		})
		if err != nil || time.Since(began) != 0 {
			t.Errorf("Do answered %v after %v: the one job of a call waits for no other", err, time.Since(began))
		}
		got.want(t, "one")
	})
}

// A Job that a test has made itself can be handled, and lingers.
func TestBulkOfATestsOwnJobs(t *testing.T) {
	n := 0
	h := onceq.Bulk(onceq.BulkOptions{Max: 2, Linger: time.Minute}, func(_ context.Context, js []*onceq.Job) []error {
		n += len(js)
		return nil
	})
	var all sync.WaitGroup
	for range 2 {
		all.Go(func() {
			if err := h.Handle(t.Context(), &onceq.Job{Message: &broker.Message{ID: "1"}}); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if n != 2 {
		t.Errorf("%d jobs", n)
	}
}

func TestBulkWithoutAStore(t *testing.T) {
	tries := 0
	h := onceq.Bulk(onceq.BulkOptions{Max: 2}, func(_ context.Context, js []*onceq.Job) []error {
		if tries++; tries == 1 {
			return []error{rig.ErrBoom, nil}
		}
		return nil
	})
	rig.Bubble(t, nil, func(r *rig.Rig) {
		r.Send("a", "b")
		r.RunFor(5 * time.Second)
		r.WantQueue(0)
		if tries != 2 {
			t.Errorf("%d batches, want 2", tries)
		}
	}, inBatches(2, h), rig.Steady, rig.With(func(c *rig.Setup) { c.Store = onceq.NoStore }))
}
