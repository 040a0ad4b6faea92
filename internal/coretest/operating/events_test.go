package operating

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/coretest/rig"
	"github.com/onceq/onceq/internal/faulty"
	"github.com/onceq/onceq/onceqtest"
)

// eventful is an Observer that keeps the events of workers.
type eventful struct {
	rig.Seen
	then func(e *onceq.WorkerEvent) // is called for each; nil = nothing

	mu     sync.Mutex
	events []onceq.WorkerEvent
}

func (o *eventful) WorkerEvent(_ context.Context, e *onceq.WorkerEvent) {
	o.mu.Lock()
	o.events = append(o.events, *e)
	o.mu.Unlock()
	if o.then != nil {
		o.then(e)
	}
}

// told are the events so far: kind and reason.
func (o *eventful) told() (all []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, e := range o.events {
		s := string(e.Kind)
		if e.Reason != "" {
			s += " " + e.Reason
		}
		all = append(all, s)
	}
	return all
}

// last is the newest event of the kind.
func (o *eventful) last(t *testing.T, kind onceq.WorkerEventKind) onceq.WorkerEvent {
	t.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, e := range slices.Backward(o.events) {
		if e.Kind == kind {
			return e
		}
	}
	t.Fatalf("no event %s in %+v", kind, o.events)
	return onceq.WorkerEvent{}
}

func wantTold(t *testing.T, o *eventful, want ...string) {
	t.Helper()
	if got := o.told(); !slices.Equal(got, want) {
		t.Errorf("the events are %q, want %q", got, want)
	}
}

func TestWorkerEvents(t *testing.T) {
	o := &eventful{}
	rig.Bubble(t, func(context.Context, *onceq.Job) error {
		rig.Takes(time.Minute)
		return nil
	}, func(r *rig.Rig) {
		r.W.Pause()
		wantTold(t, o) // nothing is under way
		r.Start()
		rig.Pass(time.Second)
		wantTold(t, o, "started", "paused local")
		rig.Pass(time.Minute)
		r.W.Resume()
		r.W.Resume()
		wantTold(t, o, "started", "paused local", "resumed local")
		if e := o.last(t, onceq.EventResumed); e.Queue != "memory" || time.Since(e.Since) != time.Minute+time.Second {
			t.Errorf("resumed says %+v, want Since the pause began", e)
		}
		r.Send("a")
		rig.Pass(time.Second)
		r.W.Pause()
		r.W.Pause()
		r.StopNow()
		rig.Pass(time.Second)
		wantTold(t, o, "started", "paused local", "resumed local", "paused local", "draining")
		rig.Pass(time.Minute)
		wantTold(t, o, "started", "paused local", "resumed local", "paused local", "draining", "drained")
		e := o.last(t, onceq.EventDrained)
		if late := new(onceq.DrainError); !errors.As(e.Err, &late) || e.Since.Equal(time.Now()) {
			t.Errorf("drained says %+v, want the jobs that were abandoned, and when the drain began", e)
		}
		if err := <-r.Done; err == nil {
			t.Error("Run answered nil")
		}
		r.Done = nil
	}, observedBy(o))
}

