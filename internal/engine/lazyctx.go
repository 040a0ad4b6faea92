package engine

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/onceq/onceq/internal/verdict"
)

// This file owns LazyContext, the context of handlers and of single calls. The steps make one a
// run, or one a call; whoever cuts a handler off ends it. Its own lock guards all of it, and is
// held while the real context is made or cancelled.

// LazyContext is the context of a handler, or of one call. Most are never waited on, and a real
// cancellable context costs more than the rest of a job's bookkeeping. So the real one is made when
// somebody first asks for it. It is told then what has happened already.
type LazyContext struct {
	base context.Context // for values; its own end is watched by whoever made this one

	mu     sync.Mutex
	cause  error
	real   *realContext
	closed bool // who had it has returned

	foreign bool // the cause came from outside, and means nothing to the core
	lost    bool // the claim is another's, and the cause that says so is still to come
}

// realContext holds what most contexts do without.
type realContext struct {
	ctx      context.Context
	cancel   context.CancelCauseFunc
	deadline time.Time // zero = none
	alarmed  bool      // the deadline ends it; a handler's is ended by the visibility manager

	ended    time.Time       // when it was ended; zero = it was not
	observed context.Context // what an Observer made of the context; nil = nothing
}

// CallContext makes the context of one call, which ends after timeout. It is detached from the end
// of ctx.
func CallContext(ctx context.Context, timeout time.Duration) *LazyContext {
	if ctx.Done() != nil {
		ctx = context.WithoutCancel(ctx)
	}
	c := callContextAt(time.Now(), timeout)
	c.base = ctx
	return c
}

// callContextAt makes the context of a call that begins at the time at.
func callContextAt(at time.Time, timeout time.Duration) *LazyContext {
	c := &struct {
		LazyContext
		real realContext
	}{}
	c.base = context.Background()
	c.LazyContext.real = &c.real
	c.real = realContext{deadline: at.Add(timeout), alarmed: true}
	return &c.LazyContext
}

// more makes room for the real context; called with the lock held.
func (c *LazyContext) more() *realContext {
	if c.real == nil {
		c.real = new(realContext)
	}
	return c.real
}

// Deadline is when the context will end at the latest.
func (c *LazyContext) Deadline() (time.Time, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.real == nil {
		return time.Time{}, false
	}
	return c.real.deadline, !c.real.deadline.IsZero()
}

// SetDeadline says when the context will end. The earliest of several counts.
func (c *LazyContext) SetDeadline(t time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r := c.more(); r.deadline.IsZero() || t.Before(r.deadline) {
		r.deadline = t
	}
}

// Done makes the real context.
func (c *LazyContext) Done() <-chan struct{} { return c.get().Done() }

// Err does not need the real context.
func (c *LazyContext) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.real != nil && c.real.ctx != nil:
		return c.real.ctx.Err()
	case c.cause != nil, c.closed:
		return context.Canceled
	case c.real != nil && c.real.alarmed && time.Until(c.real.deadline) <= 0:
		return context.DeadlineExceeded
	}
	return nil
}

// Value must reach the real context: that is how context.Cause and derived contexts find it.
func (c *LazyContext) Value(key any) any { return c.get().Value(key) }

func (c *LazyContext) get() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.more()
	if r.ctx != nil {
		return r.ctx
	}
	if r.alarmed {
		r.alarm(c.base)
	} else {
		r.ctx, r.cancel = context.WithCancelCause(c.base)
	}
	switch {
	case c.cause != nil:
		r.cancel(c.cause)
	case c.closed: // it was left behind with a goroutine, which must not wait for ever
		r.cancel(context.Canceled)
	}
	return r.ctx
}

// alarm makes the real context of a call. It is not inlined, because a handler's needs no room for
// it on its stack.
//
//go:noinline
func (r *realContext) alarm(base context.Context) {
	ctx, stop := context.WithDeadline(base, r.deadline)
	r.ctx, r.cancel = ctx, func(error) { stop() }
}

// cut ends the real context, if there is one; called with the lock held.
func (c *LazyContext) cut(cause error) {
	if c.real != nil && c.real.cancel != nil {
		c.real.cancel(cause)
	}
}

// End cancels the context with the cause. The first cause stays; End reports whether this one is
// the first.
func (c *LazyContext) End(cause error) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cause != nil {
		return false
	}
	c.cause, c.more().ended = cause, time.Now()
	c.cut(cause)
	return true
}

// EndForeign is End for a cause from outside. The core must not take that cause for one of its own.
// It may be one of its own, but of another job: a handler that calls Do passes on what ended it.
func (c *LazyContext) EndForeign(cause error) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cause != nil {
		return false
	}
	c.cause, c.foreign, c.more().ended = cause, true, time.Now()
	c.cut(cause)
	return true
}

// Lose tells the core that the claim is lost, before the context is ended with the cause that says
// more. Nothing begins under the claim from now on.
func (c *LazyContext) Lose() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lost = c.lost || c.cause == nil
}

// ObservedAs notes what an Observer made of the context.
func (c *LazyContext) ObservedAs(ctx context.Context) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.more().observed = ctx
}

// Observer is what the Observer made of the context, or nil.
func (c *LazyContext) Observer() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.real == nil {
		return nil
	}
	return c.real.observed
}

// EndedAt is when the context was cancelled; zero = it was not.
func (c *LazyContext) EndedAt() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.real == nil {
		return time.Time{}
	}
	return c.real.ended
}

// Because is the cause as it was given, for the user to see.
func (c *LazyContext) Because() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cause
}

// EndedBy is the cause with which the context was cancelled, or is about to be, or nil. Of a cause
// from outside it has the text only.
func (c *LazyContext) EndedBy() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.known()
}

func (c *LazyContext) known() error {
	switch {
	case c.lost:
		return verdict.ErrTaken
	case c.foreign:
		return errors.New(verdict.SafeText(c.cause))
	}
	return c.cause
}

// Close frees what the context holds, and answers what EndedBy does.
func (c *LazyContext) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	c.cut(context.Canceled)
	return c.known()
}
