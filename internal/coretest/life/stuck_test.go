package life

import (
	"context"
	"testing"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/internal/coretest/rig"
	"github.com/onceq/onceq/internal/must"
)

// A handler that ignores the end of its context is reported after a minute, and then each ten.
func TestHandlerThatIgnoresItsContext(t *testing.T) {
	const line = "goes on although its context has ended"
	rig.Bubble(t, func(context.Context, *onceq.Job) error {
		rig.Takes(time.Hour + 30*time.Second) // of which the first minute is its own
		return nil
	}, func(r *rig.Rig) {
		r.Send("a")
		r.Start()
		for _, c := range []struct {
			at   time.Duration
			want int
		}{
			{time.Minute + 59*time.Second, 0},
			{2*time.Minute + time.Second, 1},
			{11*time.Minute + 59*time.Second, 1},
			{12*time.Minute + time.Second, 2},
			{52*time.Minute + time.Second, 6},
			{2 * time.Hour, 6},
		} {
			rig.Pass(c.at - r.Since())
			if n := r.Logged.Count(line); n != c.want {
				t.Errorf("%d lines after %v, want %d", n, c.at, c.want)
			}
		}
		for _, text := range []string{"key=test/a", "process=2m0s", "since=1m0s", "cause="} {
			if r.Logged.Count(line, text) == 0 {
				t.Errorf("the line has no %q", text)
			}
		}
	}, rig.With(func(c *rig.Setup) { c.Defaults.Timeout = time.Minute }))
}

// A handler that listens to its context is not reported.
func TestHandlerThatListensIsNotReported(t *testing.T) {
	rig.Bubble(t, func(ctx context.Context, _ *onceq.Job) error { <-ctx.Done(); return nil }, func(r *rig.Rig) {
		r.Send("a")
		r.RunFor(2 * time.Hour)
		if n := r.Logged.Count("goes on although"); n != 0 {
			t.Errorf("%d lines", n)
		}
	}, rig.With(func(c *rig.Setup) { c.Defaults.Timeout = time.Minute }))
}

// A call of Do is reported in the same way.
func TestDoThatIgnoresItsContext(t *testing.T) {
	rig.Bubble(t, rig.Never(t), func(r *rig.Rig) {
		p := must.Get(onceq.NewProcessor(onceq.ProcessorConfig{Store: r.Store, Scope: rig.Scope, Logger: r.Cfg.Logger}))
		ctx, stop := context.WithTimeout(r.Context(), time.Minute)
		defer stop()
		_, _ = onceq.Do(ctx, p, rig.Key("a"), nil, func(context.Context, *onceq.Job) (int, error) {
			rig.Takes(5 * time.Minute)
			return 1, nil
		})
		if n := r.Logged.Count("goes on although"); n != 1 {
			t.Errorf("%d lines, want 1", n)
		}
	})
}
