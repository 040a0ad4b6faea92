package onceq_test

import (
	"context"
	"testing"
	"time"

	"github.com/onceq/onceq"
)

// A worker's log tells when it starts, pauses, goes on and drains: once each.
func TestWorkerTellsOfItself(t *testing.T) {
	bubble(t, func(context.Context, *onceq.Job) error {
		takes(time.Minute)
		return nil
	}, func(r *rig) {
		want := func(what string, n int, text string) {
			t.Helper()
			if got := r.log.count(what); got != n || n > 0 && !r.log.has(what, text) {
				t.Errorf("%d lines %q, want %d with %q", got, what, n, text)
			}
		}
		r.w.Pause()
		want("onceq: paused", 0, "") // nothing is under way; the start tells it
		r.start()
		pass(time.Second)
		want("onceq: the worker starts", 1, "paused=true")
		r.w.Resume()
		r.w.Resume()
		want("onceq: resumed", 1, "running=0")
		r.send("a")
		pass(time.Second)
		r.w.Pause()
		r.w.Pause()
		want("onceq: paused", 1, "running=1")
		r.stopNow()
		pass(time.Second)
		want("onceq: draining", 1, "drain_timeout=1m30s")
		want("onceq: drained", 0, "")
		pass(time.Minute)
		want("onceq: drained", 1, "took=59s")
	}, with(func(c *setup) { c.DrainTimeout = 90 * time.Second }))
}

func TestWorkerTellsOfADrainThatFailed(t *testing.T) {
	bubble(t, func(context.Context, *onceq.Job) error {
		takes(time.Hour)
		return nil
	}, func(r *rig) {
		r.send("a")
		r.start()
		pass(time.Second)
		if err := r.stop(); err == nil {
			t.Error("Run answered nil")
		}
		if !r.log.has("the drain has ended, and jobs had not", "took=25s") || r.log.count("onceq: drained") != 0 {
			t.Error("no line tells of it")
		}
		pass(time.Hour)
	})
}
