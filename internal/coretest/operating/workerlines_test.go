package operating

import (
	"context"
	"testing"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/internal/coretest/rig"
)

// A worker's log tells when it starts, pauses, goes on and drains: once each.
func TestWorkerTellsOfItself(t *testing.T) {
	rig.Bubble(t, func(context.Context, *onceq.Job) error {
		rig.Takes(time.Minute)
		return nil
	}, func(r *rig.Rig) {
		want := func(what string, n int, text string) {
			t.Helper()
			if got := r.Logged.Count(what); got != n || n > 0 && r.Logged.Count(what, text) == 0 {
				t.Errorf("%d lines %q, want %d with %q", got, what, n, text)
			}
		}
		r.W.Pause()
		want("onceq: paused", 0, "") // nothing is under way; the start tells it
		r.Start()
		rig.Pass(time.Second)
		want("onceq: the worker starts", 1, "paused=true")
		r.W.Resume()
		r.W.Resume()
		want("onceq: resumed", 1, "running=0")
		r.Send("a")
		rig.Pass(time.Second)
		r.W.Pause()
		r.W.Pause()
		want("onceq: paused", 1, "running=1")
		r.StopNow()
		rig.Pass(time.Second)
		want("onceq: draining", 1, "drain_timeout=1m30s")
		want("onceq: drained", 0, "")
		rig.Pass(time.Minute)
		want("onceq: drained", 1, "took=59s")
	}, rig.With(func(c *rig.Setup) { c.DrainTimeout = 90 * time.Second }))
}

func TestWorkerTellsOfADrainThatFailed(t *testing.T) {
	rig.Bubble(t, func(context.Context, *onceq.Job) error {
		rig.Takes(time.Hour)
		return nil
	}, func(r *rig.Rig) {
		r.Send("a")
		r.Start()
		rig.Pass(time.Second)
		if err := r.Stop(); err == nil {
			t.Error("Run answered nil")
		}
		if r.Logged.Count("the drain has ended, and jobs had not", "took=25s") == 0 || r.Logged.Count("onceq: drained") != 0 {
			t.Error("no line tells of it")
		}
		rig.Pass(time.Hour)
	})
}
