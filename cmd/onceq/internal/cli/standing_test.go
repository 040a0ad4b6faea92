package cli

import (
	"strings"
	"testing"
	"time"

	"github.com/onceq/onceq/control"
)

// TestStandstill: a queue whose slots are all busy while nothing begins does not look healthy: its
// head waits at least so long, its state says so, and the failures are those of the last minute.
func TestStandstill(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	stuck := func(c *control.WorkerStatus) {
		c.Busy, c.Held, c.HeadWait, c.FullSince = c.Slots, 3, 13*time.Millisecond, c.At.Add(-45*time.Second)
		c.Minute, c.MinuteTypes = &control.Runs{Runs: 40, Errors: 20}, map[string]control.Runs{"charge": {Runs: 20, Errors: 20}, "mail": {Runs: 20}}
		c.Durations = nil
	}
	r.seat("w-1/1", stuck)
	r.run("queue", "ls").want(0, "≥ 45s", "all slots busy for 45s, nothing ends", "50.0%").not("13ms", " ok")
	r.run("queue", "show", "orders").want(0, "head wait    ≥ 45s", "last minute  all: 40 runs, 20 failed (50.0%)", "charge: 20 runs, 20 failed (100.0%)", "mail: 20 runs, 0 failed")
	r.run("workers", "orders").want(0, "FAIL%", "50.0%")
	r.run("top").want(0, "all slots busy for 45s, nothing ends", "wait ≥ 45s", "fail 50.0%")
	var qs []queueView
	r.run("-o", "json", "queue", "ls").want(0).json(&qs)
	if q := qs[0]; q.HeadWait == nil || *q.HeadWait != 45 || !q.HeadLeast || *q.RunsMin != 40 || *q.ErrorsMin != 20 || len(q.Types) != 2 || q.Types[0].ErrorsMin != 20 || q.Full != 1 || *q.FullFor != 45 {
		t.Errorf("%+v", q)
	}
	var ws []workerView
	r.run("-o", "json", "workers", "orders").want(0).json(&ws)
	if w := ws[0]; w.FullFor == nil || *w.FullFor != 45 || w.Scope != "orders" || *w.RunsMin != 40 || len(w.Types) != 2 {
		t.Errorf("%+v", w)
	}
	r.seat("w-2/1", nil) // has a free slot, so what waits is taken by it
	r.run("queue", "ls").want(0, "1 worker: all slots busy for 45s, nothing ends", "900ms").not("≥")
}

// TestLongJobs: workers that are full of jobs which always take long stand still for nobody.
func TestLongJobs(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.seat("w-1/1", func(c *control.WorkerStatus) {
		c.Busy, c.FullSince = c.Slots, c.At.Add(-2*time.Minute)
		c.Durations = map[string]control.Quantiles{"report": {P95: 90 * time.Second}}
	})
	r.run("queue", "ls").want(0, " ok").not("nothing ends")
	r.beat(r.seat("w-2/1", nil), func(c *control.WorkerStatus) {
		c.Busy, c.FullSince = c.Slots, c.At.Add(-181*time.Second)
		c.Durations = map[string]control.Quantiles{"report": {P95: 90 * time.Second}}
	})
	r.run("queue", "ls").want(0, "1 worker: all slots busy for 3m1s")
}

// TestScopesDiffer: workers of one queue with different scopes do each job once for each of them.
// Each screen says so, and names the few.
func TestScopesDiffer(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for _, w := range []string{"w-1", "w-2", "w-3"} {
		r.seat(w, func(c *control.WorkerStatus) { c.Retention, c.Interrupted = time.Hour, "park" })
	}
	r.run("workers", "orders").want(0).not("SCOPE", "VERSION")
	r.run("queue", "ls").want(0, " ok")
	r.seat("w-8", func(c *control.WorkerStatus) {
		c.Scope, c.Version, c.Retention, c.Interrupted = "order", "v1", 2*time.Hour, "rerun"
	})
	const scopes = "2 SCOPES, so jobs may be done twice: orders (3), order (1: w-8)"
	for _, words := range [][]string{{"queue", "ls"}, {"queue", "show", "orders"}, {"workers", "orders"}} {
		r.run(words...).want(0, scopes, "2 retentions: 1h", "2 policies for interrupted jobs: park (3), rerun (1: w-8)")
	}
	r.run("workers", "orders").want(0, "SCOPE", "VERSION", "v0.9.2")
	r.run("top").want(0, scopes)
	var qs []queueView
	r.run("-o", "json", "queue", "ls").want(0).json(&qs)
	if q := qs[0]; len(q.Scopes) != 2 || q.Scopes[0].Value != "orders" || strings.Join(q.Scopes[1].Workers, " ") != "w-8" || len(q.Versions) != 2 {
		t.Errorf("%+v", q)
	}
}

// TestTooEarlyIsSeen: jobs that were due later than their queue keeps them wait among the letters,
// and nothing has failed. The first screen tells of them while letters stand.
func TestTooEarlyIsSeen(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	early := func(c *control.WorkerStatus) { c.Outcomes["too-early"] = 2 }
	r.seat("w-1/1", early)
	r.run("queue", "ls").want(0, " ok").not("keeps them")
	r.died("A-1", "too-early", "sent for in 40 days")
	r.run("queue", "ls").want(0, "2 jobs were due later than the queue keeps them: dlq group tells, class too-early").not(" ok")
}

// TestLimited: the screens say who has paused and limited workers, and what each limiter of their
// programs has postponed.
func TestLimited(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.seat("w-1/1", func(c *control.WorkerStatus) {
		c.State, c.Paused, c.Limiters = "paused", []string{"breaker"}, map[string]uint64{"bank": 40, "rate 1/1s": 2}
	})
	r.seat("w-2/1", func(c *control.WorkerStatus) {
		c.Slots, c.LimitedBy, c.Limiters = 3, "local", map[string]uint64{"bank": 1}
	})
	r.run("queue", "ls").want(0, "a breaker has paused 1 worker")
	r.run("queue", "show", "orders").want(0, "paused       1 worker by a breaker of the program", "limited      1 worker by the program itself", "limiter      bank has postponed 41 jobs", "rate 1/1s has postponed 2 jobs")
	var qs []queueView
	r.run("-o", "json", "queue", "ls").want(0).json(&qs)
	if q := qs[0]; q.Paused["breaker"] != 1 || q.Limited["local"] != 1 || q.Limiters["bank"] != 41 {
		t.Errorf("%+v", q)
	}
	var ws []workerView
	r.run("-o", "json", "workers", "orders").want(0).json(&ws)
	if len(ws) != 2 || len(ws[0].Paused)+len(ws[1].Paused) != 1 || ws[0].LimitedBy+ws[1].LimitedBy != "local" || ws[0].Limiters["bank"]+ws[1].Limiters["bank"] != 41 {
		t.Errorf("%+v", ws)
	}
}
