package onceq

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/onceq/onceq/control"
	"github.com/onceq/onceq/internal/controlstore"
	"github.com/onceq/onceq/internal/engine"
	"github.com/onceq/onceq/internal/retry"
)

// This file owns how a Worker looks at the others of its queue. Workers that differ in their Scope
// do each job once for each scope, and no message or record shows it. Run asks strictly before the
// first receive; later the goroutine that keeps the seat calls looksAround. Nothing is locked.

const (
	// soonAgain is when a worker looks for the second time: workers that start together have no
	// seats yet at the first.
	soonAgain = 2 * time.Minute
	// lookAround is how often it looks after that. A look reads 128 numbers and 64 more for each 64
	// workers.
	lookAround = time.Hour
)

// ErrUnlike is wrapped by the error of a [Worker.Run] that ControlOptions.Strict has refused.
var ErrUnlike = errors.New("onceq: another worker of the queue has other settings")

// unlike says in what the settings of another worker differ from the card of this one; empty = in
// nothing. A card of an earlier version does not say all.
func unlike(own, other *control.WorkerStatus) string {
	switch {
	case other == nil:
	case own.Scope != other.Scope:
		return fmt.Sprintf("Scope %q, and this one %q: each job may be done by both", other.Scope, own.Scope)
	case other.Retention == 0:
	case own.Retention.Truncate(time.Second) != other.Retention:
		return fmt.Sprintf("Retention %v, and this one %v", other.Retention, own.Retention)
	case own.Interrupted != other.Interrupted:
		return fmt.Sprintf("Defaults.Interrupted %q, and this one %q", other.Interrupted, own.Interrupted)
	}
	return ""
}

// unlikes are the live workers of the queue that differ, and in what.
func (s *steward) unlikes(ctx context.Context) (map[string]string, error) {
	call := engine.CallContext(ctx, s.p.c.CallTimeout)
	defer call.Close()
	seats, err := controlstore.Seats(call, s.p.book.store, seatText(s.p.queueName))
	if err != nil {
		return nil, err
	}
	own := &control.WorkerStatus{Scope: s.p.c.Scope, Retention: s.p.c.Retention, Interrupted: s.p.c.Defaults.Interrupted.String()}
	owner, now := seatText(s.p.c.Owner), time.Now()
	found := make(map[string]string)
	for i := range seats {
		t := &seats[i]
		if t.Owner == owner || !t.Live(now) { // what it was itself before is over
			continue
		}
		if text := unlike(own, t.Status); text != "" {
			found[t.Owner] = text
		}
	}
	return found, nil
}

// strictly is the error of a Run that is not to start, because another worker differs. It reads the
// seats until they are read or ctx ends.
func (s *steward) strictly(ctx context.Context) error {
	if s == nil || !s.p.c.Control.Strict {
		return nil
	}
	for n := 1; ctx.Err() == nil; n++ {
		found, err := s.unlikes(ctx)
		if err == nil {
			s.waitsFor("")
			for owner, text := range found {
				return fmt.Errorf("%w: %s has %s (ProcessorConfig.Control.Strict)", ErrUnlike, owner, text)
			}
			return nil
		}
		s.waitsFor("the seats of the other workers: " + err.Error())
		retry.Rest(ctx, retry.Pause(n))
	}
	s.waitsFor("")
	return nil
}

// A lookout is what a worker knows of the others. Only the goroutine that keeps the seat has it.
type lookout struct {
	next time.Time
	told map[string]string
}

// looksAround compares this worker with the others, where it is time for that, and tells of each
// difference once.
func (s *steward) looksAround(ctx context.Context) {
	l, now := &s.around, time.Now()
	if now.Before(l.next) || ctx.Err() != nil {
		return
	}
	first := l.told == nil
	found, err := s.unlikes(ctx)
	if err != nil {
		return // with the next card
	}
	if l.next = now.Add(lookAround); first {
		l.next = now.Add(soonAgain)
	}
	for owner, text := range found {
		if l.told[owner] != text {
			s.p.log.LogAttrs(ctx, slog.LevelError, "onceq: another live worker of the queue has "+text, slog.String("worker", owner), slog.String("queue", s.p.queueName))
		}
	}
	l.told = found
}
