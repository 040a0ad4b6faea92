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
