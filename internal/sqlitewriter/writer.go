// Package sqlitewriter is the one goroutine that writes to a SQLite file, for all who keep
// something in it: a store of records, and the queues beside it.
package sqlitewriter

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"sync"
	"time"
)

// This file owns the one goroutine that writes, its queue, and when it holds the file's lock. Every
// writing call of the store and of the queues comes through Writer.Do. Writer.mu guards the queue;
// it is never held during SQL.

const (
	// A process that is never idle frees the lock only for an instant between two transactions, and
	// nobody else would find it free then. So it lets go after each stint (others.go).
	stint = 20 * time.Millisecond

	// MostEntries keeps one transaction short enough for its neighbours on the file.
	MostEntries = 256
)

// Writer runs calls in IMMEDIATE transactions, all that wait together in one. It has a goroutine
// only while calls wait. Make one with New.
type Writer struct {
	// Most is the most entries of one transaction: MostEntries, unless a benchmark has set it.
	Most int

	server server
	cancel context.CancelFunc // of server.life

	mu      sync.Mutex
	idle    *sync.Cond
	queue   []*call // not yet part of a transaction
	turns   []*turn // transactions of the user's
	running bool
	closed  bool

	// of the goroutine that runs
	others others
	ended  time.Time

	shared sync.Map // what those who write through it share, by name
}

// New returns a writer on db's file, which waits up to busy for a reader that is in the way of a
// commit. It does no I/O.
func New(db *sql.DB, busy time.Duration) *Writer {
	w := &Writer{server: server{db: db, busy: busy}, Most: MostEntries}
	w.server.life, w.cancel = context.WithCancel(context.Background())
	w.idle = sync.NewCond(&w.mu)
	return w
}

// Handle is embedded by what owns a writer and shares it with packages of this module alone: its
// method has no name that users can call.
type Handle struct{ w *Writer }

// NewHandle returns the handle of w.
func NewHandle(w *Writer) Handle { return Handle{w} }

func (h Handle) writer() *Writer { return h.w }

// Of is the writer of what embeds a Handle.
func Of(owner interface{ writer() *Writer }) *Writer { return owner.writer() }

// DB is the pool, for what reads.
func (w *Writer) DB() *sql.DB { return w.server.db }

// Busy is how long a call should wait for the file's lock.
func (w *Writer) Busy() time.Duration { return w.server.busy }

// Shared is the value of that name, which make makes for the first who asks.
func (w *Writer) Shared(name string, make func() any) any {
	if v, ok := w.shared.Load(name); ok {
		return v
	}
	v, _ := w.shared.LoadOrStore(name, make())
	return v
}

// Do runs the call in a transaction and returns when that is committed. After ErrLocked nothing was
// written. The end of ctx ends this call only, never the transaction that others share. Then Apply
// may still be running.
func (w *Writer) Do(ctx context.Context, do *Call) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("nothing was written: %w", err)
	}
	c := &call{Call: do, done: make(chan struct{})}
	if !w.add(c) {
		return ErrClosed
	}
	timer := time.NewTimer(do.Wait)
	defer timer.Stop()
	select {
	case <-c.done:
		return c.err
	case <-ctx.Done():
	case <-timer.C:
		if w.withdraw(c) {
			return ErrLocked
		}
	}
	select {
	case <-c.done:
		return c.err
	case <-ctx.Done():
		if w.withdraw(c) {
			return fmt.Errorf("nothing was written: %w", ctx.Err())
		}
	}
	if do.Grace > 0 {
		timer.Reset(do.Grace)
		select {
		case <-c.done:
			return c.err
		case <-timer.C:
		}
	}
	return fmt.Errorf("the transaction was under way, its outcome is unknown: %w", ctx.Err())
}

func (w *Writer) add(c *call) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return false
	}
	w.queue = append(w.queue, c)
	w.start()
	return true
}

// start runs the goroutine that serves the queues. The caller holds mu.
func (w *Writer) start() {
	if !w.running {
		w.running = true
		go w.run()
	}
}

