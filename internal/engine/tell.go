package engine

import (
	"context"
	"log/slog"
	"time"

	"github.com/onceq/onceq/internal/durations"
	"github.com/onceq/onceq/internal/verdict"
)

// notice tells who shows outages.
func (en *Engine[J]) notice(ctx context.Context, n Notice) {
	if en.o.Tell != nil {
		en.o.Tell(ctx, n)
	}
}

// logLettersFailed is told that the queue took neither this letter nor any other of its call.
func (en *Engine[J]) logLettersFailed(r *Run[J], err error) {
	if lasts, tell := en.lettersOut.Fails(Whole, r.tries >= 3); tell {
		en.o.Logger.LogAttrs(r.f.Terms.Base, slog.LevelError, "onceq: the dead-letter queue takes nothing; it is tried again",
			ForSo(lasts), slog.String("job", r.Name()), slog.Any("error", err))
		en.notice(r.f.Terms.Base, Notice{What: TheLetters, Since: time.Now().Add(-lasts), Err: err})
	}
}

// logLettersTaken is told of a letter that was taken.
func (en *Engine[J]) logLettersTaken(ctx context.Context) {
	if lasted, tell := en.lettersOut.Succeeds(Whole); tell {
		en.o.Logger.LogAttrs(ctx, slog.LevelInfo, "onceq: the dead-letter queue takes letters again", ForSo(lasted))
		en.notice(ctx, Notice{What: TheLetters, Over: true, Since: time.Now().Add(-lasted)})
	}
}

// storeFails is told of a call that the store did not answer. One outage is one line, whichever
// calls meet it.
func (en *Engine[J]) storeFails(r *Run[J], of Part, worth bool, err error) {
	if lasts, tell := en.o.StoreOutage.Fails(of, worth); tell {
		en.o.Logger.LogAttrs(r.f.Terms.Base, slog.LevelError, "onceq: the store does not answer; claims and the ends of jobs are tried again until it does",
			ForSo(lasts), slog.String("job", r.Name()), slog.String("key", r.Key.String()), slog.Any("error", err))
		en.notice(r.f.Terms.Base, Notice{What: TheStore, Since: time.Now().Add(-lasts), Err: err})
	}
}

// storeAgain is told that the store has answered a claim, or the end of a job, after it did not
// answer before.
func (en *Engine[J]) storeAgain(ctx context.Context, of Part) {
	if lasted, tell := en.o.StoreOutage.Succeeds(of); tell {
		en.o.Logger.LogAttrs(ctx, slog.LevelInfo, "onceq: the store answers again", ForSo(lasted))
		en.notice(ctx, Notice{What: TheStore, Over: true, Since: time.Now().Add(-lasted)})
	}
}

// askUnit is told that a handler has asked to be tried again after d, which was written without its
// unit. One line says so, because the handler will do it again.
func (en *Engine[J]) askUnit(r *Run[J], d time.Duration) {
	if en.o.AskedUnit.Swap(true) {
		return
	}
	en.o.Logger.LogAttrs(r.f.Terms.Base, slog.LevelWarn, "onceq: RetryAfter: "+durations.AskUnit(d)+" The job is tried again at once",
		slog.String("job", r.Name()), slog.String("type", verdict.Clip(r.Type(), MaxLogged)))
}
