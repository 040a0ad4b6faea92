package onceq

import (
	"context"
	"log/slog"
	"time"
)

// What a Worker logs of itself: that it starts, pauses, goes on, and drains.

func (c *WorkerConfig) tellStart(ctx context.Context, log *slog.Logger, scope string, paused bool) {
	log.LogAttrs(ctx, slog.LevelInfo, "onceq: the worker starts", slog.String("scope", scope), slog.Int("concurrency", c.Concurrency),
		slog.Int("pollers", c.Pollers), slog.Duration("visibility", c.Visibility), slog.Bool("paused", paused))
}

func tellPaused(log *slog.Logger, f *flow, changes bool) {
	if changes {
		log.LogAttrs(f.Terms.Base, slog.LevelInfo, "onceq: paused; nothing is received, and what runs goes on", slog.Int("running", f.Running()))
	}
}

func tellResumed(log *slog.Logger, f *flow, changes bool) {
	if changes {
		log.LogAttrs(f.Terms.Base, slog.LevelInfo, "onceq: resumed", slog.Int("running", f.Running()))
	}
}

// tellDrain logs that a drain begins. The caller calls ended when it is over, which logs how it
// went.
func (c *WorkerConfig) tellDrain(log *slog.Logger, f *flow, err *error) (ended func()) {
	log.LogAttrs(f.Terms.Base, slog.LevelInfo, "onceq: draining; nothing is received, and what runs has until drain_timeout",
		slog.Int("running", f.Running()), slog.Duration("drain_timeout", c.DrainTimeout))
	began := time.Now()
	return func() {
		took := slog.Duration("took", time.Since(began).Round(time.Millisecond))
		if *err != nil {
			log.LogAttrs(f.Terms.Base, slog.LevelError, "onceq: the drain has ended, and jobs had not", took, slog.Any("error", *err))
			return
		}
		log.LogAttrs(f.Terms.Base, slog.LevelInfo, "onceq: drained", took)
	}
}
