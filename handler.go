package onceq

import (
	"context"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/values"
)

// Handler does a job's work. It may be called from many goroutines.
//
// What Handle returns decides:
//
//   - nil: the job is done. That is recorded with its key, and the job does not run again while the
//     record is kept.
//   - an error: the job is tried again later, after a backoff, unless its attempts are used up.
//     [Permanent] and [RetryAfter] say otherwise. A panic counts as an error.
//
// ctx ends when the job's Timeout is over ([ErrTimeout]), when the worker drains longer than
// DrainTimeout ([ErrDraining]), or when the lease is lost ([ErrLeaseLost]); context.Cause answers
// which. A handler that was cut off may still return nil, if its work is complete.
type Handler interface {
	Handle(ctx context.Context, j *Job) error
}

// HandlerFunc is a function that is a Handler.
type HandlerFunc func(ctx context.Context, j *Job) error

// Handle calls f.
func (f HandlerFunc) Handle(ctx context.Context, j *Job) error { return f(ctx, j) }

// Middleware wraps a Handler: for logging, metrics, a transaction, a limit.
type Middleware func(Handler) Handler

// Chain wraps h in mw; the first is the outermost. Where one of mw is nil, NewProcessor answers a
// *[ConfigError].
//
// h may be a [Mux]: a worker knows the scopes and options of its types all the same. mw is then
// called for unknown types too, while [Mux.Use] wraps only the handlers that there are. h may be
// what [Batched] or [Forward] makes: mw is then called for each job.
func Chain(h Handler, mw ...Middleware) Handler {
	in := innerOf(h)
	for i := len(mw) - 1; i >= 0; i-- {
		if mw[i] == nil {
			return (*misChained)(nil)
		}
		h = mw[i](h)
	}
	_, isMux := in.(*Mux)
	_, isKnown := in.(known)
	if (isMux || isKnown) && len(mw) > 0 && !values.IsNil(h) {
		return &chained{h, in}
	}
	return h
}

// known is a Handler of which a Processor must know more than that it handles jobs: one that
// Batched or Forward has made.
type known interface {
	Handler
	mistake() error // what is wrong with it
	slots() int     // how many a Worker must have; 0 = any number
	sendsTo() *relay
	waits() bool // it waits before it does anything, and has the starts of its jobs recorded itself
}

// relay is where a Forward sends to.
type relay struct {
	to     broker.Sender
	limits broker.Limits
}

// startsLater reports whether h has the starts of its jobs recorded itself. A middleware around it
// is the user's code, and may do anything at once.
func startsLater(h Handler) bool {
	k, bare := h.(known)
	return bare && k.waits()
}

// knownIn is the known Handler that h is, or that Chain has wrapped; nil = none.
func knownIn(h Handler) known {
	k, _ := innerOf(h).(known)
	return k
}

// relayIn is what the Forward sends to that h is, or that Chain has wrapped; nil = it is none.
func relayIn(h Handler) *relay {
	if k := knownIn(h); k != nil {
		return k.sendsTo()
	}
	return nil
}

// chained is a Handler that a Processor must know, with middleware around it.
type chained struct {
	Handler
	inner Handler
}

// innerOf is what Chain has wrapped, where a Processor must know it; else h itself.
func innerOf(h Handler) Handler {
	if c, ok := h.(*chained); ok {
		return c.inner
	}
	return h
}

// misChained is what Chain makes with a nil middleware. It is a nil pointer, so that whoever
// refuses a nil Handler refuses it too.
type misChained struct{}

var errMisChained = badConfig("Chain", "a middleware is nil")

func (*misChained) Handle(context.Context, *Job) error { return errMisChained }

// muxIn is the Mux that h is, or that Chain has wrapped; nil = none.
func muxIn(h Handler) *Mux {
	switch h := innerOf(h).(type) {
	case *Mux:
		return h
	case *misChained: // NewProcessor answers a Mux's mistake
		return &Mux{err: errMisChained}
	}
	return nil
}
