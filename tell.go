package onceq

import (
	"context"
	"log/slog"
	"time"
)

// What a Worker logs of itself: that it starts, pauses, goes on, and drains.

func (w *Worker) tellStart(ctx context.Context) {
	c := &w.c
	w.mu.Lock()
	paused := w.paused
	w.mu.Unlock()
	c.Logger.LogAttrs(ctx, slog.LevelInfo, "onceq: the worker starts", slog.String("scope", c.Scope), slog.Int("concurrency", c.Concurrency),
		slog.Int("pollers", c.Pollers), slog.Duration("visibility", c.Visibility), slog.Bool("paused", paused))
}

func (w *Worker) tellPaused(f *flow, changes bool) {
	if changes {
		w.c.Logger.LogAttrs(f.Terms.Base, slog.LevelInfo, "onceq: paused; nothing is received, and what runs goes on", slog.Int("running", f.Running()))
	}
}

func (w *Worker) tellResumed(f *flow, changes bool) {
	if changes {
		w.c.Logger.LogAttrs(f.Terms.Base, slog.LevelInfo, "onceq: resumed", slog.Int("running", f.Running()))
	}
}

// tellDrain tells that a drain begins; what it answers tells how it has ended.
func (w *Worker) tellDrain(f *flow, err *error) (ended func()) {
	w.c.Logger.LogAttrs(f.Terms.Base, slog.LevelInfo, "onceq: draining; nothing is received, and what runs has until drain_timeout",
		slog.Int("running", f.Running()), slog.Duration("drain_timeout", w.c.DrainTimeout))
	began := time.Now()
	return func() {
		took := slog.Duration("took", time.Since(began).Round(time.Millisecond))
		if *err != nil {
			w.c.Logger.LogAttrs(f.Terms.Base, slog.LevelError, "onceq: the drain has ended, and jobs had not", took, slog.Any("error", *err))
			return
		}
		w.c.Logger.LogAttrs(f.Terms.Base, slog.LevelInfo, "onceq: drained", took)
	}
}
