package schedule

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/controlstore"
	"github.com/onceq/onceq/internal/rig"
)

// TestPoisonedInstant: an instant whose message cannot be made holds up none of those that come
// after it, however many, and is tried until CatchUp is over.
func TestPoisonedInstant(t *testing.T) {
	inWorld(t, func(w *world) {
		e := w.entry("often", Every(time.Second))
		e.CatchUp = 2 * time.Hour
		fine, poisoned, tries := e.Message, time.Now().Add(time.Minute), 0
		e.Message = func(due time.Time) (broker.Outgoing, error) {
			if due.Equal(poisoned) {
				tries++
				return broker.Outgoing{}, errors.New("a bug")
			}
			return fine(due)
		}
		defer w.start(w.store, list(e))()
		goOn(2*mostOpen*time.Second + time.Second/2)
		if n := len(w.queue.dues("often")); n != 2*mostOpen-1 || tries < 60 {
			t.Errorf("%d of %d instants were sent, and one was tried %d times", n, 2*mostOpen, tries)
		}
	})
}

// TestFullList: where one part of the store's list has no room for new entries, those of the other
// parts are sent, and a WARN names the limit.
func TestFullList(t *testing.T) {
	inWorld(t, func(w *world) {
		es := []Entry{w.entry("fine", Every(time.Minute))}
		full := controlstore.SchedulePart("fine") ^ 1
		for i := 0; len(es) < 220; i++ {
			name := fmt.Sprintf("%s%d", strings.Repeat("<", 200), i) // JSON writes six bytes for each
			if controlstore.SchedulePart(name) == full {
				es = append(es, w.entry(name, Every(time.Minute)))
			}
		}
		defer w.start(w.store, list(es...))()
		goOn(2*time.Minute + time.Second)
		w.wants("fine", at("00:01:00"), at("00:02:00"))
		if n := len(w.queue.sent); n != 2 {
			t.Errorf("%d messages were sent", n)
		}
		if n := w.log.Count("level=WARN", "list of schedules is full", "the limit is 262144"); n != 1 {
			t.Errorf("%d lines tell that the list is full: %s", n, &w.log)
		}
	})
}

// TestLoggerPanics: a Logger that panics costs its line, and the scheduler goes on.
func TestLoggerPanics(t *testing.T) {
	inWorld(t, func(w *world) {
		ctx, stop := context.WithTimeout(w.Context(), time.Hour)
		defer stop()
		time.AfterFunc(10*time.Minute, w.store.Heals)
		w.store.Fails(errors.New("away"))
		if err := Run(ctx, w.store, list(w.entry("late", w.cron("30 * * * *", "UTC"))), &Options{Logger: rig.Broken()}); err != nil {
			t.Error(err)
		}
		w.wants("late", at("00:30:00"))
	})
}
