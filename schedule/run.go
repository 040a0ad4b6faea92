package schedule

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/engine"
	"github.com/onceq/onceq/internal/retry"
	"github.com/onceq/onceq/internal/safelog"
	"github.com/onceq/onceq/internal/values"
)

// This file owns Run: its loop, which alone knows the entries and when each is looked at next. What
// may wait for others (the user's list, the store, the queues) is done by goroutines, which hand
// what they found back to the loop. So no lock is held, and a call that hangs holds up its own
// entry.

// Options say how a scheduler runs. nil means the defaults.
type Options struct {
	// Logger gets what a person should look at. Default: slog.Default. One that panics loses its
	// line.
	Logger *slog.Logger
}

// Run sends the jobs of the entries until ctx ends. Any number of processes may call it with the
// same store: each instant of each entry is sent by one of them. Their lists should be the same but
// for deployments; two programs with different entries may share a store.
//
// es answers the list; it is asked at the start and each minute, in a goroutine of its own. Where
// it fails, hangs or answers an entry that makes no sense, the last list goes on, and a WARN says
// so. At the start such an entry ends Run, with an error that names the field and its limit.
//
// Of an entry whose name is new to the store, or stands there with another schedule, no instant
// before this moment is sent. An entry that comes back unchanged catches up as one whose processes
// were down.
//
// Where the store does not answer, nothing is sent: afterwards Entry.CatchUp decides what is still
// sent, and a WARN has the count of what is not. Where ctx ends, sends that have begun may end, for
// at most 10 s; the answer is nil.
func Run(ctx context.Context, s dedupe.Store, es func(context.Context) ([]Entry, error), o *Options) error {
	r, err := newRunner(s, es, o)
	if err != nil {
		return err
	}
	return r.run(ctx)
}

func newRunner(s dedupe.Store, es func(context.Context) ([]Entry, error), o *Options) (*runner, error) {
	switch {
	case values.IsNil(s):
		return nil, errors.New("schedule: Run: the store is nil")
	case es == nil:
		return nil, errors.New("schedule: Run: es, which lists the entries, is nil")
	}
	r := &runner{
		s: s, es: es, every: askEach, back: make(chan func()), over: make(chan struct{}),
		on: map[string]*entry{}, failing: map[string]bool{}, lanes: map[any]chan struct{}{},
	}
	if o == nil {
		o = &Options{}
	}
	r.log = safelog.New(o.Logger)
	return r, nil
}

func (r *runner) run(ctx context.Context) error {
	var cancel context.CancelFunc
	r.ctx = ctx
	r.work, cancel = context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer close(r.over)
	asking, stop := context.WithCancel(ctx)
	defer stop()
	go r.askAlways(asking)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for ctx.Err() == nil && r.fatal == nil {
		timer.Reset(r.begin())
		select {
		case f := <-r.back:
			f()
		case <-timer.C:
		case <-ctx.Done():
		}
	}
	timer.Reset(endFor)
	for late := false; r.flying > 0 && r.fatal == nil; {
		select {
		case f := <-r.back:
			f()
		case <-timer.C:
			if late {
				return nil // a call that does not obey its context
			}
			late = true
			cancel()
			timer.Reset(time.Second)
		}
	}
	return r.fatal
}

// begin begins what is due, and answers how long the loop may sleep.
func (r *runner) begin() time.Duration {
	now := r.now()
	if !r.adopting && !now.Before(r.adopts) && len(r.on) > 0 {
		r.adopt(now)
	}
	until := now.Add(r.every)
	if r.passing {
		return r.every // its end wakes the loop
	}
	if now.Before(r.passes) {
		return min(r.every, r.passes.Sub(now))
	}
	var due []*entry
	for len(r.queue) > 0 && !r.queue[0].wake.After(now) {
		due = append(due, heap.Pop(&r.queue).(*entry))
	}
	if len(due) > 0 {
		rand.Shuffle(len(due), func(i, j int) { due[i], due[j] = due[j], due[i] }) // processes begin elsewhere
		r.pass(now, due)
		return r.every
	}
	if len(r.queue) > 0 && r.queue[0].wake.Before(until) {
		until = r.queue[0].wake
	}
	if !r.adopting && len(r.on) > 0 && r.adopts.Before(until) {
		until = r.adopts
	}
	return max(time.Millisecond, until.Sub(now))
}

// askAlways asks for the list until ctx ends. A call that hangs is not joined by another one.
func (r *runner) askAlways(ctx context.Context) {
	type answer struct {
		es  []Entry
		err error
	}
	answers := make(chan answer, 1)
	asked := false
	for {
		if !asked {
			asked = true
			call, cancel := context.WithTimeout(ctx, tryFor)
			go func() {
				defer cancel()
				es, err := engine.Guard(func() ([]Entry, error) { return r.es(call) })
				answers <- answer{es, err}
			}()
		}
		hung := time.NewTimer(tryFor + time.Second)
		var a answer
		select {
		case a = <-answers:
			asked = false
		case <-hung.C:
			a.err = fmt.Errorf("schedule: es has not answered for %v", tryFor)
		case <-ctx.Done():
		}
		hung.Stop()
		if ctx.Err() != nil {
			return
		}
		r.hand(func() { r.take(a.es, a.err) })
		pause := r.every
		if a.err != nil {
			pause = min(pause, 5*time.Second)
		}
		if !retry.Rest(ctx, pause) {
			return
		}
	}
}

// take takes a new list, as a whole or not at all.
func (r *runner) take(list []Entry, err error) {
	var all []*entry
	if err == nil {
		all, err = completed(list)
		if err != nil && !r.first {
			r.fatal = err
			return
		}
	}
	r.tell(&r.listOut, err, "onceq: the list of schedules cannot be taken; the last one goes on", "onceq: the list of schedules is taken again", slog.Int("entries", len(r.on)))
	if err != nil {
		return
	}
	r.first = true
	clear(r.lanes) // or queues that are made anew for each list would stay
	was := r.on
	r.on = make(map[string]*entry, len(all))
	for _, e := range all {
		old := was[e.Name]
		if old != nil && old.spec == e.spec {
			old.Entry = e.Entry
			r.on[e.Name] = old
			delete(was, e.Name)
			continue
		}
		r.on[e.Name], r.adopts = e, time.Time{}
	}
	for name, e := range was { // what is left out, or has another schedule
		if e.gone = true; e.at >= 0 {
			heap.Remove(&r.queue, e.at)
		}
		delete(r.failing, name)
	}
}

// completed are the entries of a list with their defaults. Two of one name are refused.
func completed(list []Entry) ([]*entry, error) {
	if len(list) > MaxEntries {
		return nil, fmt.Errorf("schedule: the list has %d entries, the limit is %d", len(list), MaxEntries)
	}
	all := make([]*entry, len(list))
	names := make(map[string]bool, len(list))
	for i := range list {
		e, err := list[i].complete()
		if err != nil {
			return nil, err
		}
		if names[e.Name] {
			return nil, fmt.Errorf("schedule: the entry %q: Name stands twice in the list, and a job's key is made of it", e.Name)
		}
		names[e.Name], all[i] = true, e
	}
	return all, nil
}