// An outage is told of where its log line is, once each.
func TestOutagesAreEvents(t *testing.T) {
	fails := func(op onceqtest.Op) faulty.Func {
		return func(_ context.Context, c onceqtest.Call) (f faulty.Faults) {
			if c.Op == op {
				f = faulty.Fail(rig.ErrBoom)
			}
			return f
		}
	}
	for reason, c := range map[string]struct {
		begin, end func(r *rig.Rig)
		h          onceq.HandlerFunc
	}{
		onceq.ReasonQueue: {
			func(r *rig.Rig) { r.Q.SetFault(fails(onceqtest.Receive)) }, func(r *rig.Rig) { r.Q.SetFault(nil) }, rig.Returns(nil),
		},
		onceq.ReasonStore: {
			func(r *rig.Rig) { r.Store.Fails(rig.ErrBoom, onceqtest.Claim) }, func(r *rig.Rig) { r.Store.Heals() }, rig.Returns(nil),
		},
		onceq.ReasonLetters: {
			func(r *rig.Rig) { r.DLQ.SetFault(fails(onceqtest.Send)) }, func(r *rig.Rig) { r.DLQ.SetFault(nil) }, rig.Failing,
		},
	} {
		t.Run(reason, func(t *testing.T) {
			o := &eventful{}
			rig.Bubble(t, c.h, func(r *rig.Rig) {
				r.Start()
				rig.Pass(time.Second)
				began := time.Now()
				c.begin(r)
				r.Send(rig.Numbered("k", 10)...)
				rig.Pass(4 * time.Minute)
				wantTold(t, o, "started", "outage "+reason)
				if e := o.last(t, onceq.EventOutage); e.Queue != "memory" || !errors.Is(e.Err, rig.ErrBoom) || e.Since.Sub(began) > time.Second {
					t.Errorf("the event is %+v", e)
				}
				c.end(r)
				r.Send("news")
				rig.Pass(time.Minute)
				wantTold(t, o, "started", "outage "+reason, "outage-over "+reason)
				if e := o.last(t, onceq.EventOutageOver); e.Err != nil || e.Since.Sub(began) > time.Second {
					t.Errorf("the event is %+v", e)
				}
			}, observedBy(o))
		})
	}
}

// An Observer of events may call the worker, and its panic does no harm.
func TestEventsThatCallBackAndPanic(t *testing.T) {
	o := &eventful{}
	rig.Bubble(t, rig.Returns(nil), func(r *rig.Rig) {
		o.then = func(e *onceq.WorkerEvent) {
			_, _ = r.W.Stats(), r.W.Health()
			if e.Kind == onceq.EventPaused {
				r.W.Resume()
			}
			panic("event")
		}
		r.Start()
		r.W.Pause()
		rig.Pass(time.Second)
		r.Send("a")
		rig.Pass(time.Second)
		r.WantQueue(0)
		if err := r.Stop(); err != nil {
			t.Error(err)
		}
		if n, want := r.Logged.Count("the Observer panicked"), len(o.told()); n != want || want < 4 {
			t.Errorf("%d panics are logged, want %d", n, want)
		}
	}, observedBy(o))
}

// TestResumeFromTheEventOfItsPause: who is told of a pause may end it, and that is the last word.
func TestResumeFromTheEventOfItsPause(t *testing.T) {
	o := &eventful{}
	rig.Bubble(t, rig.Returns(nil), func(r *rig.Rig) {
		o.then = func(e *onceq.WorkerEvent) {
			if e.Kind == onceq.EventPaused {
				if s := r.W.Stats(); len(s.Paused) != 1 {
					t.Errorf("told of a pause, and Stats says %q", s.Paused)
				}
				r.W.Resume()
			}
		}
		r.Start()
		rig.Pass(time.Second)
		r.W.Pause()
		if s := r.W.Stats(); s.Paused != nil {
			t.Errorf("resumed, and Stats says %q", s.Paused)
		}
		r.Send("a")
		rig.Pass(time.Second)
		r.WantStatus("a", dedupe.Done)
		wantTold(t, o, "started", "paused local", "resumed local")
	}, observedBy(o))
}

// decoratedObserver hides what it wraps, but for its Unwrap.
type decoratedObserver struct{ onceq.Observer }

func (d decoratedObserver) Unwrap() any { return d.Observer }

func TestEventsThroughADecorator(t *testing.T) {
	o := &eventful{}
	rig.Bubble(t, rig.Returns(nil), func(r *rig.Rig) {
		r.RunFor(time.Second)
		wantTold(t, o, "started", "draining", "drained")
	}, observedBy(decoratedObserver{o}))
}