// withdraw takes c back, if it is not part of a transaction yet.
func (w *Writer) withdraw(c *call) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	i := slices.Index(w.queue, c)
	if i < 0 {
		return false
	}
	w.queue = slices.Delete(w.queue, i, i+1)
	return true
}

// run serves the queue until it is empty. It takes who waits after the lock was won, so the longer
// the wait, the larger the batch.
func (w *Writer) run() {
	begun := time.Now()
	first, since, turns := begun, begun, begun
	w.others.idled += begun.Sub(w.ended)
	for w.waiting() {
		if t := w.nextTurn(turns); t != nil {
			close(t.granted)
			<-t.over
		} else {
			err := w.server.begin()
			if IsBusy(err) {
				<-pauseAfter(time.Since(since))
				begun, turns = time.Now(), time.Now()
				continue
			}
			if batch := w.take(); err == nil {
				w.server.serve(batch)
			} else {
				answer(batch, err)
			}
			turns = time.Now()
		}
		since = time.Now()
		_, _, due := w.others.due(since)
		if since.Sub(begun) > stint || due && since.Sub(first) > stint {
			w.others.rest(w.server.version)
			begun = time.Now()
			turns = turns.Add(begun.Sub(since))
		}
	}
}

// waiting reports whether there are calls or turns to serve. If not, the running goroutine ends.
func (w *Writer) waiting() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.queue) > 0 || len(w.turns) > 0 {
		return true
	}
	w.running, w.ended = false, time.Now()
	w.idle.Broadcast()
	return false
}

// take removes a batch from the queue. It takes whole calls, and at least one if there is any.
func (w *Writer) take() []*call {
	w.mu.Lock()
	defer w.mu.Unlock()
	n, entries := 0, 0
	for n < len(w.queue) && (n == 0 || entries+w.queue[n].Entries <= w.Most) {
		entries += w.queue[n].Entries
		n++
	}
	batch := slices.Clone(w.queue[:n])
	w.queue = slices.Delete(w.queue, 0, n)
	return batch
}

// await waits until the writer stands still.
func (w *Writer) await(ctx context.Context, t *turn, end time.Time) error {
	w.mu.Lock()
	if w.closed {
		w.mu.Unlock()
		return ErrClosed
	}
	w.turns = append(w.turns, t)
	w.start()
	w.mu.Unlock()
	timer := time.NewTimer(time.Until(end))
	defer timer.Stop()
	err := ErrLocked
	select {
	case <-t.granted:
		return t.err
	case <-timer.C:
	case <-ctx.Done():
		err = fmt.Errorf("nothing was begun: %w", ctx.Err())
	}
	w.mu.Lock()
	i := slices.Index(w.turns, t)
	if i >= 0 {
		w.turns = slices.Delete(w.turns, i, i+1)
	}
	w.mu.Unlock()
	if i < 0 { // the turn has come meanwhile
		<-t.granted
		if t.err == nil {
			close(t.over)
		}
	}
	return err
}

// nextTurn takes a turn from its queue. Where calls wait too, both get about as much time.
func (w *Writer) nextTurn(since time.Time) *turn {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.turns) == 0 || len(w.queue) > 0 && time.Since(since) > stint {
		return nil
	}
	t := w.turns[0]
	w.turns = slices.Delete(w.turns, 0, 1)
	return t
}

// Close finishes the calls and the turn under way, answers ErrClosed to those that wait, and closes
// the writing connection. The pool stays open. It may be called more than once.
func (w *Writer) Close() {
	w.mu.Lock()
	if !w.closed {
		w.closed = true
		w.cancel()
		answer(w.queue, ErrClosed)
		for _, t := range w.turns {
			t.err = ErrClosed
			close(t.granted)
		}
		w.queue, w.turns = nil, nil
	}
	for w.running {
		w.idle.Wait()
	}
	w.mu.Unlock()
	w.server.drop()
}

// IsClosed reports whether Close was called.
func (w *Writer) IsClosed() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.closed
}
