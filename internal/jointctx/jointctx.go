package onceq

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// This file owns jointContext, the context of a batch. gathering.run makes it and closes it; the
// user's function, and what that calls, ask it from any goroutine. c.mu guards real, cancel, stops
// and closed. It is held while the jobs' contexts are asked, which know nothing of this one.

// jointContext ends when all of its contexts have ended, with the cause of the last. Most are never
// waited on, so the real context, which watches the others, is made when somebody first asks.
type jointContext struct {
	of []context.Context // two or more

	mu     sync.Mutex
	real   context.Context
	cancel context.CancelCauseFunc
	stops  []func() bool
	closed bool // the function has returned
}

// Deadline is that of the context which goes on longest; none where one of them has none.
func (c *jointContext) Deadline() (last time.Time, ok bool) {
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
func (c *jointContext) Done() <-chan struct{} { return c.get().Done() }

// Err does not need the real context.
func (c *jointContext) Err() error {
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

// Value must reach the real context: that is how context.Cause and derived contexts find it.
func (c *jointContext) Value(key any) any { return c.get().Value(key) }

func (c *jointContext) get() context.Context {
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

func (c *jointContext) close() {
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
