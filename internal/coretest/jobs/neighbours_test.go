package jobs

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/control"
	"github.com/onceq/onceq/internal/controlstore"
	"github.com/onceq/onceq/internal/coretest/rig"
	"github.com/onceq/onceq/internal/must"
)

// sitsBeside takes the seat of another worker of the rig's queue, with the settings of the rig's.
func sitsBeside(r *rig.Rig, owner string, change func(*control.WorkerStatus)) *controlstore.Seat {
	r.Helper()
	s := must.Get(controlstore.NewSeat(r.Store.Store, controlstore.SeatOptions{Queue: rig.Scope, Owner: owner, TTL: time.Hour}))
	c := &control.WorkerStatus{At: time.Now(), Started: time.Now(), State: "running", Scope: rig.Scope, Retention: onceq.DefaultRetention, Interrupted: "rerun"}
	if change != nil {
		change(c)
	}
	if err := s.Beat(r.Context(), c); err != nil {
		r.Fatal(err)
	}
	return s
}

// TestNeighbours: a worker tells once of each other one whose settings have jobs done twice, and of
// one that starts beside it soon after, too.
func TestNeighbours(t *testing.T) {
	h := func(context.Context, *onceq.Job) error { return nil }
	told := func(r *rig.Rig, want int, texts ...string) {
		r.Helper()
		if n := r.Logged.Count(append([]string{"level=ERROR", "another live worker of the queue"}, texts...)...); n != want {
			r.Errorf("%d lines with %q, want %d", n, texts, want)
		}
	}
	rig.Bubble(t, h, func(r *rig.Rig) {
		sitsBeside(r, "same", nil)
		sitsBeside(r, "older", func(c *control.WorkerStatus) { c.Retention, c.Interrupted = 0, "" })
		sitsBeside(r, "w-8", func(c *control.WorkerStatus) { c.Scope = "order" })
		if err := sitsBeside(r, "gone", func(c *control.WorkerStatus) { c.Scope = "order" }).Leave(r.Context()); err != nil {
			t.Fatal(err)
		}
		r.Start()
		rig.Pass(25 * time.Second)
		told(r, 1)
		told(r, 1, "order", "each job may be done by both", "worker=w-8")
		sitsBeside(r, "w-9", func(c *control.WorkerStatus) { c.Retention = time.Hour })
		sitsBeside(r, "w-7", func(c *control.WorkerStatus) { c.Interrupted = "park" })
		rig.Pass(150 * time.Second)
		told(r, 3)
		told(r, 1, "Retention 1h0m0s", "worker=w-9")
		told(r, 1, "Defaults.Interrupted", "worker=w-7")
		rig.Pass(20 * time.Minute)
		told(r, 3)
	}, rig.Steered)
}

// TestStrict: a strict worker does not start beside one with another scope, and does when that has
// left. A worker without a seat cannot be strict.
func TestStrict(t *testing.T) {
	h := func(context.Context, *onceq.Job) error { return nil }
	rig.Bubble(t, h, func(r *rig.Rig) {
		other := sitsBeside(r, "w-8", func(c *control.WorkerStatus) { c.Scope = "order" })
		r.Send("a")
		ctx, cancel := context.WithTimeout(r.Context(), time.Minute)
		defer cancel()
		err := r.W.Run(ctx)
		if !errors.Is(err, onceq.ErrWorkersDiffer) || !strings.Contains(err.Error(), `w-8 has Scope "order"`) {
			t.Errorf("Run: %v", err)
		}
		r.WantQueue(1)
		if err := other.Leave(r.Context()); err != nil {
			t.Fatal(err)
		}
		r.RunFor(time.Minute)
		r.WantOutcomes("a", "done")
	}, rig.Steered, rig.With(func(c *rig.Setup) { c.Control.Strict = true }))
	_, err := onceq.NewProcessor(onceq.ProcessorConfig{
		Scope: rig.Scope, Handler: onceq.HandlerFunc(h), Store: onceq.NoStore, Control: onceq.ControlOptions{Strict: true, Every: -1},
	})
	if err == nil || !strings.Contains(err.Error(), "ProcessorConfig.Control.Strict") {
		t.Error(err)
	}
}

// TestShortRetention: on a queue that keeps its messages for ever no Retention is refused, so a
// short one is told.
func TestShortRetention(t *testing.T) {
	for _, retention := range []time.Duration{time.Minute, 24 * time.Hour} {
		rig.Bubble(t, func(context.Context, *onceq.Job) error { return nil }, func(r *rig.Rig) {
			r.Q.ChangeLimits = func(l broker.Limits) broker.Limits { l.Durable = true; return l }
			r.W = r.Worker(func(f *rig.Setup) { f.Broker, f.Retention = rig.Keeping{Broker: r.Q}, retention })
			r.RunFor(time.Second)
			want := 0
			if retention < 24*time.Hour {
				want = 1
			}
			if n := r.Logged.Count("level=WARN", "Retention is short", "retention=1m0s"); n != want {
				t.Errorf("Retention %v: %d lines", retention, n)
			}
		})
	}
}
