package onceq

import (
	"context"
	"log/slog"
	"time"
)

// What a Worker logs of itself: that it starts, pauses, goes on, and drains.

func tellStart(ctx context.Context, c *Config, paused bool) {
	c.Logger.LogAttrs(ctx, slog.LevelInfo, "onceq: the worker starts", slog.String("scope", c.Scope), slog.Int("concurrency", c.Concurrency),
		slog.Int("pollers", c.Pollers), slog.Duration("visibility", c.Visibility), slog.Bool("paused", paused))
}

func (c *Config) tellPaused(f *flow, changes bool) {
	if changes {
		c.Logger.LogAttrs(f.Terms.Base, slog.LevelInfo, "onceq: paused; nothing is received, and what runs goes on", slog.Int("running", f.Running()))
	}
}

func (c *Config) tellResumed(f *flow, changes bool) {
	if changes {
		c.Logger.LogAttrs(f.Terms.Base, slog.LevelInfo, "onceq: resumed", slog.Int("running", f.Running()))
	}
}

// tellDrain tells that a drain begins; what it answers tells how it has ended.
func (c *Config) tellDrain(f *flow, err *error) (ended func()) {
	c.Logger.LogAttrs(f.Terms.Base, slog.LevelInfo, "onceq: draining; nothing is received, and what runs has until drain_timeout",
		slog.Int("running", f.Running()), slog.Duration("drain_timeout", c.DrainTimeout))
	began := time.Now()
	return func() {
		took := slog.Duration("took", time.Since(began).Round(time.Millisecond))
		if *err != nil {
			c.Logger.LogAttrs(f.Terms.Base, slog.LevelError, "onceq: the drain has ended, and jobs had not", took, slog.Any("error", *err))
			return
		}
		c.Logger.LogAttrs(f.Terms.Base, slog.LevelInfo, "onceq: drained", took)
	}
}
