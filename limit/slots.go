package limit

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/control"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/engine"
	"github.com/onceq/onceq/internal/storecall"
	"github.com/onceq/onceq/internal/values"
	"github.com/onceq/onceq/internal/verdict"
)

// This file owns Slots. A place is a lock of package control. Each process keeps a guess which
// places are free: those that its own jobs have left, and what it has read last. A guess that is
// wrong costs a claim that is refused. Handlers' goroutines run all of it; s.mu is not held while
// the store is called.

// Slots lets at most n jobs run at once, in all processes that use the store s and the name. n is 1
// to 1,000, and the name has 1 to 64 bytes. All processes give the same n with the name; one with a
// higher n uses more places.
//
// A place is a claim in the store. It takes two writes a job, is renewed each 10 s while the job
// runs, and is free 30 s after its holder has died. A job that finds no place waits for one in its
// slot for a second at most, and is postponed then. A process that stood still for longer than 30 s
// may run its job beside another one, until it wakes and its job's own claim is found lost. While
// the store does not answer nothing begins, what runs goes on, and no attempt counts.
func Slots(s dedupe.Store, name string, n int) (onceq.Middleware, error) {
	if err := checkNamed("Slots", s, name); err != nil {
		return nil, err
	}
	const most = 1000
	if n < 1 || n > most {
		return nil, badConfig("Slots.n", "%d is not between 1 and %d", n, most)
	}
	p := &places{store: s, name: name, free: make(chan int, n), mine: make([]bool, n), seen: make([]sighting, n)}
	return func(next onceq.Handler) onceq.Handler {
		if values.IsNil(next) {
			return nil
		}
		return onceq.HandlerFunc(func(ctx context.Context, j *onceq.Job) error { return p.run(ctx, j, next) })
	}, nil
}

type places struct {
	store dedupe.Store
	name  string
	free  chan int // those that may be

	mu      sync.Mutex
	mine    []bool     // in free, or used by this process
	seen    []sighting // of the others' claims
	reading bool
	read    time.Time     // when last
	err     error         // of the last reading
	takes   time.Duration // a job, on average
}

// sighting is when a claim was first seen with its lease.
type sighting struct{ lease, at time.Time }

const (
	// lookEvery is the least time between two looks of a process at all places. It grows with how
	// long jobs take, up to looksUpTo, because a look reads as many records as there are places.
	lookEvery = 250 * time.Millisecond
	looksUpTo = 3 * time.Second
	// placeTTL is for how long control.WithLock and control.RunOnce claim.
	placeTTL = 30 * time.Second
)

func (p *places) run(ctx context.Context, j *onceq.Job, next onceq.Handler) error {
	for end := time.Now().Add(holdOf(ctx)); ; {
		i, err := p.find(ctx, end)
		if ctx.Err() != nil {
			return cutOff(ctx, p.name)
		}
		if err != nil {
			return refused(p.name, away(err))
		}
		if i < 0 {
			return later(j, p.name, p.pause())
		}
		if ran, err := p.with(ctx, i, j, next); ran || !errors.As(err, new(*control.HeldError)) {
			return err
		}
	}
}

// with runs the job in a place, unless another process has it.
func (p *places) with(ctx context.Context, i int, j *onceq.Job, next onceq.Handler) (ran bool, err error) {
	// The place is held as long as the handler runs, also where it ignores the end of its context.
	asked, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	defer stop(nil)
	late := time.AfterFunc(callTime, func() { stop(context.DeadlineExceeded) })
	defer late.Stop()
	cut := context.AfterFunc(ctx, func() { stop(context.Cause(ctx)) })
	defer cut()
	began := time.Now()
	defer func() { p.leave(i, ran, time.Since(began)) }()
	returned := false
	defer func() {
		if ran && !returned {
			return // the handler panics, and goes on to do so
		}
		if v := recover(); v != nil && !ran { // the store's; what the handler answered counts
			err = refused(p.name, away(fmt.Errorf("the store panicked: %v", v)))
		}
	}()
	err = control.WithLock(asked, p.store, p.key(i), func(context.Context) error {
		if !late.Stop() || !cut() { // its beats have ended with asked
			return context.Cause(asked)
		}
		ran = true
		err = next.Handle(ctx, j)
		returned = true
		return err
	})
	switch {
	case ran || errors.As(err, new(*control.HeldError)):
		return ran, err
	case ctx.Err() != nil:
		return false, &verdict.NotBegunError{Err: err}
	}
	return false, refused(p.name, away(err))
}

// leave is told how a place was used. One that the job has left is mostly free.
func (p *places) leave(i int, ran bool, took time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !ran {
		p.mine[i] = false
		return
	}
	p.takes += (took - p.takes) / 8
	p.free <- i // it has room for each
}

// pause is how long a job is postponed that has found no place: about as long as one is used.
func (p *places) pause() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	d := max(2*MaxHold, min(p.takes, placeTTL))
	return d/2 + rand.N(d)
}

// find is a place that may be free; < 0 = there was none until end.
func (p *places) find(ctx context.Context, end time.Time) (int, error) {
	for {
		select {
		case i := <-p.free:
			return i, nil
		default:
		}
		next, err := p.look(ctx)
		if err != nil {
			return -1, err
		}
		wait := min(next, time.Until(end))
		if wait <= 0 {
			return -1, nil
		}
		t := time.NewTimer(wait)
		select {
		case i := <-p.free:
			t.Stop()
			return i, nil
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return -1, context.Cause(ctx)
		}
	}
}

// look has the store asked which places are free, unless that was done just now, and says when to
// look again. The store is asked by a goroutine of its own, because it may ignore every context.
func (p *places) look(ctx context.Context) (next time.Duration, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	every := min(max(lookEvery, p.takes/10), looksUpTo)
	if since := time.Since(p.read); !p.reading && (p.read.IsZero() || since >= every) {
		p.reading = true
		go p.readAll(context.WithoutCancel(ctx))
	} else if !p.reading {
		return every - since, p.err
	}
	return every, nil
}

func (p *places) readAll(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	ks := make([]dedupe.Key, len(p.mine))
	for i := range ks {
		ks[i] = dedupe.Key{Scope: storecall.ScopeOnce, Key: p.key(i)}
	}
	rs, err := engine.Guard(func() ([]*dedupe.Record, error) { return storecall.ReadAll(ctx, p.store, ks) })
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reading, p.read, p.err = false, time.Now(), err
	if err != nil {
		return
	}
	for _, i := range rand.Perm(len(rs)) {
		if !p.mine[i] && p.maybeFree(i, rs[i]) {
			p.mine[i] = true
			p.free <- i
		}
	}
}

// maybeFree reports whether a place may be free: nobody has it, or its lease is over by our clock,
// or it was not renewed for as long as a lease holds, whatever the store's clock says.
func (p *places) maybeFree(i int, r *dedupe.Record) bool {
	if r == nil || r.Status != dedupe.Claimed {
		return true
	}
	if !p.seen[i].lease.Equal(r.LeaseUntil) {
		p.seen[i] = sighting{r.LeaseUntil, time.Now()}
	}
	return !time.Now().Before(r.LeaseUntil) || time.Since(p.seen[i].at) > placeTTL
}

func (p *places) key(i int) string { return "limit/" + p.name + "/" + strconv.Itoa(i) }
