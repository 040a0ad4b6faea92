package visibility

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/durations"
)

var (
	// ErrUnanswered tells a holder that its lease's deadline is near, or over, and no beat was
	// answered in time.
	ErrUnanswered = errors.New("visibility: lease not confirmed before its deadline")
	// ErrLater is for an Extender to wrap where a lease's answer comes later, through
	// Manager.Update or Release. Until then nothing is known of the lease. The next beat comes at
	// its usual time.
	ErrLater = errors.New("visibility: the answer comes later")
)

// Extender prolongs a batch of leases. Its answer goes by position:
//
//   - nil: every lease has Options.Timeout more, counted from before the call;
//   - a [*broker.BatchError]: each entry has its own answer, and nothing is known of the entries
//     beyond its end;
//   - any other error: it is the answer for every lease.
//
// The Manager calls it from up to Options.MaxCalls goroutines at once. It should return when its
// context ends, because until then it holds one of these calls. Its panic counts as an answer that
// tells nothing.
type Extender[L any] func(ctx context.Context, ls []L) error

// Options say how leases are kept.
type Options[L any] struct {
	// Timeout is how much time a beat gives a lease. Required; 10 ms to a year.
	Timeout time.Duration
	// Interval is the longest time between beats. A beat may come up to a quarter sooner: part of
	// that is drawn at random, and part comes from going along with others. Default a third of
	// Timeout, or the limit where that is less. Limit: 1 ms to (Timeout - Margin) / 2, so that a
	// beat that fails can be repeated.
	Interval time.Duration
	// Margin is how long before its deadline an unanswered lease is reported. A lease that comes
	// with less than twice that left is reported at half of what is left. Default a sixth of
	// Timeout; at most half of it.
	Margin time.Duration
	// CallTimeout bounds one call of the Extender. Default 5 s; at least 1 ms; what is more than
	// Timeout is cut to it.
	CallTimeout time.Duration
	// MaxBatch is the most leases of one call. Default 10.
	MaxBatch int
	// MaxCalls is the most calls at once. Default and most 16.
	MaxCalls int
	// IsLost reports whether an answer means that a lease is lost for good. After all other errors
	// the beat is repeated. Default: true for errors that wrap broker.ErrReceiptExpired. It must
	// not block.
	IsLost func(error) bool
	// Revives says that an answer after the deadline counts, as a conditional write's does. The
	// lease is then held, and beaten, until it is released. Without Revives, as for an SQS message,
	// a lease is no longer held from its deadline on.
	Revives bool
	// OnLost tells a holder that its lease is lost, or was not confirmed. err says which:
	//
	//   - The Extender's answer: the lease is lost, and no longer held.
	//   - ErrUnanswered: no beat was answered. It comes once for each time that the answers stop,
	//     before the deadline. The lease is still held, without Revives until its deadline, and may
	//     yet be prolonged.
	//
	// Two kinds of leases are reported after their deadline: those on a machine that was suspended,
	// and those that were over when they came. Where the wall clock alone says that a lease is
	// over, and Revives is set, the clock may have been set, and the machine not suspended. So the
	// lease is beaten at once, and reported when Margin has gone by without an answer.
	//
	// It is called outside the manager's lock and must not block.
	OnLost func(l L, err error)
	// OnTimeout tells a holder that the time set by SetTimeout has come. It is called outside the
	// manager's lock and must not block.
	OnTimeout func(l L)
}

const (
	mostCalls   = 16
	minTimeout  = 10 * time.Millisecond
	maxTimeout  = 365 * 24 * time.Hour
	minInterval = time.Millisecond
)

func (o Options[L]) withDefaults() Options[L] {
	o.Margin = cmp.Or(o.Margin, o.Timeout/6)
	o.Interval = cmp.Or(o.Interval, min(o.Timeout/3, (o.Timeout-o.Margin)/2))
	o.CallTimeout = min(cmp.Or(o.CallTimeout, 5*time.Second), o.Timeout)
	o.MaxBatch = cmp.Or(o.MaxBatch, 10)
	o.MaxCalls = cmp.Or(o.MaxCalls, mostCalls)
	if o.IsLost == nil {
		o.IsLost = func(err error) bool { return errors.Is(err, broker.ErrReceiptExpired) }
	}
	if o.OnLost == nil {
		o.OnLost = func(L, error) {}
	}
	if o.OnTimeout == nil {
		o.OnTimeout = func(L) {}
	}
	return o
}

func (o *Options[L]) check() error {
	switch {
	case o.Timeout < minTimeout || o.Timeout > maxTimeout:
		return fmt.Errorf("visibility: Options.Timeout: %v is not within %v and %v", o.Timeout, minTimeout, maxTimeout)
	case o.Margin < 0 || o.Margin > o.Timeout/2:
		return fmt.Errorf("visibility: Options.Margin: %v is not within 0 and half of Timeout, %v", o.Margin, o.Timeout/2)
	case o.Interval < minInterval || o.Interval > (o.Timeout-o.Margin)/2:
		return fmt.Errorf("visibility: Options.Interval: %v is not within %v and half of Timeout less Margin, %v", o.Interval, minInterval, (o.Timeout-o.Margin)/2)
	case o.CallTimeout < 0:
		return fmt.Errorf("visibility: Options.CallTimeout: %v is negative", o.CallTimeout)
	case durations.IsBare(o.CallTimeout):
		return fmt.Errorf("visibility: Options.CallTimeout: %s", durations.AskUnit(o.CallTimeout))
	case o.MaxBatch < 1:
		return fmt.Errorf("visibility: Options.MaxBatch: %d is below 1", o.MaxBatch)
	case o.MaxCalls < 1 || o.MaxCalls > mostCalls:
		return fmt.Errorf("visibility: Options.MaxCalls: %d is not within 1 and %d", o.MaxCalls, mostCalls)
	}
	return nil
}
