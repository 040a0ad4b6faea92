package steering

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/onceq/onceq/control"
	"github.com/onceq/onceq/internal/controlstore"
	"github.com/onceq/onceq/internal/engine"
	"github.com/onceq/onceq/internal/retry"
)

// This file owns how a Worker looks at the others of its queue. Workers that differ in their Scope
// do each job once for each scope, and no message or record shows it. Run asks strictly before the
// first receive; later the goroutine that keeps the seat calls compareOthers. Nothing is locked.

const (
	// soonAgain is when a worker looks for the second time: workers that start together have no
	// seats yet at the first.
	soonAgain = 2 * time.Minute
	// lookAround is how often it looks after that. A look reads 128 numbers and 64 more for each 64
	// workers.
	lookAround = time.Hour
)

// ErrWorkersDiffer is wrapped by the error of a [Worker.Run] that ControlOptions.Strict has
// refused.
var ErrWorkersDiffer = errors.New("onceq: another worker of the queue has other settings")

// unlike says in what the settings of another worker differ from the card of this one; empty = in
// nothing. keys reports whether that has jobs done twice. A card of an earlier version does not say
// all.
func unlike(own, other *control.WorkerStatus) (text string, keys bool) {
	switch {
	case other == nil:
	case own.Scope != other.Scope:
		return fmt.Sprintf("Scope %q, and this one %q", other.Scope, own.Scope), true
	case apart(own, other) != "":
		return apart(own, other), true
	case other.Retention == 0:
	case own.Retention.Truncate(time.Second) != other.Retention:
		return fmt.Sprintf("Retention %v, and this one %v", other.Retention, own.Retention), false
	case own.Interrupted != other.Interrupted:
		return fmt.Sprintf("Defaults.Interrupted %q, and this one %q", other.Interrupted, own.Interrupted), false
	}
	return "", false
}

// apart says of which jobs two workers of one Scope have the keys in different scopes; empty = of
// none that is known. Who has no types has one handler for all jobs. A type that takes its place
// has its scope, and then the other types are new.
func apart(own, other *control.WorkerStatus) string {
	if own.Partial || other.Partial {
		return ""
	}
	types, told := []string{""}, ""
	switch single, mux := own, other; {
	case len(own.Types) > 0 && len(other.Types) > 0:
		types = own.Types
	case len(own.Types) == len(other.Types):
	default:
		if len(own.Types) > 0 {
			single, mux = other, own
		}
		types = mux.Types
		if slices.ContainsFunc(types, func(t string) bool { return scopeOf(mux, t) == scopeOf(single, "") }) {
			return ""
		}
	}
	for _, t := range types {
		a, b := scopeOf(own, t), scopeOf(other, t)
		if a != b && a != "" && b != "" && told == "" {
			told = fmt.Sprintf("the keys of type %q in the scope %q, and this one in %q (JobOptions.Was, Mux.OneScope)", t, b, a)
		}
	}
	return told
}

// scopeOf is where a worker has the keys of a type; empty = it does not know the type.
func scopeOf(c *control.WorkerStatus, typ string) string {
	if len(c.Types) == 0 {
		typ = ""
	}
	switch own, ok := c.Scopes[typ]; {
	case ok:
		return own
	case typ == "":
		return c.Scope
	case slices.Contains(c.Types, typ):
		return c.Scope + ":" + typ
	}
	return ""
}

// differing are the live workers of the queue that differ, and in what; and those that it had
// before, as far as seats show them, whose jobs have their keys elsewhere.
func (s *Steward) differing(ctx context.Context) (live, before map[string]string, err error) {
	call := engine.CallContext(ctx, s.book.c.CallTimeout)
	defer call.Close()
	seats, err := controlstore.Seats(call, s.book.store, seatText(s.c.Queue))
	if err != nil {
		return nil, nil, err
	}
	own := &control.WorkerStatus{Scope: s.c.Scope, Types: s.c.Types, Scopes: s.c.Scopes, Retention: s.c.Retention, Interrupted: s.c.Interrupted}
	owner, now := seatText(s.c.Owner), time.Now()
	live, before = make(map[string]string), make(map[string]string)
	for i := range seats {
		t := &seats[i]
		switch text, keys := unlike(own, t.Status); {
		case text == "" || t.Owner == owner && t.Live(now): // its own, or that of its last Run
		case t.Live(now) && keys:
			live[t.Owner] = text + ": each job may be done by both"
		case t.Live(now):
			live[t.Owner] = text
		case keys:
			before[t.Owner] = text + ": what it has done is done again if it comes again"
		}
	}
	return live, before, nil
}

// CheckStrict is the error of a Run that is not to start, because another worker differs. It reads
// the seats until they are read or ctx ends.
func (s *Steward) CheckStrict(ctx context.Context) error {
	if s == nil || !s.c.Strict {
		return nil
	}
	for n := 1; ctx.Err() == nil; n++ {
		live, _, err := s.differing(ctx)
		if err == nil {
			s.setWaiting("")
			for owner, text := range live {
				return fmt.Errorf("%w: %s has %s (ProcessorConfig.Control.Strict)", ErrWorkersDiffer, owner, text)
			}
			return nil
		}
		s.setWaiting("the seats of the other workers: " + err.Error())
		retry.Rest(ctx, retry.Pause(n))
	}
	s.setWaiting("")
	return nil
}

// A lookout is what a worker knows of the others. Only the goroutine that keeps the seat has it.
type lookout struct {
	next time.Time
	told map[string]string
}

// compareOthers compares this worker with the others, where it is time for that, and tells of each
// difference once.
func (s *Steward) compareOthers(ctx context.Context) {
	l, now := &s.around, time.Now()
	if now.Before(l.next) || ctx.Err() != nil {
		return
	}
	first := l.told == nil
	live, before, err := s.differing(ctx)
	if err != nil {
		return // with the next card
	}
	if l.next = now.Add(lookAround); first {
		l.next = now.Add(soonAgain)
	}
	found := make(map[string]string)
	for what, some := range map[string]map[string]string{"onceq: another live worker of the queue has ": live, "onceq: a worker that the queue had before has ": before} {
		for owner, text := range some {
			if l.told[owner] != text {
				s.c.Logger.LogAttrs(ctx, slog.LevelError, what+text, slog.String("worker", owner), slog.String("queue", s.c.Queue))
			}
			found[owner] = text
		}
	}
	l.told = found
}
