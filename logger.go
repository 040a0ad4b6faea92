package onceq

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/onceq/onceq/internal/verdict"
)

// warnings is the log of a Processor without a Logger: what a person should look at, and no jobs
// that went well.
type warnings struct{ slog.Handler }

func (w warnings) Enabled(ctx context.Context, l slog.Level) bool {
	return l >= slog.LevelWarn && w.Handler.Enabled(ctx, l)
}

func (w warnings) WithAttrs(as []slog.Attr) slog.Handler { return warnings{w.Handler.WithAttrs(as)} }

func (w warnings) WithGroup(name string) slog.Handler { return warnings{w.Handler.WithGroup(name)} }

// guarded is the handler of the user's Logger. Goroutines of ours call it, so that a panic of its
// would end the process, and with it all jobs that run. It loses the line instead, and tells of it
// in a line without what may have been to blame.
type guarded struct{ slog.Handler }

func (g guarded) Enabled(ctx context.Context, l slog.Level) (on bool) {
	defer func() { _ = recover() }()
	return g.Handler.Enabled(ctx, l)
}

func (g guarded) Handle(ctx context.Context, r slog.Record) (err error) {
	defer func() {
		v := recover()
		if v == nil {
			return
		}
		defer func() { _ = recover() }() // then nothing can be told
		line := slog.NewRecord(time.Now(), slog.LevelError, "onceq: the Logger panicked", 0)
		line.AddAttrs(slog.String("line", verdict.Clip(r.Message, verdict.MaxText)), slog.String("panic", panicText(v)))
		err = g.Handler.Handle(ctx, line)
	}()
	return g.Handler.Handle(ctx, r)
}

func (g guarded) WithAttrs(as []slog.Attr) (h slog.Handler) {
	defer func() {
		if recover() != nil {
			h = g
		}
	}()
	return guarded{g.Handler.WithAttrs(as)}
}

func (g guarded) WithGroup(name string) (h slog.Handler) {
	defer func() {
		if recover() != nil {
			h = g
		}
	}()
	return guarded{g.Handler.WithGroup(name)}
}

// panicText is what v says of itself, which may panic as well.
func panicText(v any) string {
	if err, ok := v.(error); ok {
		return verdict.Text(err)
	}
	return verdict.Clip(fmt.Sprint(v), verdict.MaxText)
}
