package operating

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/internal/coretest/rig"
	"github.com/onceq/onceq/onceqtest"
)

// breaks is a slog.Handler that panics in one of its methods.
type breaks struct {
	slog.Handler
	in string
}

func (b breaks) on(call string) {
	if b.in == call {
		panic(call)
	}
}

func (b breaks) Enabled(ctx context.Context, l slog.Level) bool {
	b.on("Enabled")
	return b.Handler.Enabled(ctx, l)
}

func (b breaks) Handle(ctx context.Context, r slog.Record) error {
	b.on("Handle")
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "job" {
			b.on("an attribute")
		}
		return true
	})
	return b.Handler.Handle(ctx, r)
}

func (b breaks) WithAttrs(as []slog.Attr) slog.Handler {
	b.on("WithAttrs")
	return breaks{b.Handler.WithAttrs(as), b.in}
}

// TestLoggerPanics: a Logger that panics costs its line and nothing else, whoever logs: a handler's
// goroutine, a carrier of settlements or letters, a timer.
func TestLoggerPanics(t *testing.T) {
	for _, in := range []string{"Enabled", "Handle", "WithAttrs", "an attribute"} {
		t.Run(in, func(t *testing.T) {
			h := func(_ context.Context, j *onceq.Job) error {
				if j.Key().Key == "bad" {
					return onceq.Permanent(errors.New("no"))
				}
				return nil
			}
			rig.Bubble(t, h, func(r *rig.Rig) {
				r.Send("a", "b", "bad")
				r.Start()
				r.Store.Fails(rig.ErrBoom, onceqtest.Claim, onceqtest.Settle)
				rig.Pass(time.Minute)
				r.Store.Heals()
				rig.Pass(time.Minute)
				r.WantOutcomes("a", "done")
				r.WantOutcomes("b", "done")
				r.Letter(onceq.ClassPermanent)
				if n := r.Logged.Count("level=ERROR", "the Logger panicked", "line=job", `panic="an attribute"`); in == "an attribute" && n != 3 {
					t.Errorf("the log tells of %d lines that were lost, want 3", n)
				}
			}, rig.With(func(c *rig.Setup) {
				c.Name, c.Logger = "jobs", slog.New(breaks{c.Logger.Handler(), in})
			}))
		})
	}
}

// A job that is given back has not failed: its line is INFO, and says for how long, why, and what
// was saved. Whoever sees warnings alone hears nothing of it.
func TestPostponedLine(t *testing.T) {
	for name, c := range map[string]struct {
		option rig.Option
		lines  int
	}{"all lines": {func(*rig.Rig) {}, 1}, "warnings": {rig.Warnings, 0}} {
		t.Run(name, func(t *testing.T) {
			h := func(ctx context.Context, j *onceq.Job) error {
				if err := onceq.Save(ctx, j, "row", 7); err != nil {
					return err
				}
				if class, _ := j.Last(); class == "" {
					return onceq.Postpone(90*time.Second, errors.New("429 Too Many Requests"))
				}
				return nil
			}
			rig.Bubble(t, h, func(r *rig.Rig) {
				r.Send("a")
				r.RunFor(5 * time.Minute)
				r.WantOutcomes("a", "postponed", "done")
				if n := r.Logged.Count("level=INFO", "outcome=postponed", "delay=1m30s", `why="429 Too Many Requests"`, "saved=row"); n != c.lines {
					t.Errorf("%d lines say all, want %d", n, c.lines)
				}
				if n := r.Logged.Count("outcome=postponed"); n != c.lines {
					t.Errorf("%d lines at any level, want %d", n, c.lines)
				}
				if n := r.Logged.Count("why="); n != c.lines {
					t.Errorf("%d lines say why, want %d", n, c.lines)
				}
			}, c.option)
		})
	}
}
