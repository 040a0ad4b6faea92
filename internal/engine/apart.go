package engine

import (
	"context"
	"errors"
	mrand "math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/onceq/onceq/broker"
)

// wholeFailures is how often in a row a call may fail for all of its entries before each entry is
// asked for alone. Otherwise one entry that makes each of its calls fail would stop the others.
const wholeFailures = 3

// dividable reports whether a batch is to be tried entry by entry after its whole call has failed.
// failed answers how often that has happened to a run before. A call that hangs is not divided,
// because that would take as many timeouts as there are entries.
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

// apart makes one call for each entry, and reports whether any call had an answer. It begins with
// an entry chosen at random. When two calls have failed before one had an answer, it does not try
// the others, because that is an outage.
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

// outlived reports whether the error of a call that had no other entry is the run's own. It is,
// when the store (or the queue) has answered others since the run's first such call was sent. last
// is when it answered, and sent is when this call began.
func (r *Run[J]) outlived(last *atomic.Int64, sent time.Time) bool {
	m := r.ensureLater()
	if m.failing == 0 {
		m.failing = max(1, sent.Sub(r.f.en.epoch))
	}
	return time.Duration(last.Load()) > m.failing
}

// refusedAlone reports whether a queue has refused this letter, and not the whole call.
func refusedAlone(err error) bool {
	var b *broker.BatchError
	return errors.As(err, &b)
}
