// Package safelog lets nobody's job die by a line of the log.
package safelog

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/onceq/onceq/internal/verdict"
)

// New is the user's Logger for goroutines of ours, where a panic of its handler would end the
// process, and with it all jobs that run. It loses the line instead, and tells of it in a line
// without what may have been to blame. nil = slog.Default, as it is now.
func New(l *slog.Logger) *slog.Logger {
	return slog.New(guarded{cmp.Or(l, slog.Default()).Handler()})
}

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
