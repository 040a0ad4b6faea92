package engine

import (
	"time"

	"github.com/onceq/onceq/internal/jointctx"
)

// RunContext is a run as its handler's context, which also tells the message of its job. It costs
// nothing beside the run.
type RunContext[J any] Run[J]

// Deadline is that of the run's context, as the methods below are.
func (c *RunContext[J]) Deadline() (time.Time, bool) { return c.ctx.Deadline() }

// Done makes the real context.
func (c *RunContext[J]) Done() <-chan struct{} { return c.ctx.Done() }

// Err does not need the real context.
func (c *RunContext[J]) Err() error { return c.ctx.Err() }

// Value has the message under [jointctx.OfJob], a bool under [jointctx.Drains], and else what the
// real context has.
func (c *RunContext[J]) Value(key any) any {
	if key == (jointctx.Drains{}) {
		return (*Run[J])(c).Drains()
	}
	if key == (jointctx.OfJob{}) {
		if outer := c.ctx.base.Value(key); outer != nil { // a call of Do in a handler
			return outer
		}
		return c.Message
	}
	return c.ctx.Value(key)
}
