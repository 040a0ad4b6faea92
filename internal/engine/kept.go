package engine

import (
	"log/slog"
	"time"

	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/verdict"
)

// This file owns what is kept: jobs and messages that stay in their queue where others would become
// dead letters. Claim, settle and letter call it, each with the run in its hands. No lock is held.

// KeptFor is how long a message that stays in its queue is given back for. It is short, so that:
//
//   - The queue's own redrive comes before the end of its retention.
//   - A group that the message holds goes on soon after the cause is mended.
//
// It is long enough that somebody has looked before the queue drops the message.
const KeptFor = time.Hour

// HoldsBack reports whether what would be a dead letter stays in the queue instead.
func (en *Engine[J]) HoldsBack(r *Run[J]) bool {
	to := r.f.Terms.Letters
	return to == ToNobody || to == ToQueue && en.o.HoldGroup && r.grouped()
}

// rests reports whether a kept job whose attempts are used up is left alone this time. It is
// started once each KeptFor, until its cause is mended. But the job may be what kills its workers:
// then nobody gives its message back for KeptFor, and it comes again as soon as its lease is over.
// So it rests after an attempt of which nobody has told the end. Without a store no such end is
// known, and it rests every other time.
func (en *Engine[J]) rests(r *Run[J]) bool {
	if r.Fence == 0 {
		return (r.Attempt-r.Opts.Most)%2 == 1
	}
	return r.known != nil && (r.known.from != "" || r.known.deadFor > 0)
}

// rest gives a kept job back for KeptFor, not started. The attempt does not count, and the record
// keeps the last error that a handler has returned.
func (en *Engine[J]) rest(r *Run[J]) {
	en.tellKept(r, "onceq: a job that stays in the queue was not started: nobody knows how its last attempt ended, and its attempts are used up",
		verdict.Attempts, r.firstErr(), "")
	en.Conclude(r, verdict.Verdict{To: dedupe.Released, Uncounted: true, Kept: true, Delay: KeptFor})
}

func (r *Run[J]) firstErr() string {
	if r.known == nil {
		return ""
	}
	return r.known.firstErr
}

// kept makes of a job that has failed for good one that is given back for KeptFor.
func (en *Engine[J]) kept(r *Run[J], v verdict.Verdict) verdict.Verdict {
	en.tellKept(r, "onceq: a job that cannot be done stays in the queue", v.Class, v.Text, "")
	v.To, v.Delay, v.Backoff = dedupe.Released, KeptFor, false
	return v
}

// keep gives a message back for KeptFor for which there is no claim to settle.
func (en *Engine[J]) keep(r *Run[J], class, text string) {
	next := "mend what its class names; it is looked at again"
	switch r.Said {
	case dedupe.AlreadyFailed:
		next = "its key is recorded as failed, so it never runs: replay its letter, or forget the key"
	case dedupe.IsParked:
		next = "its key is parked, so it does not run: resolve the key to done, or to released, which runs it"
	case dedupe.Won, dedupe.InProgress, dedupe.AlreadyDone, dedupe.Mismatch, dedupe.Stale, 0:
		if r.Verdict.To == dedupe.Parked {
			next = "its key is parked, so it does not run: resolve the key to done, or to released, which runs it"
		}
	}
	en.tellKept(r, "onceq: a message that cannot be done stays in the queue", class, text, next)
	en.finish(r, Nack, KeptFor, Kept)
}

// tellKept says that a message stays, what helps, and in time that its queue will drop it. next is
// what helps; "" = nothing but mending the cause.
func (en *Engine[J]) tellKept(r *Run[J], what, class, text, next string) {
	again := min(KeptFor, en.LongestNack())
	switch {
	case next != "":
	case r.f.Terms.Letters == ToNobody:
		next = "its handler starts again each time that it comes, beyond MaxAttempts, too, until it is mended or the queue's redrive takes it"
	default:
		next = "its group waits for it, and its handler starts again each time that it comes, beyond MaxAttempts, too, until it is mended"
	}
	attrs := []slog.Attr{
		slog.String("job", r.Name()), slog.String("key", r.Key.String()), slog.String("class", class), slog.String("error", text),
		slog.Int("attempt", int(r.Attempt)), slog.String("next", next), slog.Duration("comes_in", again),
	}
	log, base := en.o.Logger, r.f.Terms.Base
	log.LogAttrs(base, slog.LevelError, what, attrs...)
	var keeps time.Duration
	if en.o.QueueKeeps != nil {
		keeps = en.o.QueueKeeps()
	}
	if m := r.Message; keeps > 0 && m != nil && !m.Published.IsZero() {
		if left := keeps - time.Since(m.Published); left < keeps/2 {
			log.LogAttrs(base, slog.LevelError, "onceq: a message that stays in the queue will be lost: the queue drops it when its retention is over, and more than half of that has passed",
				slog.String("job", r.Name()), slog.String("key", r.Key.String()), slog.Duration("dropped_in", left.Round(time.Second)))
		}
	}
}
