package onceq

import (
	"log/slog"
	"time"

	"github.com/onceq/onceq/internal/verdict"
)

// A handler that goes on although its context has ended holds its slot, and nobody else may run its
// job. It is reported after the first of these times, and then each time the second has gone by.
const (
	stuckFirst = time.Minute
	stuckAgain = 10 * time.Minute
)

// stopHandler ends the context of the run's handler with the cause. The first cause stays.
func (r *run) stopHandler(cause error) {
	if r.ctx.end(cause) {
		r.watchHandler()
	}
}

// watchHandler is told that the context of the run's handler has just ended.
func (r *run) watchHandler() {
	if at := r.at(); at == claimed || at == running {
		r.reportStuck(time.Now(), stuckFirst)
	}
}

// reportStuck has a handler reported that still runs after d.
func (r *run) reportStuck(ended time.Time, d time.Duration) {
	time.AfterFunc(d, func() {
		if r.at() != running {
			return
		}
		r.f.p.c.Logger.LogAttrs(r.f.t.base, slog.LevelWarn, "onceq: a handler goes on although its context has ended; it keeps its slot and its job",
			forSo(time.Since(ended)), slog.String("job", r.name()), slog.String("type", clip(r.job.Type(), maxLogged)),
			slog.String("key", r.key.String()), slog.Duration("process", time.Since(r.f.epoch)-r.began),
			slog.String("cause", verdict.SafeText(r.ctx.because())))
		r.reportStuck(ended, stuckAgain)
	})
}
