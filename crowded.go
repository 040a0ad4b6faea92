package onceq

import (
	"errors"
	"log/slog"
	mrand "math/rand/v2"
	"time"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/engine"
	"github.com/onceq/onceq/internal/verdict"
)

// crowdedFor is the least time for which a job is given back whose transaction found its database
// busy; half of it is added at random, at most.
const crowdedFor = time.Second

// crowded is the handler's error. But where the store says that others held the lock of its
// database, the job is given back: nothing of its transaction was written, and no attempt is used
// up. It is one after another postponement, so that a handler that stands in its own way comes to
// an end.
func (in *intake) crowded(r *run, err error) error {
	if err == nil || in.isBusy == nil || r.Fence == 0 {
		return err
	}
	if class, _ := r.Last(); class == ClassPostponed || hasWord(err) || !in.isBusy(err) {
		return err
	}
	if since, tell := in.foreign.crowded.shouldTell(); tell {
		in.log.LogAttrs(r.Flow().Terms.Base, slog.LevelWarn, "onceq: a handler's transaction found the store's database busy; its job is given back, and that is no attempt. Let the transaction take its turn with the store's writes: sqlitestore's Commit",
			engine.ForSo(since), slog.String("job", r.Name()), slog.String("error", verdict.Text(err)))
	}
	return Postpone(crowdedFor+mrand.N(crowdedFor/2), err)
}

// hasWord reports whether the handler has said itself what its error means.
func hasWord(err error) bool {
	var permanent *verdict.PermanentError
	var unknown *verdict.UnknownError
	var retry *verdict.RetryError
	var postpone *verdict.PostponeError
	var notBegun *verdict.NotBegunError
	return errors.As(err, &permanent) || errors.As(err, &unknown) || errors.As(err, &retry) || errors.As(err, &postpone) || errors.As(err, &notBegun)
}

// busyTeller is how the store tells a busy database; nil = it does not.
func busyTeller(s dedupe.Store) func(error) bool {
	if t, ok := broker.As[dedupe.BusyTeller](s); ok {
		return t.IsBusy
	}
	return nil
}
