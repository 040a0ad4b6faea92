package engine

import (
	"context"
	"errors"
	mrand "math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/onceq/onceq/broker"
)

// wholeFailures is how often in a row a call may fail for all of its entries before each is asked
// for alone: one that fails every call which it is in must not stop the others.
const wholeFailures = 3

// dividable tells whether a batch whose whole call has failed is to be tried entry by entry; failed
// is how often that of a run has before. A call that hangs is not: that would take as many timeouts
// as there are entries.
func dividable[J any](rs []*Run[J], err error, failed func(*Run[J]) int) bool {
	if len(rs) < 2 || errors.Is(err, context.DeadlineExceeded) {
		return false
	}
	for _, r := range rs {
		if failed(r) >= wholeFailures {
			return true
		}
	}
	return false
}

func tried[J any](r *Run[J]) int { return int(r.tries) }

// apart calls for each entry alone, from one of them on, chosen at random, and tells whether any
// call had an answer. Where two have failed before one had, the others are not tried: that is an
// outage.
func apart[J any](rs []*Run[J], err error, call func(i int) error) (errs []error, some bool) {
	errs = make([]error, len(rs))
	failed, first := 0, mrand.IntN(len(rs))
	for n := range rs {
		i := (first + n) % len(rs)
		if failed > 1 && !some {
			errs[i] = err
			continue
		}
		if errs[i] = call(i); errs[i] != nil {
			failed++
		} else {
			some = true
		}
	}
	return errs, some
}

// outlived tells whether the store, or the queue, has answered others since a call failed that had
// none but this run: then the error is the run's own. last is when it answered, sent when the call
// began.
func (r *Run[J]) outlived(last *atomic.Int64, sent time.Time) bool {
	m := r.makes()
	if m.failing == 0 {
		m.failing = max(1, sent.Sub(r.f.en.epoch))
	}
	return time.Duration(last.Load()) > m.failing
}

// refusedAlone tells whether a queue has refused this letter, and not the whole call.
func refusedAlone(err error) bool {
	var b *broker.BatchError
	return errors.As(err, &b)
}
