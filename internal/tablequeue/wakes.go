package tablequeue

import (
	"context"
	"sync"
	"time"
)

// Wakes owns when receives look: at their turn, or when they are woken. The receives of a queue
// share the looks at an empty table: one each poll, however many wait. Make one with NewWakes.
type Wakes struct {
	woken chan struct{} // holds one wake, for one receive

	mu   sync.Mutex // guards what follows
	last time.Time  // of the last look
	next time.Time  // when something will be there; zero = not known
}

// NewWakes is for the receives of one queue.
func NewWakes() *Wakes { return &Wakes{woken: make(chan struct{}, 1)} }

// Wake lets one receive look at once, also the next one that comes.
func (w *Wakes) Wake() {
	w.mu.Lock()
	w.last = time.Time{}
	w.mu.Unlock()
	w.pass()
}

// pass lets one receive go on.
func (w *Wakes) pass() {
	select {
	case w.woken <- struct{}{}:
	default: // one is on its way
	}
}

// Turn reports whether it is time for a look, and takes it.
func (w *Wakes) Turn(poll time.Duration) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	expected := !w.next.IsZero() && !now.Before(w.next)
	if now.Sub(w.last) < poll && !expected {
		return false
	}
	if w.last = now; expected {
		w.next = time.Time{}
	}
	return true
}

// UntilTurn is how long it is to the next look.
func (w *Wakes) UntilTurn(poll time.Duration) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	d := max(0, poll-time.Since(w.last))
	if !w.next.IsZero() {
		d = min(d, max(0, time.Until(w.next)))
	}
	return d
}

// Expect makes it the turn of a look at that time, too; zero = nothing is expected.
func (w *Wakes) Expect(at time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.next = at
}

// Wait returns when a receive is woken, d has passed, ctx has ended, or closed is closed. A receive
// that was woken while its own time ended passes the wake on.
func (w *Wakes) Wait(ctx context.Context, closed <-chan struct{}, d time.Duration) {
	if d <= 0 {
		return
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-w.woken:
		select {
		case <-closed:
			w.pass()
		default:
			if ctx.Err() != nil {
				w.pass()
			}
		}
	case <-t.C:
	case <-ctx.Done():
	case <-closed:
	}
}

// Closing is closed once.
type Closing struct {
	once sync.Once
	c    chan struct{}
}

// NewClosing is not closed.
func NewClosing() *Closing { return &Closing{c: make(chan struct{})} }

// Close may be called more than once.
func (c *Closing) Close() { c.once.Do(func() { close(c.c) }) }

// C is closed by Close.
func (c *Closing) C() <-chan struct{} { return c.c }

// IsClosed reports whether Close was called.
func (c *Closing) IsClosed() bool {
	select {
	case <-c.c:
		return true
	default:
		return false
	}
}
