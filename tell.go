package onceq

import (
	"log/slog"
	"time"

	"github.com/onceq/onceq/internal/engine"
)

// teller logs, and tells the Observer, what a Worker does: that it starts, pauses, goes on, and
// drains. No lock is held.
type teller struct {
	in *intake
	c  *WorkerConfig
}

func (t teller) starts(f *flow, paused engine.Pauses) {
	ctx := f.Terms.Base
	t.in.log.LogAttrs(ctx, slog.LevelInfo, "onceq: the worker starts", slog.String("scope", t.in.c.Scope), slog.Int("concurrency", t.c.Concurrency),
		slog.Int("pollers", t.c.Pollers), slog.Duration("visibility", t.c.Visibility), slog.Bool("paused", paused != 0))
	t.in.tellEvent(ctx, WorkerEvent{Kind: EventStarted})
	for _, reason := range reasons(paused) {
		t.in.tellEvent(ctx, WorkerEvent{Kind: EventPaused, Reason: reason})
	}
}

func (t teller) halts(f *flow, why engine.Pauses) {
	t.in.log.LogAttrs(f.Terms.Base, slog.LevelInfo, "onceq: paused; nothing is received, and what runs goes on", slog.Int("running", f.Running()), slog.Any("for", reasons(why)))
	for _, reason := range reasons(why) {
		t.in.tellEvent(f.Terms.Base, WorkerEvent{Kind: EventPaused, Reason: reason})
	}
}

// resumes tells that the pause for the reasons is over, and what still holds.
func (t teller) resumes(f *flow, why, left engine.Pauses, since time.Time) {
	if left != 0 {
		t.in.log.LogAttrs(f.Terms.Base, slog.LevelInfo, "onceq: a pause is over, and another one holds", slog.Any("over", reasons(why)), slog.Any("for", reasons(left)))
	} else {
		t.in.log.LogAttrs(f.Terms.Base, slog.LevelInfo, "onceq: resumed", slog.Int("running", f.Running()))
	}
	for _, reason := range reasons(why) {
		t.in.tellEvent(f.Terms.Base, WorkerEvent{Kind: EventResumed, Reason: reason, Since: since})
	}
}

// drains logs that a drain begins. The caller calls ended when it is over, which logs how it
// went.
func (t teller) drains(f *flow, err *error) (ended func()) {
	ctx := f.Terms.Base
	t.in.log.LogAttrs(ctx, slog.LevelInfo, "onceq: draining; nothing is received, and what runs has until drain_timeout",
		slog.Int("running", f.Running()), slog.Duration("drain_timeout", t.c.DrainTimeout))
	t.in.tellEvent(ctx, WorkerEvent{Kind: EventDraining})
	began := time.Now()
	return func() {
		took := slog.Duration("took", time.Since(began).Round(time.Millisecond))
		if *err != nil {
			t.in.log.LogAttrs(ctx, slog.LevelError, "onceq: the drain has ended, and jobs had not", took, slog.Any("error", *err))
		} else {
			t.in.log.LogAttrs(ctx, slog.LevelInfo, "onceq: drained", took)
		}
		t.in.tellEvent(ctx, WorkerEvent{Kind: EventDrained, Err: *err, Since: began})
	}
}
