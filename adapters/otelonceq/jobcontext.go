package otelonceq

import (
	"context"
	"sync/atomic"

	"go.opentelemetry.io/otel/trace"

	"github.com/onceq/onceq/dedupe"
)

// logs is set once a LogHandler was made: until then no Observer makes a context for it.
var logs atomic.Bool

// jobContext is the context of a handler: what came, with the job's own facts for its log lines,
// and its span. It is one allocation where there is no span.
type jobContext struct {
	context.Context
	id      string
	key     dedupe.Key
	attempt int
	fence   uint64 // 0 = not to be written
	span    trace.Span
	do      bool
	over    bool // the span has ended; the core tells of the end once, in one goroutine
}

type jobContextKey struct{}

// Value also answers the job itself, without a context for it alone.
func (c *jobContext) Value(key any) any {
	if _, ok := key.(jobContextKey); ok {
		return c
	}
	return c.Context.Value(key)
}

// jobIn is the job whose handler the context belongs to; nil = none.
func jobIn(ctx context.Context) *jobContext {
	if c, ok := ctx.(*jobContext); ok {
		return c
	}
	c, _ := ctx.Value(jobContextKey{}).(*jobContext)
	return c
}
