package dlq

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/durations"
	"github.com/onceq/onceq/internal/retry"
	"github.com/onceq/onceq/internal/values"
	"github.com/onceq/onceq/visibility"
)

// This file owns a Queue: its options with their defaults and limits, and how its calls of the
// broker are bounded and repeated. Callers of the package make one with New; list.go, replay.go,
// purge.go, walk.go and hold.go use the rest. A Queue does not change after New, so it needs no
// lock.

// The defaults of [Options] and [Filter].
const (
	DefaultVisibility  = time.Minute
	DefaultWait        = 3 * time.Second
	DefaultMaxHeld     = 100_000
	DefaultCallTimeout = 5 * time.Second
	DefaultRetryFor    = time.Minute
	DefaultCanaryWait  = time.Minute
	DefaultMaxListed   = 1000
)

// maxHeldFIFO is the default of Options.MaxHeld where every message needs a group, as on a FIFO
// queue of SQS, which has 20,000 in flight at most.
const maxHeldFIFO = 15_000

// Errors that say why a call could not see or find what it was asked for.
var (
	// ErrIncomplete: there are letters that were not looked at. The message says why, and what to
	// do.
	ErrIncomplete = errors.New("dlq: not every letter was looked at")
	// ErrStopped: ReplayOptions.Stop or PurgeOptions.Stop was closed. Nothing is lost by that.
	ErrStopped = errors.New("dlq: stopped in order")
	// ErrNoLetter: no letter has that key or id.
	ErrNoLetter = errors.New("dlq: no such letter")
)

// Options set up a [Queue]. The zero value, and nil, mean the defaults.
type Options struct {
	// Name is the queue's name. A [Plan] carries it, and is refused by a queue of another name.
	// Default: the name that the broker gives itself (broker.Describer). Without a name there are
	// no plans.
	Name string
	// Visibility is how long a letter stays hidden when the program that reads it dies. While the
	// program lives, it extends that time, and hands back what it does not take. Default 1 min,
	// brought within the broker's limits; at least 1 s, and within those limits. A driver that
	// cannot choose a receive's visibility uses the queue's own.
	Visibility time.Duration
	// Wait is how long no letter may come until the queue counts as empty. Default 3 s; at least
	// 1 ms. With a real service it must be long enough for a long poll, 1 s at least.
	Wait time.Duration
	// MaxHeld is how many letters one call holds at most: those that it has looked at and does not
	// take. Each takes about 2 KB of memory. A call that met more ends with [ErrIncomplete], unless
	// it has a [Plan]. Default 100,000; 15,000 on a FIFO queue of SQS. SQS allows 120,000 in
	// flight, and 20,000 on a FIFO queue.
	//
	// Those beyond the first 15,000 are hidden for ten minutes at a time. They stay hidden for so
	// long when the program dies.
	MaxHeld int
	// Progress, when set, is told how many letters a call has looked at so far, and of about how
	// many; 0 = the broker does not tell. It is called in the goroutine of the call, after each
	// receive that brought something new.
	Progress func(seen, about int)
	// CallTimeout bounds one call of the broker. Default 5 s; at least 1 ms.
	CallTimeout time.Duration
	// RetryFor is how long a call of the broker that fails is repeated. After that its error is
	// returned. The end of the context ends the repeats earlier. Default 1 min; at least 1 ms;
	// < 0 = nothing is repeated.
	RetryFor time.Duration
	// LetterKeys are those of the workers' configuration. A letter that names a failure, and that
	// none of them has signed, is shown as unsigned, and its replay cannot reopen the failure. What
	// a replay sends with a fence is signed. Each key has 32 bytes or more. Default: nothing is
	// signed or verified.
	LetterKeys Keys
}

// Queue is a dead-letter queue to look into, to replay from, and to purge. It needs nothing but a
// broker that receives and settles. Its methods may be called from many goroutines, and by many
// programs at once. They share the letters between them, because what one holds no other sees.
type Queue struct {
	b broker.Receiver
	l broker.Limits
	o Options
}

