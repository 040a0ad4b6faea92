package engine

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
func (r *Run[J]) stopHandler(cause error) {
	if r.ctx.End(cause) {
		r.WatchHandler()
	}
}

// WatchHandler is told that the context of the run's handler has just ended.
func (r *Run[J]) WatchHandler() {
	if at := r.at(); at == claimed || at == running {
		r.reportStuck(time.Now(), stuckFirst)
	}
}

// reportStuck logs a handler that still runs after d, and then again after each stuckAgain.
func (r *Run[J]) reportStuck(ended time.Time, d time.Duration) {
	time.AfterFunc(d, func() {
		if r.at() != running {
			return
		}
		r.f.en.o.Logger.LogAttrs(r.f.Terms.Base, slog.LevelWarn, "onceq: a handler goes on although its context has ended; it keeps its slot and its job",
			ForSo(time.Since(ended)), slog.String("job", r.Name()), slog.String("type", verdict.Clip(r.Type(), MaxLogged)),
			slog.String("key", r.Key.String()), slog.Duration("process", time.Since(r.f.epoch)-r.began),
			slog.String("cause", verdict.SafeText(r.ctx.Because())))
		r.reportStuck(ended, stuckAgain)
	})
}
