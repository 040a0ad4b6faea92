package onceq

import "context"

// Handler does a job's work. It may be called from many goroutines.
//
// nil means done: the key is recorded, and the job never runs again. An error means that the job is
// tried again later; [Permanent] and [RetryAfter] say otherwise. A panic counts as an error.
//
// ctx ends when the job's Timeout is over, when the worker drains longer than DrainTimeout, or when the
// lease is lost; context.Cause tells which. A handler that was cut off may still return nil if its
// work is complete.
type Handler interface {
	Handle(ctx context.Context, j *Job) error
}

// HandlerFunc is a function that is a Handler.
type HandlerFunc func(ctx context.Context, j *Job) error

// Handle calls f.
func (f HandlerFunc) Handle(ctx context.Context, j *Job) error { return f(ctx, j) }

// Middleware wraps a Handler: for logging, metrics, a transaction, a limit.
type Middleware func(Handler) Handler

// Chain wraps h in mw; the first is the outermost. It is nil, which New refuses, when one of them is. Do not wrap a [Mux]: it has
// Use.
func Chain(h Handler, mw ...Middleware) Handler {
	for i := len(mw) - 1; i >= 0; i-- {
		if mw[i] == nil {
			return nil
		}
		h = mw[i](h)
	}
	return h
}
