package onceq_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/faulty"
	"github.com/onceq/onceq/onceqtest"
)

// eventful is an Observer that keeps the events of workers.
type eventful struct {
	seen
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
	bubble(t, func(context.Context, *onceq.Job) error {
		takes(time.Minute)
		return nil
	}, func(r *rig) {
		r.w.Pause()
		wantTold(t, o) // nothing is under way
		r.start()
		pass(time.Second)
		wantTold(t, o, "started", "paused local")
		pass(time.Minute)
		r.w.Resume()
		r.w.Resume()
		wantTold(t, o, "started", "paused local", "resumed local")
		if e := o.last(t, onceq.EventResumed); e.Queue != "memory" || time.Since(e.Since) != time.Minute+time.Second {
			t.Errorf("resumed says %+v, want Since the pause began", e)
		}
		r.send("a")
		pass(time.Second)
		r.w.Pause()
		r.w.Pause()
		r.stopNow()
		pass(time.Second)
		wantTold(t, o, "started", "paused local", "resumed local", "paused local", "draining")
		pass(time.Minute)
		wantTold(t, o, "started", "paused local", "resumed local", "paused local", "draining", "drained")
		e := o.last(t, onceq.EventDrained)
		if late := new(onceq.DrainError); !errors.As(e.Err, &late) || e.Since.Equal(time.Now()) {
			t.Errorf("drained says %+v, want the jobs that were abandoned, and when the drain began", e)
		}
		if err := <-r.done; err == nil {
			t.Error("Run answered nil")
		}
		r.done = nil
	}, observedBy(o))
}

// An outage is told of where its log line is, once each.
func TestOutagesAreEvents(t *testing.T) {
	fails := func(op onceqtest.Op) faulty.Func {
		return func(_ context.Context, c onceqtest.Call) (f faulty.Faults) {
			if c.Op == op {
				f = faulty.Fail(errBoom)
			}
			return f
		}
	}
	for reason, c := range map[string]struct {
		begin, end func(r *rig)
		h          onceq.HandlerFunc
	}{
		onceq.ReasonQueue: {
			func(r *rig) { r.q.SetFault(fails(onceqtest.Receive)) }, func(r *rig) { r.q.SetFault(nil) }, returns(nil),
		},
		onceq.ReasonStore: {
			func(r *rig) { r.store.fails(errBoom, onceqtest.Claim) }, func(r *rig) { r.store.heals() }, returns(nil),
		},
		onceq.ReasonLetters: {
			func(r *rig) { r.dlq.SetFault(fails(onceqtest.Send)) }, func(r *rig) { r.dlq.SetFault(nil) }, failing,
		},
	} {
		t.Run(reason, func(t *testing.T) {
			o := &eventful{}
			bubble(t, c.h, func(r *rig) {
				r.start()
				pass(time.Second)
				began := time.Now()
				c.begin(r)
				r.send(numbered("k", 10)...)
				pass(4 * time.Minute)
				wantTold(t, o, "started", "outage "+reason)
				if e := o.last(t, onceq.EventOutage); e.Queue != "memory" || !errors.Is(e.Err, errBoom) || e.Since.Sub(began) > time.Second {
					t.Errorf("the event is %+v", e)
				}
				c.end(r)
				r.send("news")
				pass(time.Minute)
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
	bubble(t, returns(nil), func(r *rig) {
		o.then = func(e *onceq.WorkerEvent) {
			_, _ = r.w.Stats(), r.w.Health()
			if e.Kind == onceq.EventPaused {
				r.w.Resume()
			}
			panic("event")
		}
		r.start()
		r.w.Pause()
		pass(time.Second)
		r.send("a")
		pass(time.Second)
		r.wantQueue(0)
		if err := r.stop(); err != nil {
			t.Error(err)
		}
		if n, want := r.log.count("the Observer panicked"), len(o.told()); n != want || want < 4 {
			t.Errorf("%d panics are logged, want %d", n, want)
		}
	}, observedBy(o))
}

// TestResumeFromTheEventOfItsPause: who is told of a pause may end it, and that is the last word.
func TestResumeFromTheEventOfItsPause(t *testing.T) {
	o := &eventful{}
	bubble(t, returns(nil), func(r *rig) {
		o.then = func(e *onceq.WorkerEvent) {
			if e.Kind == onceq.EventPaused {
				if s := r.w.Stats(); len(s.Paused) != 1 {
					t.Errorf("told of a pause, and Stats says %q", s.Paused)
				}
				r.w.Resume()
			}
		}
		r.start()
		pass(time.Second)
		r.w.Pause()
		if s := r.w.Stats(); s.Paused != nil {
			t.Errorf("resumed, and Stats says %q", s.Paused)
		}
		r.send("a")
		pass(time.Second)
		r.wantStatus("a", dedupe.Done)
		wantTold(t, o, "started", "paused local", "resumed local")
	}, observedBy(o))
}

// decoratedObserver hides what it wraps, but for its Unwrap.
type decoratedObserver struct{ onceq.Observer }

func (d decoratedObserver) Unwrap() any { return d.Observer }

func TestEventsThroughADecorator(t *testing.T) {
	o := &eventful{}
	bubble(t, returns(nil), func(r *rig) {
		r.run(time.Second)
		wantTold(t, o, "started", "draining", "drained")
	}, observedBy(decoratedObserver{o}))
}
