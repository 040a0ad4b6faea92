package rig

import (
	"bytes"
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
)

// Log keeps the lines of a log. The zero value is ready; any goroutine may write to it.
type Log struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

// Write is an [io.Writer]'s.
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

// Logger writes lines of text, from level Info.
func (l *Log) Logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

// String is all that was written.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// Lines are those that hold all the texts.
func (l *Log) Lines(texts ...string) (found []string) {
	for line := range strings.Lines(l.String()) {
		if !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(line, text) }) {
			found = append(found, line)
		}
	}
	return found
}

// Count is how many lines hold all the texts.
func (l *Log) Count(texts ...string) int { return len(l.Lines(texts...)) }

// Broken is a Logger that panics at each line: it has no handler to call.
func Broken() *slog.Logger { return slog.New(broken{}) }

type broken struct{ slog.Handler }

func (broken) Enabled(context.Context, slog.Level) bool { return true }
func (b broken) WithAttrs([]slog.Attr) slog.Handler     { return b }
