package onceq

import (
	"time"

	"github.com/onceq/onceq/internal/engine"
)

// This file owns a Worker's pauses. The user calls Pause and Resume, and what follows an operator's
// rules calls pause and resume with a reason of its own. w.mu guards the reasons, which outlast a
// Run. It is let go before the flow is told, because an Observer is told, and may call the Worker.

// Pause stops receiving, and hands back what was never started. Running handlers go on. It may be
// called before Run, and returns at once.
func (w *Worker) Pause() { w.pause(engine.ByHand) }

// Resume ends a Pause. It does not end an operator's.
func (w *Worker) Resume() { w.resume(engine.ByHand) }

// pause pauses for one reason, besides those that hold already.
func (w *Worker) pause(why engine.Pauses) {
	w.mu.Lock()
	_, holds := w.paused[why]
	if !holds {
		if w.paused == nil {
			w.paused = make(map[engine.Pauses]time.Time)
		}
		w.paused[why] = time.Now()
	}
	f := w.flow
	w.mu.Unlock()
	if f == nil {
		return
	}
	if !holds {
		w.tellPaused(f, why)
	}
	f.Pause(why)
}

// resume ends one reason. The worker goes on when none is left.
func (w *Worker) resume(why engine.Pauses) {
	w.mu.Lock()
	since, holds := w.paused[why]
	delete(w.paused, why)
	left, f := w.pauses(), w.flow
	w.mu.Unlock()
	if f == nil {
		return
	}
	if holds {
		w.tellResumed(f, why, left, since)
	}
	f.Resume(why)
}

// pauses are the reasons that hold. The caller holds the lock.
func (w *Worker) pauses() (all engine.Pauses) {
	for why := range w.paused {
		all |= why
	}
	return all
}

// isPaused are the reasons that hold now.
func (w *Worker) isPaused() engine.Pauses {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.pauses()
}
