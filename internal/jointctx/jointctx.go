// Package jointctx joins contexts to one, for a batch.
package jointctx

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// Context ends when all of its contexts have ended, with the cause of the last. Most are never
// waited on, so the real context, which watches the others, is made when somebody first asks.
//
// Who makes it closes it; any goroutine may ask it. c.mu guards real, cancel, stops and closed. It
// is held while the joined contexts are asked, which know nothing of this one.
type Context struct {
	of []context.Context // two or more

	mu     sync.Mutex
	real   context.Context
	cancel context.CancelCauseFunc
	stops  []func() bool
	closed bool // the function has returned
}

// New joins two contexts or more. The caller calls Close.
func New(of []context.Context) *Context { return &Context{of: of} }

// Deadline is that of the context which goes on longest; none where one of them has none.
func (c *Context) Deadline() (last time.Time, ok bool) {
	for _, of := range c.of {
		at, ok := of.Deadline()
		if !ok {
			return time.Time{}, false
		}
		if at.After(last) {
			last = at
		}
	}
	return last, true
}

// Done makes the real context.
func (c *Context) Done() <-chan struct{} { return c.get().Done() }

// Err does not need the real context.
func (c *Context) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.real != nil:
		return c.real.Err()
	case c.closed:
		return context.Canceled
	}
	for _, of := range c.of {
		if of.Err() == nil {
			return nil
		}
	}
	return context.Canceled
}

// OfJob is the key under which a handler's context has the message of its job.
type OfJob struct{}

// Drains is the key under which a handler's context tells, by a bool, whether its worker drains. A
// batch has none.
type Drains struct{}

// Value must reach the real context: that is how context.Cause and derived contexts find it. A
// batch is of no single job.
func (c *Context) Value(key any) any {
	if key == (OfJob{}) || key == (Drains{}) {
		return nil
	}
	return c.get().Value(key)
}

func (c *Context) get() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.real != nil {
		return c.real
	}
	c.real, c.cancel = context.WithCancelCause(context.WithoutCancel(c.of[0]))
	if c.closed { // it was left behind with a goroutine, which must not wait for ever
		c.cancel(context.Canceled)
		return c.real
	}
	left, cancel := new(atomic.Int64), c.cancel
	left.Store(int64(len(c.of)))
	for _, of := range c.of {
		c.stops = append(c.stops, context.AfterFunc(of, func() {
			if left.Add(-1) == 0 {
				cancel(context.Cause(of))
			}
		}))
	}
	return c.real
}

// Close ends the context, where its own ones have not.
func (c *Context) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	for _, stop := range c.stops {
		stop()
	}
	if c.cancel != nil {
		c.cancel(context.Canceled)
	}
}
