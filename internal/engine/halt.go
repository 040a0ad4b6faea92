package engine

import (
	"slices"
	"time"

	"github.com/onceq/onceq/internal/verdict"
)

// This file owns how a Flow is paused and stopped, and how its handlers are cut off. Hosts call it.
// f.mu guards paused, stopped and their times; shut says the same without the lock. What has to be
// handed back is handed back when the lock has been let go.

// Stop lets nothing new start, and hands back at once what has not started.
func (f *Flow[J]) Stop() {
	f.halt(func() {
		if !f.stopped {
			f.stopped, f.since = true, time.Since(f.epoch)
		}
	})()
}

// Pause is a Stop that Resume ends. A flow is paused as long as any reason holds, and from when
// Pause returns. The caller then calls handBack, holding no lock: what has not started goes back.
func (f *Flow[J]) Pause(why Pauses) (handBack func()) {
	return f.halt(func() {
		if f.paused == 0 && why != 0 {
			f.turned = time.Since(f.epoch)
		}
		f.paused |= why
	})
}

// outage is a pause because the store does not answer.
func (f *Flow[J]) outage() {
	f.storeAway.Store(true)
	f.Pause(ByOutage)()
}

func (f *Flow[J]) halt(set func()) (handBack func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	set()
	f.shut.Store(true)
	var delayed []*Run[J]
	back := f.unstarted()
	for r := f.live; r != nil; r = r.next {
		switch {
		case !f.unwait(r):
		case r.IsOver():
			delayed = append(delayed, r)
		default:
			back = append(back, r)
		}
	}
	f.tell()
	watchers := slices.Clone(f.watchers)
	return func() {
		tellWatchers(watchers) // first, because an Observer of what is handed back may be slow
		for _, r := range delayed {
			f.o.Nack(r)
		}
		f.handBack(back)
	}
}

// Watch has w told until Unwatch. A change that was before Watch is seen by IsOpen and SlotsNow
// after it.
func (f *Flow[J]) Watch(w Watcher) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.watchers = append(f.watchers, w)
}

// Unwatch ends Watch. A change that is just told may still come.
func (f *Flow[J]) Unwatch(w Watcher) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.watchers = slices.DeleteFunc(f.watchers, func(o Watcher) bool { return o == w })
}

// Resume ends the reasons that are given, and no other.
func (f *Flow[J]) Resume(why Pauses) {
	f.mu.Lock()
	if f.paused != 0 && f.paused&^why == 0 {
		f.turned = time.Since(f.epoch)
	}
	f.paused &^= why
	f.shut.Store(f.stopped || f.paused != 0)
	f.tell()
	f.mu.Unlock()
}

// Began is when the flow was made.
func (f *Flow[J]) Began() time.Time { return f.epoch }

// IsOpen reports whether a run that has not begun may still do so. It takes no lock.
func (f *Flow[J]) IsOpen() bool {
	return !f.shut.Load()
}

func (f *Flow[J]) isStopped() bool {
	stopped, _ := f.stoppedAt()
	return stopped
}

// stoppedAt reports whether the flow has stopped, and when, since its epoch.
func (f *Flow[J]) stoppedAt() (bool, time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.stopped, f.since
}

// StoppedFor is for how long the flow has been stopped; 0 = it is not.
func (f *Flow[J]) StoppedFor() time.Duration {
	if stopped, at := f.stoppedAt(); stopped {
		return max(1, time.Since(f.epoch)-at)
	}
	return 0
}

// CutOff stops the flow and ends the handlers' contexts.
func (f *Flow[J]) CutOff() {
	f.cutAll(func(*Run[J]) error { return verdict.ErrDraining })
}

// TimeUp is CutOff at the batch's Deadline.
func (f *Flow[J]) TimeUp() { f.cutAll((*Run[J]).outOfTime) }

func (f *Flow[J]) cutAll(cause func(*Run[J]) error) {
	f.Stop()
	f.mu.Lock()
	defer f.mu.Unlock()
	for r := f.live; r != nil; r = r.next {
		r.stopHandler(cause(r))
	}
}

// SetPaused says, before anything is offered, for what reasons the flow begins with a pause.
func (f *Flow[J]) SetPaused(why Pauses) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.paused = why
	f.shut.Store(why != 0)
}
