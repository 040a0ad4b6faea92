package steering

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/control"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/controlstore"
	"github.com/onceq/onceq/internal/engine"
	"github.com/onceq/onceq/internal/retry"
)

// This file owns what is done when a store went back in time: a backup was restored under running
// workers, or a replica took over that lacked the last commits. No call fails then. Jobs that were
// done since run again, and fences are given out a second time. The engine sees it by a fence
// (internal/engine/fences.go), and a steward by the fence of its seat and by the version of the
// rules. Both tell it from any goroutine; the rest runs in one of its own, and nothing is locked.

const (
	// backAgain is how long a store that goes back again is the same story.
	backAgain = time.Minute
	// backTries is how often the fence is raised, where the store refuses it.
	backTries = 3
	// backWait bounds how long the pause is tried.
	backWait = time.Minute
)

// Event is what steering tells of beside the log.
type Event int

const (
	// RulesRefused: the store refuses to tell the rules, and the worker starts without them.
	RulesRefused Event = iota
	// SeatLost: somebody took the worker's seat.
	SeatLost
	// StoreWentBack: the store went back in time.
	StoreWentBack
)

// Tell is told of an Event, from any goroutine. No lock is held.
type Tell func(ctx context.Context, what Event, why error)

// Watchman is told where an intake's store went back in time. All of its exported fields are set,
// where they do not say otherwise, and nobody changes them.
type Watchman struct {
	Fences *engine.Fences
	Store  dedupe.Store
	// Rules is where a pause of Queue is written; nil = there are no rules, or no queue.
	Rules       dedupe.Store
	Queue       string
	CallTimeout time.Duration
	Logger      *slog.Logger
	Tell        Tell

	last atomic.Int64 // when it last was so; 0 = never
}

// FenceBack is told by the engine. known was given to a claim of this process before the one that
// got got was sent.
func (w *Watchman) FenceBack(known, got uint64) {
	known = max(known, w.Fences.Forget()) // what it gives from now on is compared with itself
	w.wentBack(known, fmt.Errorf("onceq: the store gave the fence %d, and had given %d before", got, known))
}

// seatTaken is told by a steward of the fence of its seat; 0 = it has lost it. known is as
// FenceBack's.
func (w *Watchman) seatTaken(known, got uint64) {
	if got == 0 || !w.Store.Limits().OrderedFences {
		return
	}
	if got <= known {
		w.FenceBack(known, got)
	}
	w.Fences.Learn(got)
}

// versionBack is told by a steward that the rules have an older version than before.
func (w *Watchman) versionBack(why error) { w.wentBack(w.Fences.Forget(), why) }

// wentBack is told that the store went back in time, with the highest fence that is known. It
// returns at once.
func (w *Watchman) wentBack(known uint64, why error) {
	now := time.Now().UnixNano()
	last := w.last.Load()
	if last != 0 && now-last < int64(backAgain) || !w.last.CompareAndSwap(last, now) {
		return
	}
	go w.meetPast(known, why)
}

// meetPast says that the store went back, keeps it from giving out fences a second time, and stops
// the workers of the queue.
func (w *Watchman) meetPast(known uint64, why error) {
	ctx := context.Background()
	back, err := w.raiseFence(ctx, known)
	if err == nil && !back {
		w.Logger.LogAttrs(ctx, slog.LevelWarn, "onceq: the store's fences come in no order, so a restore of it would not be noticed; its sequence needs CACHE 1", slog.Any("error", why))
		return
	}
	attrs := []slog.Attr{slog.Any("error", why)}
	if err != nil {
		attrs = append(attrs, slog.String("fence", "not raised; run Migrate: "+err.Error()))
	}
	w.Logger.LogAttrs(ctx, slog.LevelError, "onceq: the store went back in time, as by the restore of a backup: what it has forgotten may run again; see docs/restore.md", attrs...)
	w.Tell(ctx, StoreWentBack, why)
	if w.Rules == nil {
		return
	}
	switch err := w.stopQueue(ctx, why); {
	case errors.Is(err, errStopped):
	case err != nil:
		w.Logger.LogAttrs(ctx, slog.LevelError, "onceq: the queue cannot be paused, and its workers go on beside a store that went back in time", slog.Any("error", err))
	default:
		w.Logger.LogAttrs(ctx, slog.LevelError, "onceq: the queue is paused until an operator resumes it, because its store went back in time")
	}
}

// raiseFence has the store raise its fence. back is false where the store knows another reason for
// what was seen.
func (w *Watchman) raiseFence(ctx context.Context, known uint64) (back bool, err error) {
	s, ok := broker.As[dedupe.FenceRaiser](w.Store)
	if !ok {
		return true, nil
	}
	for n := 1; ; n++ {
		one, cancel := context.WithTimeout(ctx, w.CallTimeout)
		back, err = s.RaiseFence(one, known)
		cancel()
		if err == nil || n == backTries || !retry.Rest(ctx, retry.Pause(n)) {
			return back, err
		}
	}
}

// errStopped: another worker has stopped the queue.
var errStopped = errors.New("onceq: the queue is paused already")

// stopQueue pauses the queue by a rule, as an operator does: all of its workers obey, it is shown
// with its reason, and an operator ends it.
func (w *Watchman) stopQueue(ctx context.Context, why error) error {
	ctx, cancel := context.WithTimeout(ctx, backWait)
	defer cancel()
	rule := control.Rule{
		Do: control.Pause, Queue: w.Queue, By: "onceq",
		Reason: controlstore.WentBack + " (" + strings.TrimPrefix(why.Error(), "onceq: ") + "): reconcile, see docs/restore.md, then resume",
	}
	rs, err := controlstore.Change(ctx, w.Rules, func(rs *controlstore.Rules) error {
		now := time.Now()
		if slices.ContainsFunc(rs.Rules, func(r control.Rule) bool {
			return r.Do == control.Pause && r.Queue == rule.Queue && r.OfQueue() && now.Before(r.Until) && strings.HasPrefix(r.Reason, controlstore.WentBack)
		}) {
			return errStopped
		}
		rule.Until = now.Add(controlstore.MaxUntil - time.Minute)
		rs.Rules = append(rs.Rules, rule)
		return nil
	})
	if err != nil {
		return err
	}
	if err := w.writeDown(ctx, &rule, &rs); err != nil {
		w.Logger.LogAttrs(ctx, slog.LevelWarn, "onceq: the pause after the store went back in time is not in the audit", slog.Any("error", err))
	}
	return nil
}

// writeDown writes the pause into the audit. The pause is urgent, so it comes first.
func (w *Watchman) writeDown(ctx context.Context, made *control.Rule, rs *controlstore.Rules) error {
	a, err := controlstore.Begin(ctx, w.Rules, control.AuditEntry{
		Act: string(made.Do), By: made.By, Reason: made.Reason, Queue: made.Queue,
		Detail: map[string]string{"until": made.Until.UTC().Format(time.RFC3339)},
	})
	if err != nil {
		return err
	}
	result := map[string]string{"version": strconv.FormatUint(rs.Version, 10)}
	if i := slices.IndexFunc(rs.Rules, func(r control.Rule) bool {
		return r.By == made.By && r.Reason == made.Reason && r.Until.Equal(made.Until)
	}); i >= 0 {
		result["rule"] = rs.Rules[i].ID
	}
	return a.End(ctx, result, nil)
}
