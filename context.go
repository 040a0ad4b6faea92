package onceq

import (
	"context"
	"sync"
	"time"
)

// lazyContext is the context of a handler, or of one call. Most are never waited on, and a real
// cancellable context costs more than the rest of a job's bookkeeping; so the real one is made when
// somebody first asks for it, and told then what has happened already.
type lazyContext struct {
	base context.Context // for values; its own end is watched by whoever made this one

	mu       sync.Mutex
	real     context.Context
	cancel   context.CancelCauseFunc
	cause    error
	deadline time.Time // zero = none
	alarmed  bool      // the deadline ends it; a handler's is ended by the visibility manager
	closed   bool      // who had it has returned
}

// callContext bounds one call. It is detached from the end of ctx.
func callContext(ctx context.Context, timeout time.Duration) *lazyContext {
	return &lazyContext{base: context.WithoutCancel(ctx), deadline: time.Now().Add(timeout), alarmed: true}
}

// Deadline is when the context will end at the latest.
func (c *lazyContext) Deadline() (time.Time, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.deadline, !c.deadline.IsZero()
}

func (c *lazyContext) setDeadline(t time.Time) {
	c.mu.Lock()
	c.deadline = t
	c.mu.Unlock()
}

// Done makes the real context.
func (c *lazyContext) Done() <-chan struct{} { return c.get().Done() }

// Err does not need the real context.
func (c *lazyContext) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.real != nil:
		return c.real.Err()
	case c.cause != nil, c.closed:
		return context.Canceled
	case c.alarmed && time.Until(c.deadline) <= 0:
		return context.DeadlineExceeded
	}
	return nil
}

// Value must reach the real context: that is how context.Cause and derived contexts find it.
func (c *lazyContext) Value(key any) any { return c.get().Value(key) }

func (c *lazyContext) get() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.real != nil {
		return c.real
	}
	if c.alarmed {
		real, stop := context.WithDeadline(c.base, c.deadline)
		c.real, c.cancel = real, func(error) { stop() }
	} else {
		c.real, c.cancel = context.WithCancelCause(c.base)
	}
	switch {
	case c.cause != nil:
		c.cancel(c.cause)
	case c.closed: // it was left behind with a goroutine, which must not wait for ever
		c.cancel(context.Canceled)
	}
	return c.real
}

// end cancels the context with the cause, and tells whether this was the first cause.
func (c *lazyContext) end(cause error) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cause != nil {
		return false
	}
	c.cause = cause
	if c.cancel != nil {
		c.cancel(cause)
	}
	return true
}

// endedBy is the cause with which the context was cancelled, or nil.
func (c *lazyContext) endedBy() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cause
}

// close frees what the context holds. Its cause stays what it was.
func (c *lazyContext) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	if c.cancel != nil {
		c.cancel(context.Canceled)
	}
}