// New returns a Queue over the broker of a dead-letter queue; nil options mean the defaults. An
// error names the field and the limit that it does not keep. New does no I/O, and there is nothing
// to close.
func New(b broker.Receiver, o *Options) (*Queue, error) {
	if values.IsNil(b) {
		return nil, errors.New("dlq: New: the broker is nil")
	}
	q := &Queue{b: b, l: b.Limits()}
	if o != nil {
		q.o = *o
	}
	if d, ok := broker.As[broker.Describer](b); ok && q.o.Name == "" {
		q.o.Name = d.Describe().Name
	}
	l := &q.l
	if l.ReceiveBatch < 1 || l.SettleBatch < 1 {
		return nil, fmt.Errorf("dlq: New: the broker's Limits() have ReceiveBatch %d and SettleBatch %d, want 1 or more", l.ReceiveBatch, l.SettleBatch)
	}
	if v := q.o.Visibility; v != 0 {
		switch {
		case durations.IsBare(v):
			return nil, bare("Options.Visibility", v)
		case v < time.Second:
			return nil, bad("Options.Visibility", "%v is below 1s", v)
		case l.MinHold > 0 && v < l.MinHold:
			return nil, bad("Options.Visibility", "%v is below the broker's shortest extension, %v", v, l.MinHold)
		case l.MaxHold > 0 && v > l.MaxHold:
			return nil, bad("Options.Visibility", "%v is above the broker's longest extension, %v", v, l.MaxHold)
		}
	}
	switch {
	case q.o.Wait < 0:
		return nil, bad("Options.Wait", "%v is negative", q.o.Wait)
	case q.o.MaxHeld < 0:
		return nil, bad("Options.MaxHeld", "%d is negative", q.o.MaxHeld)
	case q.o.CallTimeout < 0:
		return nil, bad("Options.CallTimeout", "%v is negative", q.o.CallTimeout)
	case durations.IsBare(q.o.Wait):
		return nil, bare("Options.Wait", q.o.Wait)
	case durations.IsBare(q.o.CallTimeout):
		return nil, bare("Options.CallTimeout", q.o.CallTimeout)
	case durations.IsBare(q.o.RetryFor):
		return nil, bare("Options.RetryFor", q.o.RetryFor)
	}
	if err := q.o.LetterKeys.Check(); err != nil {
		return nil, bad("Options.LetterKeys", "%v", err)
	}
	q.o.Visibility = cmp.Or(q.o.Visibility, max(l.MinHold, DefaultVisibility))
	if l.MaxHold > 0 {
		q.o.Visibility = min(q.o.Visibility, l.MaxHold)
	}
	q.o.Wait = cmp.Or(q.o.Wait, DefaultWait)
	if q.o.MaxHeld == 0 {
		q.o.MaxHeld = DefaultMaxHeld
		if l.RequireGroup {
			q.o.MaxHeld = maxHeldFIFO
		}
	}
	q.o.CallTimeout = cmp.Or(q.o.CallTimeout, DefaultCallTimeout)
	q.o.RetryFor = cmp.Or(q.o.RetryFor, DefaultRetryFor)
	if _, err := visibility.New(func(context.Context, []*held) error { return nil }, q.leases(q.o.Visibility)); err != nil {
		return nil, fmt.Errorf("dlq: New: Options.Visibility and Options.CallTimeout: %w", err)
	}
	return q, nil
}

// bad is a mistake of the caller's.
func bad(field, format string, args ...any) error {
	return fmt.Errorf("dlq: %s: %s", field, fmt.Sprintf(format, args...))
}

func bare(field string, d time.Duration) error { return bad(field, "%s", durations.AskUnit(d)) }

// ctx is the context of one call that settles or sends. The end of the caller's context does not
// cut the call off, because that would leave in doubt what it has done.
func (q *Queue) ctx(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), q.o.CallTimeout)
}

// tries counts the repetitions of a call that fails.
type tries struct {
	n     int
	until time.Time
}

// again waits before the next repetition. It reports false when there is to be none, because ctx
// has ended or patience is over.
func (t *tries) again(ctx context.Context, patience time.Duration) bool {
	now := time.Now()
	if t.n++; t.n == 1 {
		t.until = now.Add(patience)
	}
	if now.After(t.until) || patience < 0 {
		return false
	}
	return retry.Rest(ctx, min(retry.Pause(t.n), max(t.until.Sub(now), time.Millisecond)))
}

// isFinal reports whether err is one that no repetition mends.
func isFinal(err error) bool {
	return errors.Is(err, broker.ErrClosed) || errors.Is(err, broker.ErrNotFound)
}

// isUnsigned reports whether a letter names a failure and no key has signed it. Without keys it is
// false.
func (q *Queue) isUnsigned(m *broker.Message) bool {
	return len(q.o.LetterKeys) > 0 && fenceOf(m.Meta) != 0 && !q.o.LetterKeys.Signed(m)
}
