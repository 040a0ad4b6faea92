package dynamooutbox

import (
	"context"
	"sync"
	"time"

	"github.com/onceq/onceq/broker"
)

// wakes lets receives wait, and wakes one of them. Its channels are made by init.
type wakes struct {
	woken  chan struct{} // holds one wake, for one receive
	closed chan struct{}
	end    sync.Once
}

func (w *wakes) init() { w.woken, w.closed = make(chan struct{}, 1), make(chan struct{}) }

// close reports whether it was the first.
func (w *wakes) close() (first bool) {
	w.end.Do(func() { close(w.closed); first = true })
	return first
}

func (w *wakes) isClosed() bool {
	select {
	case <-w.closed:
		return true
	default:
		return false
	}
}

// wake lets one receive go on, also the next one that waits.
func (w *wakes) wake() {
	select {
	case w.woken <- struct{}{}:
	default: // one is on its way
	}
}

// wait returns when a receive is woken, or d has passed.
func (w *wakes) wait(ctx context.Context, d time.Duration) error {
	if d > 0 {
		t := time.NewTimer(d)
		defer t.Stop()
		select {
		case <-w.woken:
		case <-t.C:
		case <-ctx.Done():
		case <-w.closed:
		}
	}
	if w.isClosed() {
		return broker.ErrClosed
	}
	return ctx.Err()
}
