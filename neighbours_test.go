package onceq_test

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
)

// sitsBeside takes the seat of another worker of the rig's queue, with the settings of the rig's.
func (r *rig) sitsBeside(owner string, change func(*control.WorkerStatus)) *controlstore.Seat {
	r.Helper()
	s, err := controlstore.NewSeat(r.store.Store, controlstore.SeatOptions{Queue: scope, Owner: owner, TTL: time.Hour})
	if err != nil {
		r.Fatal(err)
	}
	c := &control.WorkerStatus{At: time.Now(), Started: time.Now(), State: "running", Scope: scope, Retention: onceq.DefaultRetention, Interrupted: "rerun"}
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
	told := func(r *rig, want int, texts ...string) {
		r.Helper()
		if n := r.log.count(append([]string{"level=ERROR", "another live worker of the queue"}, texts...)...); n != want {
			r.Errorf("%d lines with %q, want %d", n, texts, want)
		}
	}
	bubble(t, h, func(r *rig) {
		r.sitsBeside("same", nil)
		r.sitsBeside("older", func(c *control.WorkerStatus) { c.Retention, c.Interrupted = 0, "" })
		r.sitsBeside("w-8", func(c *control.WorkerStatus) { c.Scope = "order" })
		if err := r.sitsBeside("gone", func(c *control.WorkerStatus) { c.Scope = "order" }).Leave(r.Context()); err != nil {
			t.Fatal(err)
		}
		r.start()
		pass(25 * time.Second)
		told(r, 1)
		told(r, 1, "order", "each job may be done by both", "worker=w-8")
		r.sitsBeside("w-9", func(c *control.WorkerStatus) { c.Retention = time.Hour })
		r.sitsBeside("w-7", func(c *control.WorkerStatus) { c.Interrupted = "park" })
		pass(150 * time.Second)
		told(r, 3)
		told(r, 1, "Retention 1h0m0s", "worker=w-9")
		told(r, 1, "Defaults.Interrupted", "worker=w-7")
		pass(20 * time.Minute)
		told(r, 3)
	}, steered)
}

// TestStrict: a strict worker does not start beside one with another scope, and does when that has
// left. A worker without a seat cannot be strict.
func TestStrict(t *testing.T) {
	h := func(context.Context, *onceq.Job) error { return nil }
	bubble(t, h, func(r *rig) {
		other := r.sitsBeside("w-8", func(c *control.WorkerStatus) { c.Scope = "order" })
		r.send("a")
		ctx, cancel := context.WithTimeout(r.Context(), time.Minute)
		defer cancel()
		err := r.w.Run(ctx)
		if !errors.Is(err, onceq.ErrUnlike) || !strings.Contains(err.Error(), `w-8 has Scope "order"`) {
			t.Errorf("Run: %v", err)
		}
		r.wantQueue(1)
		if err := other.Leave(r.Context()); err != nil {
			t.Fatal(err)
		}
		r.run(time.Minute)
		r.wantOutcomes("a", "done")
	}, steered, with(func(c *setup) { c.Control.Strict = true }))
	_, err := onceq.NewProcessor(onceq.ProcessorConfig{
		Scope: scope, Handler: onceq.HandlerFunc(h), Store: onceq.NoStore, Control: onceq.ControlOptions{Strict: true, Every: -1},
	})
	if err == nil || !strings.Contains(err.Error(), "ProcessorConfig.Control.Strict") {
		t.Error(err)
	}
}

// TestShortRetention: on a queue that keeps its messages for ever no Retention is refused, so a
// short one is told.
func TestShortRetention(t *testing.T) {
	for _, retention := range []time.Duration{time.Minute, 24 * time.Hour} {
		bubble(t, func(context.Context, *onceq.Job) error { return nil }, func(r *rig) {
			r.q.limits = func(l broker.Limits) broker.Limits { l.Durable = true; return l }
			r.w = r.worker(func(f *setup) { f.Broker, f.Retention = keeping{Broker: r.q}, retention })
			r.run(time.Second)
			want := 0
			if retention < 24*time.Hour {
				want = 1
			}
			if n := r.log.count("level=WARN", "Retention is short", "retention=1m0s"); n != want {
				t.Errorf("Retention %v: %d lines", retention, n)
			}
		})
	}
}
